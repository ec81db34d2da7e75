"""What a broker may deliver to the scheduler that no client could have put there.

Against a scripted broker: it hands over bytes that a real one would never let
pass.  None of them costs the process; what cannot be read is rejected or loses
the connection, a second time it is rejected for good; what is good goes on.
"""

import random
import struct

import pytest

import ladder
from checks import await_until
from fake_broker import FakeBroker, content_header, frame, method_frame, raw_properties, spec
from load import worker_pid


@pytest.fixture(scope="module")
def scheduling(make_database):
    with FakeBroker() as fake, make_database({"acemq.url": fake.url(), "acemq.scheduler": "on"}) as database:
        database.fake = fake
        yield database


@pytest.fixture
def conn(scheduling):
    """The scheduler's connection, consuming."""
    scheduling.fake.behave()
    return consuming(scheduling)


def consuming(db):
    return await_until(lambda: next((c for c in list(db.fake.conns) if c.who == "scheduler" and c.consumers), None), 30,
                       "the control queue is consumed", interval=0.005)


def good_headers(name):
    return ladder.schedule_headers(due=ladder.in_ms(-1)) + ladder.header("x-acemq-id", b"S", name)


def passes_one_on(db, name):
    """A good message is published to its target and acknowledged, on whatever connection there is."""
    def sent():
        return any(message.id == name for message in list(db.fake.published))

    def delivered():
        conn = consuming(db)
        tag = conn.deliver(good_headers(name), message_id=name, redelivered=True)
        try:
            await_until(sent, 3)
        except AssertionError:
            return False
        return await_until(lambda: any(one.conn is conn and one.tag == tag and one.what == "basic.ack"
                                       for one in list(db.fake.settled)) or not conn.alive, 5)

    await_until(delivered, 40, "a good message goes on")


def table(*levels):
    """A header of so many tables in each other."""
    count = levels[0]
    return b"\x01n" + b"".join((b"\x00" if i else b"") + b"F" + struct.pack(">I", (count - 1 - i) * 6)
                               for i in range(count))


HEADERS = {
    "none": b"",
    "an unknown kind": b"\x01a?",
    "a name longer than the table": b"\xffa",
    "a string longer than the table": b"\x01aS\x7f\xff\xff\xffabc",
    "a table longer than the table": b"\x01aF\xff\xff\xff\xff",
    "an array longer than the table": b"\x01aA\x00\x00\x10\x00\x01",
    "names of no length": b"\x00V" * 1000,
    "one name a thousand times": ladder.header("x-schedule-due-at", b"l", 1) * 1000,
    "names that are no UTF-8": b"\x03\xff\xfe\x00S\x00\x00\x00\x02\xc3\x28",
    "tables thirty levels deep": table(30),
    "tables as deep as a frame holds": table(21000),
    "a time that is no number": ladder.schedule_headers(due=float("nan"), due_kind=b"d"),
    "a time beyond all times": ladder.schedule_headers(due=2 ** 63 - 1),
    "a time before all times": ladder.schedule_headers(due=-2 ** 63),
    "an exchange of 300 bytes": ladder.schedule_headers("e" * 300, due=0),
    "a key with a zero byte": ladder.schedule_headers(routing_key="a\0b", due=ladder.in_ms(-1)),
    "a key that is a table": ladder.header("x-schedule-exchange", b"F", b"") + ladder.header("x-schedule-routing-key", b"V"),
}
FRAMES = {
    "a body longer than it said": lambda conn: conn.deliver(good_headers("m"), body=b"x" * 100, claimed=10),
    "a body of 2^63 bytes": lambda conn: conn.deliver(good_headers("m"), claimed=2 ** 63),
    "a body of four gigabytes that ends": lambda conn: (conn.deliver(good_headers("m"), claimed=2 ** 32), conn.cut()),
    "a body that never comes": lambda conn: (conn.deliver(good_headers("m"), b"", claimed=10),
                                             conn.method(6, spec.Basic.Ack(0, True))),
    "another class": lambda conn: conn.raw(
        method_frame(6, spec.Basic.Deliver(conn.consumers[6][1], 1, False, "", "q"))
        + content_header(6, 0, raw_properties("m"), class_id=20)),
    "a tag of 2^64 - 1": lambda conn: conn.raw(
        method_frame(6, spec.Basic.Deliver(conn.consumers[6][1], 2 ** 64 - 1, False, "", "q"))
        + content_header(6, 0, raw_properties("m"))),
    "one tag twice": lambda conn: [conn.raw(
        method_frame(6, spec.Basic.Deliver(conn.consumers[6][1], 1, False, "", "q"))
        + content_header(6, 1, raw_properties("twice", good_headers("twice"))) + frame(3, 6, b"x")) for _ in range(2)],
    "for another consumer": lambda conn: conn.raw(
        method_frame(6, spec.Basic.Deliver("not mine", 1, False, "", "q")) + content_header(6, 0, raw_properties("m"))),
    "on the channel of the publishes": lambda conn: conn.raw(
        method_frame(1, spec.Basic.Deliver("c", 1, False, "", "q")) + content_header(1, 0, raw_properties("m"))),
    "two in each other": lambda conn: conn.raw(
        method_frame(6, spec.Basic.Deliver(conn.consumers[6][1], 1, False, "", "q")) * 2),
    "the consumer is cancelled": lambda conn: (conn.method(6, spec.Basic.Cancel(conn.consumers[6][1], False)),
                                               conn.consumers.clear()),
    "the channel is closed": lambda conn: conn.close_channel(6, 406, "PRECONDITION_FAILED - unknown delivery tag 7"),
    "three hundred more than it asked for": lambda conn: [conn.deliver(b"", message_id="m") for _ in range(300)],
}


@pytest.mark.thin(5)
@pytest.mark.parametrize("redelivered", [False, True])
@pytest.mark.parametrize("what", HEADERS)
def test_headers(scheduling, conn, what, redelivered):
    """Settled, or lost with the connection; the second time, if its tag could be read, not handed back again."""
    pid = worker_pid(scheduling)
    tag = conn.deliver(HEADERS[what], redelivered=redelivered)
    await_until(lambda: not conn.alive or any(one.conn is conn and one.tag == tag
                                              for one in list(scheduling.fake.settled)), 10, "it is settled, or lost")
    passes_one_on(scheduling, f"{what} {redelivered}")
    assert worker_pid(scheduling) == pid
    assert not any(one.conn is conn and one.tag == tag and one.requeue for one in list(scheduling.fake.settled))


@pytest.mark.thin(3)
@pytest.mark.parametrize("what", FRAMES)
def test_frames(scheduling, conn, what):
    pid, mark = worker_pid(scheduling), scheduling.cluster.log_mark()
    FRAMES[what](conn)
    passes_one_on(scheduling, what)
    assert worker_pid(scheduling) == pid
    said = scheduling.cluster.log_since(mark)
    assert "ERROR:" not in said and "FATAL:" not in said


def test_headers_at_random(scheduling, conn, long_run):
    """Good ones of which a few bytes are others: rejected or passed on, never the end of the process."""
    pid, source = worker_pid(scheduling), random.Random(20261130)
    for number in range(5000 if long_run else 60):
        headers = bytearray(good_headers(f"random-{number}") + ladder.header("list", b"A", b"S\0\0\0\1xtV"))
        for _ in range(source.randrange(1, 4)):
            headers[source.randrange(len(headers))] = source.randrange(256)
        consuming(scheduling).deliver(bytes(headers), redelivered=bool(number % 2))
    passes_one_on(scheduling, "after them")
    assert worker_pid(scheduling) == pid
