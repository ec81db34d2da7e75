"""The broker client against a real broker: topology and consuming, by hand (driver/driver.c)."""

import contextlib
import os
import struct
import subprocess

import pika
import pika.exceptions
import pytest

import processes
from checks import await_until
from cluster import Cluster, fetch

_TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
_FRAME_MAX = 131072
CONSUME = "6"
TOPOLOGY = "7"
MAIN = "1"


def build_driver(directory):
    """The driver with the client's own files, as a library of its own."""
    def pg_config(what):
        command = [os.environ.get("PG_CONFIG", "pg_config"), what]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    amqp = os.path.join(_TOP, "src", "amqp")
    sources = [os.path.join(_TOP, "test", "broker", "driver", "driver.c"),
               os.path.join(_TOP, "src", "wire_fields.c"), os.path.join(_TOP, "src", "broker_url.c"),
               *(os.path.join(amqp, name) for name in sorted(os.listdir(amqp)) if name.endswith(".c"))]
    library = os.path.join(directory, "driver.so")
    subprocess.run([os.environ.get("CC", "gcc"), "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-fPIC", "-shared",
                    "-Wl,-Bsymbolic", "-I" + os.path.join(_TOP, "src"), "-isystem", pg_config("--includedir-server"),
                    "-o", library, *sources, "-lrabbitmq", "-lssl", "-lcrypto"], check=True)
    os.chmod(library, 0o755)
    return library


@pytest.fixture(scope="module")
def server():
    """A backend is all that the client needs: nothing is preloaded."""
    with Cluster(preload=None) as cluster:
        library = build_driver(processes.new_dir("driver"))
        cluster.sql(f"CREATE FUNCTION drive(VARIADIC text[]) RETURNS text AS '{library}', 'drive' LANGUAGE C")
        yield cluster


@pytest.fixture
def client(server, broker):
    broker.ensure_running()
    with contextlib.closing(server.connect()) as session:
        yield Client(session, broker.vhost())


class Client:
    """Calls of the client in one session, connected to a virtual host of its own."""

    def __init__(self, session, vhost):
        self.session = session
        self.vhost = vhost
        self.connect()

    def connect(self):
        """A new connection; the one before is closed, with what had been delivered on it."""
        url = self.vhost.url(password=self.vhost.broker.password)
        assert self("connect", url).startswith("RabbitMQ")

    def __call__(self, *words):
        ((text,),) = fetch(self.session, "SELECT drive(VARIADIC %s::text[])", ([str(word) for word in words],))
        return text

    def pump(self, count, timeout=10):
        """The next `count` events, or more if they came together; each as its words."""
        events = [line.split(" ", 5) for line in self("pump", count, timeout * 1000).splitlines()]
        assert len(events) >= count, events
        return events

    def consume(self, queue, prefetch=50, max_body=1_000_000, budget=8_000_000, *more):
        assert self("open", CONSUME) == "1"
        return self("consume", CONSUME, queue, prefetch, max_body, budget, *more)

    def nothing_comes(self, milliseconds=300):
        """Nothing can be awaited here: it must not come."""
        return self("pump", 1, milliseconds) == ""


class RawHeaders(pika.BasicProperties):
    """Properties of which the headers are given as the bytes of the wire, without the length."""

    def __init__(self, encoded):
        super().__init__(delivery_mode=2)
        self.encoded = encoded

    def encode(self):
        flags = self.FLAG_HEADERS | self.FLAG_DELIVERY_MODE
        return [struct.pack(">HI", flags, len(self.encoded)), self.encoded, b"\x02"]


def nested(kind, levels):
    """A header `n` of so many lists in each other."""
    name = b"\x00" if kind == b"F" else b""
    level = len(name) + 5
    lengths = [(levels - 1 - i) * level for i in range(levels)]
    return b"\x01n" + b"".join((name if i else b"") + kind + struct.pack(">I", length)
                               for i, length in enumerate(lengths))


