"""A scripted AMQP 0-9-1 server, for what a real broker does not do on demand.

    with FakeBroker() as fake:
        fake.on_publish = lambda conn, message: held.append(message)   # and no confirm comes
        ...
        conn.ack(7, multiple=True)

Left alone it behaves: it takes every login, declares whatever it is asked,
confirms each message at once and keeps it in `published`.  A test puts
functions of its own in place of the on_... methods, and sends what it likes
through a Conn, from any thread.

May depend on: proxy.py (frames), processes.py, checks.py, wire.py, pika.
"""

import collections
import contextlib
import socket
import struct
import threading
import time

import pika.frame
import pika.spec as spec

import processes
import wire  # noqa: F401  (makes pika keep exact headers)
from checks import await_until
from proxy import FrameReader

# conn: the Conn it came on; at: time.monotonic() when its last frame had come.
Published = collections.namedtuple("Published", "conn channel tag id exchange routing_key properties body at")
# What a client said of a delivery: "basic.ack", "basic.reject", "basic.nack".
Settled = collections.namedtuple("Settled", "conn channel what tag requeue")

_PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
FRAME_END = b"\xce"


def frame(kind, channel, payload, end=FRAME_END, size=None):
    """The bytes of a frame; `size` and `end` may be made wrong."""
    return struct.pack(">BHI", kind, channel, len(payload) if size is None else size) + payload + end


def method_frame(channel, method):
    return pika.frame.Method(channel, method).marshal()


def content_header(channel, body_size, raw_properties, class_id=60):
    return frame(2, channel, struct.pack(">HHQ", class_id, 0, body_size) + raw_properties)


def raw_properties(message_id=None, raw_headers=None):
    """A property list of at most these two; the headers are bytes of the wire, without their length."""
    flags, encoded = 1 << 12, b"\x02"
    if raw_headers is not None:
        flags |= 1 << 13
        encoded = struct.pack(">I", len(raw_headers)) + raw_headers + encoded
    if message_id is not None:
        flags |= 1 << 7
        encoded += bytes([len(message_id)]) + message_id.encode()
    return struct.pack(">H", flags) + encoded


