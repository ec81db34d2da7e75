"""A TCP proxy between the worker and the broker that misbehaves when it is told to.

    with Proxy(broker.port) as proxy:
        rule = proxy.rule("to_broker", "basic.publish", nth=5, part=0.5, action="reset")
        ...
        proxy.link("relay").to_worker.swallow()

It knows frames: what comes in is passed on frame by frame, and a rule acts
before, in the middle of, or behind one.  Each connection (Link) has two
directions (Pipe).  One thread does it all; commands take its lock.

May depend on: processes.py, checks.py, pika (names of methods).
"""

import collections
import contextlib
import select
import socket
import struct
import threading
import time

import pika.spec

import processes
from checks import await_until

_METHOD, _HEADER, _BODY, _HEARTBEAT = 1, 2, 3, 8
_KINDS = {_HEADER: "header", _BODY: "body", _HEARTBEAT: "heartbeat"}
_OVERHEAD = 8               # of a frame: type, channel, size; end
_PENDING = 256 * 1024       # so much is read ahead of the other side
_KERNEL_BUFFER = 64 * 1024  # small, so that a stall is felt soon


def method_name(class_id, method_id):
    """As in "basic.publish", "channel.open-ok"."""
    known = pika.spec.methods.get(class_id << 16 | method_id)
    if known is None:
        return f"{class_id}.{method_id}"
    group, _, name = known.NAME.partition(".")
    dashed = "".join("-" + letter.lower() if letter.isupper() else letter for letter in name).lstrip("-")
    return f"{group.lower()}.{dashed}"


Frame = collections.namedtuple("Frame", "name channel data")


class FrameReader:
    """Bytes in, whole frames out."""

    def __init__(self, protocol_header):
        self._bytes = bytearray()
        self._wants_protocol_header = protocol_header

    def feed(self, data):
        self._bytes += data
        while (frame := self._next()) is not None:
            yield frame

    def _next(self):
        if self._wants_protocol_header:
            if len(self._bytes) < 8:
                return None
            self._wants_protocol_header = False
            return Frame("protocol-header", 0, self._take(8))
        if len(self._bytes) < _OVERHEAD:
            return None
        kind, channel, size = struct.unpack_from(">BHI", self._bytes)
        if len(self._bytes) < size + _OVERHEAD:
            return None
        data = self._take(size + _OVERHEAD)
        name = _KINDS.get(kind) or method_name(*struct.unpack_from(">HH", data, 7))
        return Frame(name, channel, data)

    def _take(self, count):
        taken = bytes(self._bytes[:count])
        del self._bytes[:count]
        return taken


class Rule:
    """What happens at the n-th frame of a kind, and `fired` when it has."""

    def __init__(self, direction, frame, nth, part, action, who, channel):
        self.direction = direction
        self.frame = frame
        self.nth = nth
        self.part = part
        self.action = action
        self.who = who
        self.channel = channel
        self.seen = 0
        self.fired = threading.Event()

    def hits(self, pipe, frame):
        """Is this frame the one?"""
        if self.fired.is_set() or pipe.direction != self.direction:
            return False
        if self.frame not in (None, frame.name) or self.channel not in (None, frame.channel):
            return False
        if self.who not in (None, pipe.link.who):
            return False
        self.seen += 1
        return self.seen == self.nth

    def wait(self, timeout=15):
        assert self.fired.wait(timeout), f"no {self.nth}. {self.frame or 'frame'} {self.direction} in {timeout} s"