def nested_to_the_limit(kind):
    """As deep as one frame of the broker's can hold."""
    level = 6 if kind == b"F" else 5
    room = _FRAME_MAX - 8 - 12 - 2 - 4 - 1 - 2
    return nested(kind, room // level)


def put(vhost, queue, body=b"x", properties=None):
    with vhost.channel() as channel:
        channel.confirm_delivery()
        channel.basic_publish("", queue, body, properties, mandatory=True)


# -- topology ------------------------------------------------------------------


def declare_ladder(client):
    assert client("open", TOPOLOGY) == "1"
    assert client("declare_exchange", TOPOLOGY, "acemq.schedule", "direct") == "done"
    assert client("declare_queue", TOPOLOGY, "acemq.schedule.due") == "done"
    assert client("declare_queue", TOPOLOGY, "acemq.schedule.1s", 1000, "acemq.schedule", "acemq.schedule.due") == "done"
    for queue in ("acemq.schedule.due", "acemq.schedule.1s"):
        assert client("bind", TOPOLOGY, queue, "acemq.schedule", queue) == "done"


def test_what_we_declare_is_what_others_declare(client):
    declare_ladder(client)
    arguments = {"x-message-ttl": 1000, "x-dead-letter-exchange": "acemq.schedule",
                 "x-dead-letter-routing-key": "acemq.schedule.due"}
    with client.vhost.channel() as channel:
        channel.exchange_declare("acemq.schedule", "direct", durable=True)
        channel.queue_declare("acemq.schedule.due", durable=True)
        channel.queue_declare("acemq.schedule.1s", durable=True, arguments=arguments)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker):
            channel.queue_declare("acemq.schedule.1s", durable=True, arguments={**arguments, "x-message-ttl": 2000})

    put(client.vhost, "acemq.schedule.1s", b"later")
    assert client.consume("acemq.schedule.due") == "done"
    state, count, *rest = client.pump(1)[0][2:]
    assert (state, rest) == ("whole", ["5", "-"]) and int(count) in (4, 7)  # x-death, x-first-death-*; from 4.0 x-last-death-*
    assert client("body", 0) == "later"


def test_a_denial_closes_the_channel_and_nothing_else(client):
    declare_ladder(client)
    put(client.vhost, "acemq.schedule.due")
    assert client.consume("acemq.schedule.due") == "done"

    denied = client("declare_queue", TOPOLOGY, "acemq.schedule.1s", 5000, "acemq.schedule", "acemq.schedule.due")
    assert denied.startswith("denied 406: 406 PRECONDITION_FAILED - ")
    assert client("is_open", TOPOLOGY) == "0"
    assert client("declare_exchange", TOPOLOGY, "other", "topic") == "blocked"
    assert client("lost") == "0 "

    # What was delivered meanwhile on the other channel is there, and no event tells of the denial.
    assert [event[0] for event in client.pump(1)] == ["delivery"]
    for call, code in ((("declare_exchange", TOPOLOGY, "acemq.schedule", "topic"), 406),
                       (("declare_exchange", TOPOLOGY, "amq.mine", "topic"), 403),
                       (("bind", TOPOLOGY, "missing", "acemq.schedule", "k"), 404),
                       (("inspect", TOPOLOGY, "missing"), 404)):
        assert client("open", TOPOLOGY) == "1"
        assert client(*call).startswith(f"denied {code}: {code} ")
    assert client("open", TOPOLOGY) == "1"
    assert client("declare_queue", TOPOLOGY, "q" * 256) == "denied 0: queue name is longer than 255 bytes"
    assert client("inspect", TOPOLOGY, "acemq.schedule.due") == "done 1 0"
    assert client("ack", 0) == "1"
    assert client.nothing_comes()


def test_inspect_counts(client):
    client.vhost.declare("q")
    for _ in range(3):
        put(client.vhost, "q")
    assert client("open", TOPOLOGY) == "1"
    assert client("inspect", TOPOLOGY, "q") == "done 0 3"


# -- consuming -----------------------------------------------------------------


def test_prefetch_ack_and_reject(client):
    client.vhost.declare("q")
    with client.vhost.channel() as channel:
        for i in range(60):
            channel.basic_publish("", "q", b"%d" % i)
    assert client.consume("q") == "done"
    assert len(client.pump(50)) == 50
    assert client.nothing_comes()
    for i in range(10):
        assert client("ack", i) == "1"
    assert len(client.pump(10)) == 10
    assert client("reject", 10, 0) == "1"
    assert client("reject", 11, 1) == "1"
    again = client.pump(1)
    assert client("body", again[0][1]) == "11"

    # An orderly end of the connection puts back what is not settled.
    client.connect()
    await_until(lambda: client.vhost.count("q") == 49, 10, "the broker has what was not settled")