class Conn:
    """One connection, and everything that can be sent through it."""

    def __init__(self, fake, sock, number):
        self.fake = fake
        self.sock = sock
        self.number = number
        self.who = None  # "relay" or "scheduler"
        self.alive = True
        self.open_channels = set()
        self.consumers = {}       # channel -> (queue, consumer tag)
        self.frame_sizes = []     # of everything that came since the login
        self.heard_at = time.monotonic()
        self.heartbeats = 0
        self._tags = collections.Counter()
        self._deliveries = collections.Counter()
        self._publish = {}        # channel -> [method, properties, body so far]
        self._lock = threading.Lock()

    # -- sending ------------------------------------------------------------

    def raw(self, data):
        """Whatever bytes; a connection that is gone already is no error."""
        with self._lock, contextlib.suppress(OSError):
            self.sock.sendall(data)

    def method(self, channel, method):
        self.raw(method_frame(channel, method))

    def heartbeat(self):
        self.raw(frame(8, 0, b""))

    def start(self, mechanisms="PLAIN EXTERNAL"):
        capabilities = {"publisher_confirms": True, "basic.nack": True, "consumer_cancel_notify": True,
                        "connection.blocked": True, "authentication_failure_close": True}
        self.method(0, spec.Connection.Start(server_properties={
            "product": "Fake", "version": "0.1", "capabilities": capabilities}, mechanisms=mechanisms))

    def tune(self):
        self.method(0, spec.Connection.Tune(self.fake.channel_max, self.fake.frame_max, self.fake.heartbeat))

    def ack(self, tag, multiple=False, channel=1):
        self.method(channel, spec.Basic.Ack(tag, multiple))

    def nack(self, tag, multiple=False, channel=1):
        self.method(channel, spec.Basic.Nack(tag, multiple, False))

    def give_back(self, message, message_id=None, code=312, text="NO_ROUTE"):
        """basic.return of it, or of another id."""
        self.raw(method_frame(message.channel, spec.Basic.Return(code, text, message.exchange, message.routing_key))
                 + content_header(message.channel, len(message.body), raw_properties(message_id or message.id))
                 + (frame(3, message.channel, message.body) if message.body else b""))

    def deliver(self, raw_headers=b"", body=b"x", message_id="m", redelivered=False, properties=None, claimed=None):
        """To the consumer there is; its delivery tag.  `claimed`: the length that the header names."""
        channel, (queue, consumer) = next(iter(self.consumers.items()))
        self._deliveries[channel] += 1
        tag = self._deliveries[channel]
        size = len(body) if claimed is None else claimed
        data = method_frame(channel, spec.Basic.Deliver(consumer, tag, redelivered, "", queue))
        data += content_header(channel, size, properties or raw_properties(message_id, raw_headers))
        self.raw(data + (frame(3, channel, body) if body else b""))
        return tag

    def close_channel(self, channel, code, text):
        self.open_channels.discard(channel)
        self._publish.pop(channel, None)
        self.consumers.pop(channel, None)
        self.method(channel, spec.Channel.Close(code, text, 60, 40))

    def close(self, code=320, text="CONNECTION_FORCED - closed by the test"):
        self.method(0, spec.Connection.Close(code, text, 0, 0))

    def cut(self):
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)

    def reset(self):
        with contextlib.suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.end()

    def end(self):
        self.alive = False
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()

    # -- receiving ----------------------------------------------------------

    def serve(self):
        """Until the client or a test ends it."""
        reader = FrameReader(protocol_header=True)
        try:
            while data := self.sock.recv(65536):
                for one in reader.feed(data):
                    self.heard_at = time.monotonic()
                    self._frame(one)
        except (OSError, ValueError):
            pass
        finally:
            self.end()
            self.fake.forget(self)

    def _frame(self, one):
        if one.name == "protocol-header":
            self.fake.on_protocol_header(self)
            return
        self.frame_sizes.append(len(one.data))
        if one.name == "heartbeat":
            self.heartbeats += 1
            return
        _, decoded = pika.frame.decode_frame(one.data)
        if one.name == "header":
            self._header(one.channel, decoded)
        elif one.name == "body":
            self._body(one.channel, decoded.fragment)
        else:
            self._method(one.channel, decoded.method)

    def _method(self, channel, method):
        if isinstance(method, spec.Basic.Publish):
            if channel in self.open_channels:
                self._publish[channel] = [method, None, bytearray()]
        elif not self.fake.on_method(self, channel, method):
            self.answer(channel, method)

    def answer(self, channel, method):
        """As a broker would that has everything and refuses nothing."""
        if isinstance(method, spec.Connection.StartOk):
            name = method.client_properties.get("connection_name", "")
            self.who = "scheduler" if "scheduler" in name else "relay" if "relay" in name else None
            self.fake.on_login(self)
        elif isinstance(method, spec.Connection.Open):
            self.method(0, spec.Connection.OpenOk())
        elif isinstance(method, spec.Connection.Close):
            self.method(0, spec.Connection.CloseOk())
            self.cut()
        elif isinstance(method, spec.Channel.Open):
            self.open_channels.add(channel)
            self._tags[channel] = self._deliveries[channel] = 0
            self.method(channel, spec.Channel.OpenOk())
        elif isinstance(method, spec.Basic.Consume):
            self.consumers[channel] = (method.queue, method.consumer_tag)
            self.method(channel, spec.Basic.ConsumeOk(method.consumer_tag))
            self.fake.on_consume(self, channel)
        elif isinstance(method, spec.Queue.Declare):
            consumers = sum(queue == method.queue for queue, _ in self.consumers.values())
            self.method(channel, spec.Queue.DeclareOk(method.queue, 0, consumers))
        elif isinstance(method, (spec.Basic.Ack, spec.Basic.Reject, spec.Basic.Nack)):
            self.fake.settled.append(Settled(self, channel, method.NAME.lower(), method.delivery_tag,
                                             getattr(method, "requeue", None)))
        elif (plain := _PLAIN_ANSWERS.get(type(method))) is not None:
            self.method(channel, plain())

    def _header(self, channel, header):
        if channel not in self._publish:
            return
        self._publish[channel][1] = header
        if header.body_size == 0:
            self._published(channel)

    def _body(self, channel, fragment):
        if channel not in self._publish:
            return
        started = self._publish[channel]
        started[2] += fragment
        self.fake.on_body(self, channel, len(started[2]))
        if channel in self._publish and len(started[2]) >= started[1].body_size:
            self._published(channel)

    def _published(self, channel):
        method, header, body = self._publish.pop(channel)
        self._tags[channel] += 1
        message = Published(self, channel, self._tags[channel], header.properties.message_id, method.exchange,
                            method.routing_key, header.properties, bytes(body), time.monotonic())
        self.fake.published.append(message)
        self.fake.on_publish(self, message)


