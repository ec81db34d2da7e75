"""A line between the worker and the broker that a test can take away, and one that falls silent at a chosen request.

May depend on: nothing of ours.
"""

import contextlib
import select
import socket
import threading


class Line:
    """Passes bytes on from a loopback port of its own to the broker's.

    `silent_after`: bytes; a connection whose client has sent them gets nothing
    any more, and what it sends is not read: as from a host that froze at that
    moment.  The connections beside it go on.
    """

    def __init__(self, port, silent_after=None):
        self._to = port
        self._silent_after = silent_after
        self._listener = None
        self._stopping = threading.Event()
        self._threads = []
        self.silent = threading.Event()
        with socket.create_server(("127.0.0.1", 0)) as first:
            self.port = first.getsockname()[1]

    def __enter__(self):
        self.up()
        return self

    def __exit__(self, *_):
        self.down()

    def up(self):
        """From now on connections are taken."""
        self._stopping.clear()
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._start(self._accept, self._listener)

    def down(self):
        """All connections are cut, new ones refused."""
        self._stopping.set()
        self._listener.close()
        for thread in self._threads:
            thread.join(10)
        self._threads.clear()

    def _start(self, function, *arguments):
        thread = threading.Thread(target=function, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener):
        with contextlib.suppress(OSError):
            while not self._stopping.is_set():
                if select.select([listener], [], [], 0.05)[0]:
                    self._start(self._pass_on, listener.accept()[0])

    def _pass_on(self, client):
        sent = b""
        with client, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._to)) as broker:
            for end in (client, broker):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while not self._stopping.is_set():
                for ready in select.select([client, broker], [], [], 0.05)[0]:
                    piece = ready.recv(65536)
                    if not piece:
                        return
                    if ready is client and self._silent_after is not None:
                        sent = sent[-256:] + piece
                        if self._silent_after in sent:
                            self.silent.set()
                            self._stopping.wait()
                            return
                    (broker if ready is client else client).sendall(piece)