def test_acks_of_an_earlier_channel_go_nowhere(client):
    client.vhost.declare("q")
    for _ in range(2):
        put(client.vhost, "q")
    assert client.consume("q") == "done"
    client.pump(2)
    assert client("ack", 0) == "1" and client("ack", 0) == "1"
    assert client.pump(1)[0][:3] == ["channel_closed", CONSUME, "406"]
    assert client("ack", 1) == "1"

    # On the new channel the same number is another delivery: the one that was left.
    assert client.consume("q") == "done"
    client.pump(1)
    assert client("ack", 0) == "1" and client("reject", 1, 0) == "1"
    for i in range(3):
        client("free", i)
    assert client.nothing_comes()
    assert client("lost") == "0 " and client("is_open", CONSUME) == "1"
    client.connect()
    await_until(lambda: client.vhost.count("q") == 1, 10, "nobody has settled the one that was left")


def test_bodies_of_every_length(client):
    client.vhost.declare("q")
    fragment = _FRAME_MAX - 8
    lengths = [0, 1, fragment - 1, fragment, fragment + 1, 2 * fragment, 999_999, 1_000_000, 1_000_001]
    for length in lengths:
        put(client.vhost, "q", os.urandom(length).hex()[:length].encode())
    assert client.consume("q") == "done"
    events = client.pump(len(lengths))
    assert [event[2] for event in events] == ["whole"] * 8 + ["too_long"]
    assert [int(event[4]) for event in events] == lengths[:8] + [0]

    assert client("open", MAIN) == "1"
    client.vhost.declare("copy")
    for i in range(8):
        assert client("publish", i, "copy") == "0"
        client.pump(1)
        assert client.vhost.get("copy").body.decode() == client("body", i)


def test_budget(client):
    client.vhost.declare("q")
    for _ in range(4):
        put(client.vhost, "q", b"b" * 400_000)
    assert client.consume("q", 50, 1_000_000, 900_000) == "done"
    assert [event[2] for event in client.pump(4)] == ["whole", "whole", "over_budget", "over_budget"]
    for i in range(4):
        client("free", i)
    assert client("reject", 2, 1) == "1"
    assert client.pump(1)[0][2] == "whole"

    # One alone is let in, however small the budget.
    client.vhost.declare("small")
    put(client.vhost, "small", b"b" * 400_000)
    client("free", 4)
    client.connect()
    assert client.consume("small", 50, 1_000_000, 1) == "done"
    assert client.pump(1)[0][2] == "whole"


def test_headers_keep_every_kind(client):
    """What comes in goes out as the same bytes, duplicates and order too, where the broker leaves them (from 4.0 it does not)."""
    fields = [b"b\x80", b"B\xff", b"s\x80\x00", b"u\xff\xff", b"I\x80\x00\x00\x00", b"i\xff\xff\xff\xff",
              b"l\x80" + bytes(7), b"f\x80\x00\x00\x01", b"d\x7f\xef" + b"\xff" * 6, b"t\x01", b"t\x00",
              b"S\x00\x00\x00\x03a\x00\xff", b"x\x00\x00\x00\x02\x00\xfe", b"S" + bytes(4), b"T\x00" + b"\xff" * 7,
              b"D\x02\x00\x00\x01\x00", b"V", b"A" + bytes(4), b"F" + bytes(4),
              b"F\x00\x00\x00\x09\x01kA\x00\x00\x00\x02VV"]
    entries = [b"\x01%c" % (ord("a") + i) + field for i, field in enumerate(fields)]
    encoded = b"".join(entries) + b"\x01aV" + b"\x00V"
    sorted_once = b"\x00V" + b"".join(entries)
    client.vhost.declare("q")
    client.vhost.declare("copy")
    put(client.vhost, "q", properties=RawHeaders(encoded))
    assert client.consume("q") == "done"
    state, count = client.pump(1)[0][2:4]
    assert client("open", MAIN) == "1"
    assert client("publish", 0, "copy") == "0"
    client.pump(1)
    before, after = captured_headers(client, ("q", "copy"))
    assert (state, int(count), before) in [("whole", len(entries) + 2, encoded), ("whole", len(entries) + 1, sorted_once)]
    assert after == before


def captured_headers(client, queues):
    """The header tables as they are on the wire."""
    found = []
    decode = pika.spec.BasicProperties.decode

    def spy(self, encoded, offset=0):
        flags = struct.unpack_from(">H", encoded, offset)[0]
        start = offset + 2
        if flags & self.FLAG_CONTENT_TYPE:
            start += 1 + encoded[start]
        length = struct.unpack_from(">I", encoded, start)[0]
        found.append(bytes(encoded[start + 4:start + 4 + length]))
        self.exact, self.kinds = {}, {}
        return self

    client("reject", 0, 1)
    client.connect()
    pika.spec.BasicProperties.decode = spy
    try:
        for queue in queues:
            client.vhost.get(queue)
    finally:
        pika.spec.BasicProperties.decode = decode
    return found


