"""A line that is cut, reset, stalled, half open or slow, at every step (G2, G4, G7).

Through a proxy to the real broker; what comes out of the queue is read by a client that is not ours.
"""

import itertools
import time

import pytest

from checks import await_until
from load import Load, holds_nothing, pending, worker_pid

# Where a line may break: direction, frame, the how many-th, and how much of it is through.
PLACES = [
    ("to_broker", "protocol-header", 1, 0.5),
    ("to_broker", "connection.start-ok", 1, 0.5),
    ("to_broker", "channel.open", 1, 1.0),
    ("to_broker", "basic.publish", 1, 0.0),
    ("to_broker", "basic.publish", 40, 0.3),
    ("to_broker", "header", 40, 0.6),
    ("to_broker", "body", 40, 0.5),
    ("to_broker", "body", 90, 1.0),
    ("to_worker", "connection.start", 1, 0.5),
    ("to_worker", "connection.tune", 1, 0.9),
    ("to_worker", "channel.open-ok", 1, 0.0),
    ("to_worker", "confirm.select-ok", 1, 0.5),
    ("to_worker", "basic.ack", 1, 0.0),
    ("to_worker", "basic.ack", 2, 0.5),
    ("to_worker", "basic.ack", 5, 1.0),
]


@pytest.mark.thin(3)
@pytest.mark.parametrize("place", PLACES, ids=lambda place: "{} {} {} at {}".format(*place))
@pytest.mark.parametrize("way", ["cut", "reset"])
def test_a_line_that_breaks(proxied, way, place):
    """0 lost, 0 invented, a window of copies at most, order kept within each key, nobody charged."""
    load, proxy, pid = Load(proxied), proxied.proxy, worker_pid(proxied)
    direction, frame, nth, part = place
    rule = proxy.rule(direction, frame, nth, part, way)
    if frame.startswith(("connection", "protocol", "channel", "confirm")):
        proxy.end_links()
    for _ in range(4):
        load.add(60)
    rule.wait()
    load.add(60)
    load.finish(proxied.queue, losses=2)
    assert worker_pid(proxied) == pid