class Pipe:
    """One direction of a connection."""

    def __init__(self, link, direction, source, sink):
        self.link = link
        self.direction = direction
        self.source = source
        self.sink = sink
        self.passed = 0
        self._reader = FrameReader(direction == "to_broker")
        self._pending = collections.deque()  # bytes, and what is to be done between them
        self._pending_bytes = 0
        self._stalled = False
        self._swallowing = False
        self._rate = None
        self._segment = None
        self._next_send = 0.0
        self._ended = False

    # -- commands -----------------------------------------------------------

    def stall(self):
        """Nothing is read any more, as from somebody who hangs."""
        with self.link.proxy.command():
            self._stalled = True

    def resume(self):
        with self.link.proxy.command():
            self._stalled = False

    def swallow(self, on=True):
        """Everything is read and nothing passed on: half of the connection is gone, and nobody says so."""
        with self.link.proxy.command():
            self._swallowing = on

    def slow(self, bytes_per_second=None, segment=None):
        """At most so fast, and at most so many bytes at a time; without arguments as before."""
        with self.link.proxy.command():
            self._rate, self._segment = bytes_per_second, segment

    def inject(self, data):
        """Bytes that the other side did not send, between two frames."""
        with self.link.proxy.command():
            self._put(data)

    # -- for the proxy's thread ---------------------------------------------

    def wants_read(self):
        return not self._ended and not self._stalled and self._pending_bytes < _PENDING

    def wants_write(self):
        return bool(self._pending) and not self._stalled

    def wait(self, now):
        """Seconds until something may be sent."""
        return max(self._next_send - now, 0.0)

    def read(self):
        try:
            data = self.source.recv(65536)
        except BlockingIOError:
            return
        if not data:
            self._ended = True
            # A worker that is cut off does not hear of the broker's end either.
            if self.direction == "to_broker" or not self._swallowing:
                self._put(self.link._end)
        elif not self._swallowing:
            for frame in self._reader.feed(data):
                self._take(frame)

    def _take(self, frame):
        self.link.note(self, frame)
        for rule in self.link.proxy.rules:
            if rule.hits(self, frame):
                cut = round(len(frame.data) * rule.part)
                self._put(frame.data[:cut])
                self._put(lambda: self.link.act(self, rule))
                self._put(frame.data[cut:])
                return
        self._put(frame.data)

    def _put(self, item):
        if item == b"":
            return
        self._pending.append(item)
        if not callable(item):
            self._pending_bytes += len(item)

    def write(self, now):
        """As much as goes out at once; whatever is to be done on the way."""
        while self._pending and self._next_send <= now and self.link.alive:
            item = self._pending[0]
            if callable(item):
                self._pending.popleft()
                item()
                continue
            if self._swallowing:
                self._drop(len(item))
                continue
            most = self._segment or len(item)
            if self._rate is not None:
                most = min(most, max(int(self._rate / 50), 1))
            try:
                sent = self.sink.send(item[:most])
            except BlockingIOError:
                return
            self.passed += sent
            self._drop(sent)
            if self._rate is not None:
                self._next_send = now + sent / self._rate
            if self._segment is not None:
                return  # the next segment with the next turn

    def _drop(self, count):
        item = self._pending.popleft()
        self._pending_bytes -= count
        if count < len(item):
            self._pending.appendleft(item[count:])


class Link:
    """A connection of the worker, and ours to the broker for it."""

    def __init__(self, proxy, worker, broker):
        self.proxy = proxy
        self.worker = worker
        self.broker = broker
        self.who = None  # "relay" or "scheduler", once it has said so
        self.alive = True
        self.frames = collections.Counter()  # by direction and name
        self.to_broker = Pipe(self, "to_broker", worker, broker)
        self.to_worker = Pipe(self, "to_worker", broker, worker)
        self.pipes = (self.to_broker, self.to_worker)

    def seen(self, direction, name):
        return self.frames[direction, name]

    def cut(self):
        """An orderly end of both sides, in the middle of whatever it is."""
        with self.proxy.command():
            self._end()

    def reset(self):
        """Both sides get a RST."""
        with self.proxy.command():
            self._reset()

    # -- for the proxy's thread ---------------------------------------------

    def note(self, pipe, frame):
        self.frames[pipe.direction, frame.name] += 1
        if frame.name == "connection.start-ok":
            self.who = next((who for who in ("relay", "scheduler") if b"acemq " + who.encode() in frame.data), None)

    def act(self, pipe, rule):
        if rule.action == "cut":
            self._end()
        elif rule.action == "reset":
            self._reset()
        elif rule.action == "stall":
            pipe._stalled = True
        elif rule.action == "swallow":
            pipe._swallowing = True
        elif isinstance(rule.action, bytes):
            pipe._pending.appendleft(rule.action)
            pipe._pending_bytes += len(rule.action)
        else:
            rule.action(self)
        rule.fired.set()

    def _end(self):
        """Our halves are closed; a socket with unread bytes would send a RST, so these are read still."""
        for pipe in self.pipes:
            pipe._pending.clear()
            pipe._pending_bytes = 0
            pipe._swallowing = True
            pipe._stalled = False
            with contextlib.suppress(OSError):
                pipe.sink.shutdown(socket.SHUT_WR)
        if all(pipe._ended for pipe in self.pipes):
            self.close()

    def _reset(self):
        for end in (self.worker, self.broker):
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self):
        self.alive = False
        self.worker.close()
        self.broker.close()


