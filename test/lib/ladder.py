"""The ladder of rung queues as another member of the family sees it: declares it, puts messages onto it, byte by byte.

May depend on: rabbit.py, checks.py, wire.py, pika.
"""

import contextlib
import itertools
import struct
import time

import pika
import pika.exceptions
import pika.spec

import wire
from checks import await_until

EXCHANGE = "acemq.schedule"
DUE = "acemq.schedule.due"
RUNGS = {"acemq.schedule.1h": 3600000, "acemq.schedule.10m": 600000, "acemq.schedule.1m": 60000,
         "acemq.schedule.10s": 10000, "acemq.schedule.1s": 1000}

_ids = itertools.count(1)

_LAYOUTS = {b"b": ">b", b"B": ">B", b"s": ">h", b"u": ">H", b"I": ">i", b"i": ">I", b"l": ">q", b"L": ">Q", b"f": ">f",
            b"d": ">d", b"T": ">Q", b"t": ">?"}


def arguments_of(queue):
    """None for the control queue."""
    if queue not in RUNGS:
        return None
    return {"x-message-ttl": RUNGS[queue], "x-dead-letter-exchange": EXCHANGE, "x-dead-letter-routing-key": DUE}


def encoded(kind, value):
    """A field value in its bytes, with the kind in front.  Lists and tables are given encoded, without their length."""
    if kind == b"V":
        return kind
    if kind in (b"S", b"x", b"F", b"A"):
        value = value.encode() if isinstance(value, str) else value
        return kind + struct.pack(">I", len(value)) + value
    return kind + struct.pack(_LAYOUTS[kind], value)


def header(name, kind, value=None):
    name = name.encode()
    return bytes([len(name)]) + name + encoded(kind, value)


class Properties(pika.BasicProperties):
    """Properties of which the headers are given as the bytes of the wire, without the length."""

    def __init__(self, raw_headers=None, **more):
        super().__init__(**{"delivery_mode": 2, "content_type": "application/octet-stream", **more})
        self.raw_headers = raw_headers

    def encode(self):
        if self.raw_headers is None:
            return super().encode()
        pieces = list(pika.BasicProperties.encode(self))
        flags = struct.unpack(">H", pieces[0])[0] | self.FLAG_HEADERS
        # pika puts the length of the content type and its bytes first; the headers come next.
        rest = pieces[1:]
        first = rest[:2] if self.content_type is not None else []
        table = struct.pack(">I", len(self.raw_headers)) + self.raw_headers
        return [struct.pack(">H", flags), *first, table, *rest[len(first):]]


def in_ms(seconds):
    """Since 1970, so far from now."""
    return int((time.time() + seconds) * 1000)


def schedule_headers(exchange="orders", routing_key="order.due", due=None, content_type="text/plain", due_kind=b"l"):
    """The four of them; None leaves one out."""
    found = b""
    if exchange is not None:
        found += header("x-schedule-exchange", b"S", exchange)
    if routing_key is not None:
        found += header("x-schedule-routing-key", b"S", routing_key)
    if due is not None:
        found += header("x-schedule-due-at", due_kind, due)
    if content_type is not None:
        found += header("x-schedule-content-type", b"S", content_type)
    return found


def put(vhost, seconds=0, queue=DUE, body=b"x", message_id=None, more=b"", properties=None, **headers):
    """One message onto a rung, or (the default) straight into the control queue; its id."""
    return put_all(vhost, [dict(headers, seconds=seconds, body=body, message_id=message_id, more=more)], queue,
                   properties)[0]


def put_all(vhost, messages, queue=DUE, properties=None):
    """Many; they are in the queue when this returns."""
    ids = []
    with vhost.channel() as channel:
        for message in messages:
            message = dict(message)
            seconds = message.pop("seconds", 0)
            body = message.pop("body", b"x")
            message_id = message.pop("message_id", None) or f"scheduled-{next(_ids)}"
            more = message.pop("more", b"")
            raw = schedule_headers(**{"due": in_ms(seconds), **message}) + header("x-acemq-id", b"S", message_id) + more
            channel.basic_publish("", queue, body, Properties(raw, message_id=message_id, **(properties or {})),
                                  mandatory=True)
            ids.append(message_id)
        channel.queue_declare(queue, passive=True)  # answered after all that came before it on this channel
    return ids


def put_raw(vhost, raw_headers, body=b"x", **properties):
    """Whatever headers, into the control queue."""
    with vhost.channel() as channel:
        channel.confirm_delivery()
        channel.basic_publish("", DUE, body, Properties(raw_headers, **properties), mandatory=True)


@contextlib.contextmanager
def raw_headers_kept():
    """While it lasts, properties that arrive have `raw`: the bytes of each header, by name."""
    decode = pika.spec.BasicProperties.decode

    def decoded(self, received, offset=0):
        self.raw = _split(received, offset)
        return decode(self, received, offset)

    pika.spec.BasicProperties.decode = decoded
    try:
        yield
    finally:
        pika.spec.BasicProperties.decode = decode


def _split(received, offset):
    flags = struct.unpack_from(">H", received, offset)[0]
    offset += 2
    if flags & pika.BasicProperties.FLAG_CONTENT_TYPE:
        offset += 1 + received[offset]
    if not flags & pika.BasicProperties.FLAG_HEADERS:
        return {}
    end = offset + 4 + struct.unpack_from(">I", received, offset)[0]
    offset += 4
    found = {}
    while offset < end:
        after_name = offset + 1 + received[offset]
        name = received[offset + 1:after_name].decode()
        _, _, offset = wire._read_value(received, after_name)
        found[name] = bytes(received[after_name:offset])
    return found


def counters(db):
    """(hops, delivered, malformed)"""
    status = db.status()
    return tuple(status[f"ladder_{name}"] for name in ("hops", "delivered", "malformed"))


def _consumed_alone(vhost, stack):
    channel = stack.enter_context(vhost.channel())
    channel.queue_delete(DUE)
    channel.queue_declare(DUE, durable=True)
    channel.basic_consume(DUE, lambda *_: None, exclusive=True)
    return True


def consume_alone(vhost, stack):
    """
    Take the control queue from the scheduler, until the stack ends.  Deleting it
    ends the scheduler's consumer, which is back within seconds, sometimes before us.
    """
    await_until(lambda: _consumed_alone(vhost, stack), 60, "we are quicker than the scheduler",
                ignoring=(pika.exceptions.AMQPError,))


def await_consuming(db, timeout=30):
    return await_until(lambda: db.status()["scheduler"] == "consuming", timeout,
                       lambda: f"the control queue is consumed; status is {db.status()}")
