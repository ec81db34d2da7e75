"""Bytes that no broker should send: they may cost the connection, never the process, a message or an attempt.

Against a scripted broker.
"""

import random
import struct

import pytest

from checks import await_until
from fake_broker import content_header, frame, method_frame, raw_properties, spec
from load import Load, worker_pid

HELD = 20


def held_messages(db, load):
    """So many in flight on the main channel, of a destination that is trusted."""
    held = []
    db.fake.on_publish = lambda conn, message: held.append(message)
    load.add(HELD, keys=0)
    await_until(lambda: len(held) == HELD, what="all are in flight")
    return held


@pytest.fixture
def load(shared_fake):
    shared_fake.fake.begin_again()
    shared_fake.fake.conn()
    made = Load(shared_fake)
    made.add(1, keys=0)
    made.await_empty()
    yield made
    shared_fake.fake.behave()
    shared_fake.sql("DELETE FROM acemq.outbox")


def nested(levels):
    """A header `n` of tables in each other."""
    return b"\x01n" + b"".join((b"\x00" if i else b"") + b"F" + struct.pack(">I", (levels - 1 - i) * 6)
                               for i in range(levels))


def returned(*rest, channel=1):
    return method_frame(channel, spec.Basic.Return(312, "NO_ROUTE", "orders", "k")) + b"".join(rest)


RANDOM = random.Random(20261130)

BYTES = {
    "another protocol": b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
    "our own protocol header": b"AMQP\x00\x00\x09\x01",
    "noise": RANDOM.randbytes(5000),
    "zeros": bytes(5000),
    "a frame of four gigabytes": frame(1, 1, b"", size=0xFFFFFFF0),
    "a frame of two gigabytes": frame(1, 1, b"x" * 100, size=0x7FFFFFFF),
    "a frame a little too long": frame(3, 1, b"x" * 131072),
    "a wrong frame end": frame(1, 1, struct.pack(">HHQB", 60, 80, 1, 0), end=b"\xcd"),
    "a frame of an unknown kind": frame(9, 1, b"x" * 20),
    "a method of no bytes": frame(1, 1, b""),
    "a method of three bytes": frame(1, 1, b"\x00\x3c\x00"),
    "an unknown class": frame(1, 1, struct.pack(">HH", 99, 10)),
    "an unknown method": frame(1, 1, struct.pack(">HH", 60, 999)),
    "a confirm without its tag": frame(1, 1, struct.pack(">HH", 60, 80)),
    "a confirm on a channel that is not open": method_frame(5, spec.Basic.Ack(1, True)),
    "a confirm on channel 0": method_frame(0, spec.Basic.Ack(0, True)),
    "a confirm on a channel that cannot be": method_frame(8, spec.Basic.Ack(0, True)),
    "channel 65535": method_frame(65535, spec.Basic.Ack(0, True)),
    "the end of a channel that is not open": method_frame(5, spec.Channel.Close(404, "NOT_FOUND", 60, 40)),
    "the end of channel 0": method_frame(0, spec.Channel.Close(404, "NOT_FOUND", 60, 40)),
    "a header without a method": content_header(1, 10, raw_properties("m")),
    "a body without a method": frame(3, 1, b"body"),
    "a return cut short by a confirm": returned(method_frame(1, spec.Basic.Ack(0, True))),
    "a return of another class": returned(content_header(1, 1, raw_properties("m"), class_id=99)),
    "a return with more than it said": returned(content_header(1, 1, raw_properties("m")), frame(3, 1, b"too much")),
    "a return of 2^63 bytes": returned(content_header(1, 2 ** 63, raw_properties("m")), frame(3, 1, b"x")),
    "a return without an id": returned(content_header(1, 0, raw_properties())),
    "a return with flags without end": returned(content_header(1, 0, b"\xff\xff" * 40)),
    "a return with headers longer than the frame": returned(content_header(1, 0, b"\x20\x00\x7f\xff\xff\xff\x01a")),
    "a return with an unknown kind of header": returned(content_header(1, 0, raw_properties("m", b"\x01a?"))),
    "a return with headers nested as deep as a frame holds": returned(
        content_header(1, 0, raw_properties("m", nested(21000)))),
    "a return of somebody else's": returned(content_header(1, 0, raw_properties("\u00e9" * 100))),
    "a delivery nobody asked for": method_frame(1, spec.Basic.Deliver("c", 1, False, "", "q")) + content_header(
        1, 0, raw_properties("m")),
    "the end of a consumer that is not there": method_frame(1, spec.Basic.Cancel("c", False)),
    "an answer nobody waits for": method_frame(1, spec.Channel.OpenOk()) + method_frame(1, spec.Confirm.SelectOk()),
    "a message nobody got": method_frame(1, spec.Basic.GetEmpty()),
    "another login": method_frame(0, spec.Connection.Start(server_properties={}, mechanisms="PLAIN")),
    "other limits": method_frame(0, spec.Connection.Tune(1, 4096, 1)),
    "a reason of wild bytes": frame(1, 0, struct.pack(">HH", 10, 60) + b"\xff" + b"\xfe\x00" * 127 + b"\xfe")
                              + method_frame(0, spec.Connection.Unblocked()),
    "unblocked without being blocked": method_frame(0, spec.Connection.Unblocked()) * 3,
    "flow off": method_frame(1, spec.Channel.Flow(False)),
    "ten thousand heartbeats": frame(8, 0, b"") * 10000,
    "a heartbeat on a channel": frame(8, 1, b""),
    "a heartbeat with something in it": frame(8, 0, b"x" * 100),
}