_PLAIN_ANSWERS = {
    spec.Channel.Close: spec.Channel.CloseOk,
    spec.Confirm.Select: spec.Confirm.SelectOk,
    spec.Exchange.Declare: spec.Exchange.DeclareOk,
    spec.Queue.Bind: spec.Queue.BindOk,
    spec.Basic.Qos: spec.Basic.QosOk,
}


class FakeBroker:
    """Listens on a free port of the loopback; use it as a context manager."""

    def __init__(self, frame_max=131072, channel_max=2047, heartbeat=0):
        self.frame_max = frame_max
        self.channel_max = channel_max
        self.heartbeat = heartbeat
        self._limits = (frame_max, channel_max, heartbeat)
        self.port = processes.free_ports(1)[0]
        self.accepted = 0
        self.conns = []
        self.published = []  # everything that came whole, also again
        self.settled = []
        self._listener = None
        self._lock = threading.Lock()

    def __enter__(self):
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=16)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        return self

    def __exit__(self, *_):
        # A listener in accept() is not woken by close().
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for conn in list(self.conns):
            conn.end()

    def _accept(self, listener):
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self.accepted += 1
                conn = Conn(self, sock, self.accepted)
                self.conns.append(conn)
            threading.Thread(target=conn.serve, daemon=True).start()

    def forget(self, conn):
        with self._lock, contextlib.suppress(ValueError):
            self.conns.remove(conn)

    def url(self):
        return f"amqp://guest@127.0.0.1:{self.port}/"

    def conn(self, who="relay", timeout=15):
        """The connection of relay or scheduler, as soon as it has opened a channel."""
        return await_until(lambda: next((c for c in list(self.conns) if c.who == who and c.open_channels), None),
                           timeout, f"a connection of the {who}")

    @property
    def ids(self):
        return [message.id for message in list(self.published)]

    def behave(self):
        """Everything as if no test had put anything in its place."""
        for name in [name for name in vars(self) if name.startswith("on_")]:
            delattr(self, name)
        self.frame_max, self.channel_max, self.heartbeat = self._limits

    def begin_again(self):
        """For the next test: it behaves, remembers nothing, and nobody is connected."""
        self.behave()
        for conn in list(self.conns):
            conn.reset()
        self.published.clear()
        self.settled.clear()

    # -- what a test may replace: set a function of the same arguments, without self -----

    def on_protocol_header(self, conn):
        conn.start()

    def on_login(self, conn):
        """After connection.start-ok."""
        conn.tune()

    def on_method(self, conn, channel, method):
        """True: dealt with, no answer is given."""
        return False

    def on_body(self, conn, channel, length):
        """After each body frame of a message that is not yet whole, or just now is."""

    def on_publish(self, conn, message):
        conn.ack(message.tag, channel=message.channel)

    def on_consume(self, conn, channel):
        """After basic.consume-ok."""
