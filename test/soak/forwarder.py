"""A TCP forwarder between the worker and the broker, whose connections can be cut.

It lets everything through until it is told to cut: then every connection ends
with a reset at once, or after some more bytes, in the middle of a frame.

May depend on: nothing of ours.
"""

import contextlib
import os
import random
import selectors
import socket
import struct
import threading

_RESET = struct.pack("ii", 1, 0)
_CHUNK = 65536
_MOST_WAITING = 4 * _CHUNK


class _Pair:
    """The two sides of one connection, and what has been read but not yet written."""

    def __init__(self, client, server):
        self.sides = {client: server, server: client}
        self.waiting = {client: bytearray(), server: bytearray()}
        self.bytes_left = None


class Forwarder:
    """Listens on a port of its own; use it as a context manager."""

    def __init__(self, target_port):
        self._target = ("127.0.0.1", target_port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = os.pipe()[::-1]
        self._pairs = {}
        self._orders = []
        self._stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True, name="forwarder")

    def __enter__(self):
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stopping = True
        os.write(self._wake, b"x")
        self._thread.join(10)

    def cut(self, after=0):
        """Reset every connection, each after `after` more bytes in either direction."""
        done = threading.Event()
        self._orders.append((after, done))
        os.write(self._wake, b"x")
        if not done.wait(10):
            raise RuntimeError("the forwarder does not answer")

    # -- its thread ------------------------------------------------------------

    def _run(self):
        while not self._stopping:
            for key, events in self._selector.select():
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj == self._woken:
                    os.read(self._woken, 100)
                    self._obey()
                elif key.fileobj in self._pairs:
                    self._move(key.fileobj, events)
        for pair in set(self._pairs.values()):
            self._reset(pair)
        self._listener.close()

    def _accept(self):
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(self._target, timeout=5)
        except OSError:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            client.close()
            return
        pair = _Pair(client, server)
        for side in pair.sides:
            side.setblocking(False)
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pairs[side] = pair
            self._selector.register(side, selectors.EVENT_READ)

    def _obey(self):
        while self._orders:
            after, done = self._orders.pop(0)
            for pair in set(self._pairs.values()):
                if after == 0:
                    self._reset(pair)
                else:
                    pair.bytes_left = random.randrange(1, after)
            done.set()

    def _move(self, side, events):
        pair = self._pairs[side]
        try:
            if events & selectors.EVENT_READ:
                self._read(pair, side)
            if side in self._pairs and events & selectors.EVENT_WRITE:
                self._write(pair, side)
        except BlockingIOError:
            pass
        except OSError:
            self._reset(pair)

    def _read(self, pair, side):
        data = side.recv(_CHUNK)
        if not data:
            self._reset(pair)
            return
        if pair.bytes_left is not None:
            data = data[:pair.bytes_left]
            pair.bytes_left -= len(data)
        other = pair.sides[side]
        pair.waiting[other] += data
        self._write(pair, other)
        if pair.bytes_left == 0 and other in self._pairs:
            self._reset(pair)

    def _write(self, pair, side):
        waiting = pair.waiting[side]
        with contextlib.suppress(BlockingIOError):
            while waiting:
                del waiting[:side.send(waiting)]
        for each in pair.sides:
            self._watch(pair, each)

    def _watch(self, pair, side):
        """Who sends faster than the other side takes is not read meanwhile."""
        events = selectors.EVENT_READ if len(pair.waiting[pair.sides[side]]) < _MOST_WAITING else 0
        events |= selectors.EVENT_WRITE if pair.waiting[side] else 0
        watched = side in self._selector.get_map()
        if events and watched:
            self._selector.modify(side, events)
        elif events:
            self._selector.register(side, events)
        elif watched:
            self._selector.unregister(side)

    def _reset(self, pair):
        for side in pair.sides:
            if self._pairs.pop(side, None) is not None:
                if side in self._selector.get_map():
                    self._selector.unregister(side)
                with contextlib.suppress(OSError):
                    side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                side.close()