@pytest.mark.thin(2)
@pytest.mark.parametrize("what", BYTES)
def test_bytes_in_the_middle(shared_fake, load, what):
    """Among confirms that wait: whatever follows, all messages are confirmed in the end and nobody is charged."""
    db = shared_fake
    pid, mark = worker_pid(db), db.cluster.log_mark()
    held = held_messages(db, load)
    db.fake.behave()
    conn = held[0].conn
    conn.raw(BYTES[what])
    conn.raw(method_frame(1, spec.Basic.Ack(0, True)))
    # A frame that is not at its end keeps everything behind it back: no confirm can be expected then.
    conn.cut()
    load.await_empty()
    load.check(db.fake.ids, losses=1)
    load.check_uncharged()
    assert worker_pid(db) == pid
    said = db.cluster.log_since(mark)
    assert "ERROR:" not in said and "FATAL:" not in said


@pytest.mark.parametrize("position", ["before", "after"])
def test_noise_of_every_length(shared_fake, load, position, long_run):
    """Valid frames of which one byte is another, many times: the process outlives them all."""
    db = shared_fake
    pid = worker_pid(db)
    source = random.Random(position)
    valid = [method_frame(1, spec.Basic.Ack(1, True)), method_frame(1, spec.Channel.Close(404, "NOT_FOUND", 60, 40)),
             returned(content_header(1, 3, raw_properties("m", b"\x01aS\x00\x00\x00\x02hi\x01bF\x00\x00\x00\x00")),
                      frame(3, 1, b"abc")),
             method_frame(0, spec.Connection.Blocked("memory")), method_frame(0, spec.Connection.Close(320, "bye", 0, 0)),
             method_frame(1, spec.Basic.Cancel("c", False)), frame(8, 0, b"")]
    rounds = 2000 if long_run else 25
    for _ in range(rounds):
        conn = db.fake.conn()
        data = bytearray(b"".join(source.choices(valid, k=3)))
        data[source.randrange(len(data))] = source.randrange(256)
        cut = len(data) if position == "before" else source.randrange(len(data))
        conn.raw(bytes(data[:cut]))
        conn.cut()
        await_until(lambda: not conn.alive, 10, "the worker has hung up")
    db.sql("SELECT acemq.outbox_add('orders', 'k', '{}')")
    load.await_empty()
    assert worker_pid(db) == pid