class Proxy:
    """A port of the loopback that leads to the broker; use it as a context manager."""

    def __init__(self, target_port):
        self.target_port = target_port
        self.port = None
        self.links = []   # those that are alive
        self.accepted = 0
        self.silent = False  # connections are taken, and nothing is ever passed on
        self.rules = []
        self._lock = threading.RLock()
        self._listener = None
        self._stopping = False
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self.open()
        self._thread.start()
        return self

    def __exit__(self, *_):
        with self.command():
            self._stopping = True
        self._thread.join(10)
        self.shut()
        for link in self.links:
            link.close()

    @contextlib.contextmanager
    def command(self):
        with self._lock:
            yield
        self._wake_writer.send(b"x")

    # -- commands -----------------------------------------------------------

    def open(self):
        """Listen, on the same port as before if there was one."""
        with self.command():
            if self._listener is None:
                self.port = self.port or processes.free_ports(1)[0]
                self._listener = socket.socket()
                self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self._listener.bind(("127.0.0.1", self.port))
                self._listener.listen(16)
                self._listener.setblocking(False)

    def shut(self):
        """The port is closed; connections go on."""
        with self.command():
            if self._listener is not None:
                self._listener.close()
                self._listener = None

    def rule(self, direction, frame=None, nth=1, part=0.0, action="cut", who=None, channel=None):
        """At the n-th such frame, counted over all connections, once: act when `part` (0 to 1) of it is through."""
        made = Rule(direction, frame, nth, part, action, who, channel)
        with self.command():
            self.rules.append(made)
        return made

    def begin_again(self):
        """For the next test: no rules, an open port, and nobody is connected."""
        with self.command():
            self.rules.clear()
            self.silent = False
        self.end_links()
        self.open()

    def link(self, who="relay", timeout=15):
        """The connection of relay or scheduler, as soon as there is one."""
        def found():
            with self._lock:
                return next((link for link in self.links if link.who == who), None)

        return await_until(found, timeout, f"a connection of the {who}")

    def end_links(self):
        with self.command():
            for link in list(self.links):
                link._reset()

    # -- the thread ---------------------------------------------------------

    def _run(self):
        while not self._stopping:
            now = time.monotonic()
            with self._lock:
                pipes = [pipe for link in self.links for pipe in link.pipes]
                readers = {pipe.source: pipe for pipe in pipes if pipe.wants_read()}
                waiting = [pipe for pipe in pipes if pipe.wants_write()]
                writers = {pipe.sink: pipe for pipe in waiting if pipe.wait(now) == 0}
                timeout = min([1.0] + [pipe.wait(now) for pipe in waiting if pipe.wait(now) > 0])
                extra = [self._wake_reader] + ([self._listener] if self._listener is not None else [])
            try:
                readable, writable, _ = select.select([*readers, *extra], [*writers], [], timeout)
            except (OSError, ValueError):
                readable, writable = [], []  # one was closed by a command meanwhile
            with self._lock:
                self._turn(readable, writable, readers, writers)

    def _turn(self, readable, writable, readers, writers):
        if self._wake_reader in readable:
            self._wake_reader.recv(65536)
        if self._listener is not None and self._listener in readable:
            self._accept()
        for sockets, pipes, work in ((readable, readers, Pipe.read),
                                     (writable, writers, lambda pipe: pipe.write(time.monotonic()))):
            for one in sockets:
                pipe = pipes.get(one)
                if pipe is None or not pipe.link.alive:
                    continue
                try:
                    work(pipe)
                except OSError:
                    pipe.link._reset()
        for link in self.links:
            if link.alive and all(pipe._ended and not pipe._pending for pipe in link.pipes):
                link.close()
        self.links[:] = [link for link in self.links if link.alive]

    def _accept(self):
        try:
            worker, _ = self._listener.accept()
        except OSError:
            return
        self.accepted += 1
        broker = socket.socket()
        for end in (worker, broker):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _KERNEL_BUFFER)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            broker.connect(("127.0.0.1", self.target_port))
        except OSError:
            worker.close()
            broker.close()
            return
        worker.setblocking(False)
        broker.setblocking(False)
        link = Link(self, worker, broker)
        if self.silent:
            for pipe in link.pipes:
                pipe._swallowing = True
        self.links.append(link)