@pytest.mark.parametrize("kind", [b"F", b"A"])
def test_headers_nested_as_deep_as_a_frame_can_hold(client, kind):
    """Deeper than we read: it is delivered as such, costs no process its stack, and the next one is fine."""
    client.vhost.declare("q")
    put(client.vhost, "q", b"deep", RawHeaders(nested(kind, 33)))
    put(client.vhost, "q", b"shallow", RawHeaders(nested(kind, 32)))
    put(client.vhost, "q", b"deepest", RawHeaders(nested_to_the_limit(kind)))
    put(client.vhost, "q", b"none")

    # Not enough for the library to read the deepest, had the client not asked for more.
    client("limit_stack", 1, 0)
    client.connect()
    assert client("may_consume") == "yes"
    assert settle_all(client, "q") == {("unreadable", "0", "0"), ("whole", "1", "7"), ("whole", "0", "4")}
    assert client.vhost.count("q") == 0


def settle_all(client, queue):
    """Acknowledge what comes until nothing is left; the kinds of deliveries seen."""
    seen = set()
    for _ in range(3):
        outcome = client.consume(queue)
        while client("lost") == "0 ":
            events = client("pump", 1, 300).splitlines()
            if not events and not broker_has_any(client, queue):
                return seen
            settle(client, events, seen)
        # A library with a limit of its own loses the connection, and the second time the message is rejected.
        assert outcome in ("done", "lost") and library_has_a_limit(client)
        settle(client, client("pump", 100, 0).splitlines(), seen)
        client.connect()
    raise AssertionError("the connection was lost again and again")


def broker_has_any(client, queue):
    """Those on their way to us included: RabbitMQ 4 takes seconds to put such headers into a frame."""
    listed = client.vhost.broker.ctl("list_queues", "-p", client.vhost.name, "--no-table-headers", "name", "messages")
    return dict(line.split("\t") for line in listed.splitlines())[queue] != "0"


def settle(client, events, seen):
    for kind, number, *what in (event.split(" ", 5) for event in events):
        if kind == "delivery":
            seen.add(tuple(what[:3]))
            client("ack", number)
            client("free", number)


def library_has_a_limit(client):
    return int(client("library_version")) >= 0x000e0000


def test_nothing_is_consumed_where_the_stack_cannot_grow(client):
    for soft, hard, allowed in ((1, 0, True), (1, 8, True), (8, 8, True), (1, 7, library_has_a_limit(client))):
        client("limit_stack", soft, hard)
        client.connect()
        assert (client("may_consume") == "yes") == allowed
    if not allowed:
        assert client("may_consume").startswith("the stack of a process may not grow to 8 MB")


def test_the_queue_is_deleted(client):
    client.vhost.declare("q")
    put(client.vhost, "q")
    assert client.consume("q") == "done"
    client.pump(1)
    client.vhost.delete("q")
    assert client.pump(1) == [["cancelled", CONSUME, "0", ""]]
    assert client("ack", 0) == "1"

    # The same channel goes on with a new queue of that name.
    client.vhost.declare("q")
    put(client.vhost, "q")
    assert client("consume", CONSUME, "q", 50, 1000, 1_000_000) == "done"
    assert client.pump(1)[0][0] == "delivery"
    assert client("ack", 1) == "1"
    assert client.nothing_comes()
    assert client.vhost.count("q") == 0


def test_an_exclusive_consumer(client):
    client.vhost.declare("q")
    with client.vhost.channel() as channel:
        channel.basic_consume("q", lambda *_: None)
        assert client.consume("q", 50, 1000, 1000, "exclusive").startswith("denied 403: 403 ACCESS_REFUSED")
    assert client("lost") == "0 "


def test_a_broker_that_does_not_answer(client):
    client.vhost.declare("q")
    assert client("open", TOPOLOGY) == "1"
    client.vhost.broker.freeze()
    try:
        assert client("inspect", TOPOLOGY, "q").startswith("lost")
        assert client("lost") == "1 could not look at a queue: no progress within 5000 ms"
    finally:
        client.vhost.broker.thaw()