def test_a_line_that_breaks_again_and_again(proxied, long_run):
    """At a random frame of either direction, many times under load."""
    load, proxy = Load(proxied), proxied.proxy
    places = itertools.cycle([("to_broker", 70, 0.5), ("to_worker", 7, 0.5), ("to_broker", 201, 0.9), ("to_worker", 3, 0.0)])
    rounds = 200 if long_run else 6
    for number in range(rounds):
        direction, nth, part = next(places)
        rule = proxy.rule(direction, None, nth, part, ("cut", "reset")[number // 4 % 2])
        while not rule.fired.is_set():
            load.add(50)
            # Keyed lanes go one message at a time: no more waits than goes in some seconds.
            await_until(lambda: rule.fired.is_set() or proxied.status()["pending"] < 2000, 60, "some of it has gone")
        proxy.rules.remove(rule)
    load.finish(proxied.queue, losses=rounds, timeout=120)


# -- half open, stalled ---------------------------------------------------------


HALF_OPEN = {"no confirm comes back": ["to_worker"], "nothing gets there": ["to_broker"],
             "neither": ["to_worker", "to_broker"]}


@pytest.mark.thin(3)
@pytest.mark.parametrize("what", HALF_OPEN)
def test_half_open_under_load(proxied, what):
    """Nobody says that the line is gone: acemq.confirm_timeout finds out, and until then nothing is held in the database."""
    load, proxy = Load(proxied), proxied.proxy
    load.add(20)
    load.await_empty()
    link, before = proxy.link(), proxy.accepted
    for direction in HALF_OPEN[what]:
        getattr(link, direction).swallow()
    ids = load.add(60)
    await_until(lambda: proxied.status()["in_flight"] > 0, what="they have been sent")
    await_until(lambda: holds_nothing(proxied), 5, "it holds nothing in the database")
    await_until(lambda: proxy.accepted > before, 10, "it connects again")
    load.finish(proxied.queue, losses=1)
    assert set(ids) <= load.ledger.committed and not link.alive


@pytest.mark.parametrize("direction", ["to_broker", "to_worker"])
def test_a_short_stall_costs_nothing(proxied, direction):
    """Nothing moves for a second, less than any timeout: the same connection goes on, and nothing is sent twice."""
    load, proxy = Load(proxied), proxied.proxy
    load.add(20)
    load.await_empty()
    link, before = proxy.link(), proxy.accepted
    pipe = getattr(link, direction)
    pipe.stall()
    load.add(80, body="x" * 200)
    await_until(lambda: proxied.status()["in_flight"] > 0, what="some are on their way")
    time.sleep(0.5)  # the length of the stall
    await_until(lambda: holds_nothing(proxied), 5, "it holds nothing in the database")
    pipe.resume()
    load.finish(proxied.queue)
    assert proxy.accepted == before and link.alive


def test_a_broker_that_stops_reading(proxied):
    """
    The socket is full, in the middle of a long body: the worker is stuck for
    acemq.io_timeout at most.  Meanwhile adding costs what it always does, no
    transaction is open, and DROP DATABASE of another database goes through.
    """
    load, proxy, cluster = Load(proxied), proxied.proxy, proxied.cluster
    load.add(5)
    load.await_empty()
    cluster.sql("CREATE DATABASE bystander TEMPLATE template0")
    link, before = proxy.link(), proxy.accepted
    proxy.rule("to_broker", "body", 1, 0.5, "stall")
    load.add(1, keys=0, body="x" * 9_000_000)
    await_until(lambda: link.to_broker._stalled, what="the long body is on its way")
    begun = time.monotonic()
    cluster.sql("DROP DATABASE bystander")
    dropped = time.monotonic() - begun
    begun = time.monotonic()
    load.add(1)
    added = time.monotonic() - begun
    assert holds_nothing(proxied)
    await_until(lambda: proxy.accepted > before, 10, "it has given the connection up")
    load.finish(proxied.queue, losses=1)
    print(f"DROP DATABASE {dropped:.2f} s, outbox_add {added * 1000:.1f} ms")
    assert dropped < 1 + 2  # acemq.io_timeout and what the statement takes on a busy machine


# -- slow -------------------------------------------------------------------------


def test_a_slow_line_is_no_stall(proxied):
    """
    10 MB that take three times acemq.io_timeout and several heartbeats: each
    frame has the timeout to itself, heartbeats go out in between, and the body
    is sent once.
    """
    load, proxy = Load(proxied), proxied.proxy
    link, before = proxy.link(), proxy.accepted
    link.to_broker.slow(bytes_per_second=3_500_000)
    load.add(1, keys=0, body="x" * 10_000_000)
    begun = time.monotonic()
    load.finish(proxied.queue)
    assert time.monotonic() - begun > 2
    assert proxy.accepted == before and link.alive


@pytest.mark.thin(2)
@pytest.mark.parametrize("direction", ["to_broker", "to_worker"])
def test_one_byte_at_a_time(proxied, direction):
    """Every frame arrives in as many pieces as it has bytes."""
    load, proxy = Load(proxied), proxied.proxy
    before = proxy.accepted
    getattr(proxy.link(), direction).slow(segment=1)
    load.add(20)
    load.finish(proxied.queue)
    assert proxy.accepted == before


def test_noise_on_the_line(proxied):
    """Bytes between two frames that neither side has sent."""
    load, proxy, pid = Load(proxied), proxied.proxy, worker_pid(proxied)
    for direction in ("to_worker", "to_broker"):
        load.add(20)
        load.await_empty()
        link = proxy.link()
        getattr(link, direction).inject(b"\x00\xffnoise" * 10)
        load.add(20)
        await_until(lambda: not link.alive, 15, "the connection is given up")
    load.finish(proxied.queue, losses=2)
    assert worker_pid(proxied) == pid


# -- the broker is short of memory --------------------------------------------------


def test_an_alarm_while_a_body_is_half_sent(proxied, broker):
    """A blocked broker does not read: the body stands still, nobody is charged, and all goes out afterwards."""
    load, proxy = Load(proxied), proxied.proxy
    load.add(1)
    load.await_empty()
    link = proxy.link()
    link.to_broker.slow(bytes_per_second=2_000_000)
    load.add(1, keys=0, body="x" * 6_000_000)
    await_until(lambda: link.seen("to_broker", "body") > 4, what="a part of it is through")
    with broker.memory_alarm():
        others = load.add(20)
        proxied.await_state("blocked", "disconnected", timeout=20)
        assert set(others) <= set(pending(proxied)) and max(pending(proxied).values()) == 0
        await_until(lambda: holds_nothing(proxied), 5, "it holds nothing in the database")
    link.to_broker.slow()
    load.finish(proxied.queue, losses=3)


# -- nobody there ---------------------------------------------------------------------


def test_a_port_that_closes_and_opens(proxied):
    """Asked again within a second, told of, and nobody is charged."""
    load, proxy = Load(proxied), proxied.proxy
    proxy.shut()
    proxy.end_links()
    proxied.await_state("disconnected")
    ids = load.add(100)
    await_until(lambda: "refused" in (proxied.status()["last_error"] or ""), what=lambda: proxied.status()["last_error"])
    assert pending(proxied) == dict.fromkeys(ids, 0)
    opened, before = time.monotonic(), proxy.accepted
    proxy.open()
    await_until(lambda: proxy.accepted > before, 5, "it has come again", interval=0.005)
    print(f"port open -> connected: {(time.monotonic() - opened) * 1000:.0f} ms")
    load.finish(proxied.queue)


def test_a_port_where_nobody_answers(proxied):
    """Taken, and never a byte: the attempt ends with acemq.connect_timeout, and they are seconds apart."""
    load, proxy = Load(proxied), proxied.proxy
    proxy.silent = True
    before = proxy.accepted
    proxy.end_links()
    await_until(lambda: "no progress within 1000 ms" in (proxied.status()["last_error"] or ""), 15,
                lambda: proxied.status()["last_error"])
    ids = load.add(10)
    assert pending(proxied) == dict.fromkeys(ids, 0) and proxy.accepted - before <= 2
    proxy.silent = False
    proxied.sql("SELECT acemq.outbox_sweep('30 s')")
    load.finish(proxied.queue)


@pytest.mark.parametrize("first", ["amqp://acemq@no-such-host.invalid:5672", "amqp://acemq@127.0.0.1:1"])
def test_the_next_of_the_list(make_database, broker, relay_settings, first):
    """A name that does not resolve, a port that is closed: the next URL gets its turn at once."""
    broker.ensure_running()
    vhost = broker.vhost()
    queue = vhost.declare("events", exchange="orders", binding="#")
    url = f"{first}/{vhost.name}, {vhost.url()}"
    with make_database({**relay_settings(vhost), "acemq.url": url}) as db:
        db.vhost = vhost
        load = Load(db)
        load.add(20)
        load.finish(queue)


def test_a_name_that_does_not_resolve(make_database):
    """Told of with its words; the worker stays responsive and nobody is charged."""
    with make_database({"acemq.url": "amqp://acemq@no-such-host.invalid:5672/"}) as db:
        load = Load(db)
        ids = load.add(10)
        await_until(lambda: "no-such-host.invalid" in (db.status()["last_error"] or ""), 20, lambda: db.status())
        assert pending(db) == dict.fromkeys(ids, 0)
        pid, begun = worker_pid(db), time.monotonic()
        db.sql("SELECT acemq.worker_restart()")
        await_until(lambda: worker_pid(db) != pid, 8, "the worker has left")
        print(f"left after {time.monotonic() - begun:.2f} s")
