"""A worker that dies at every step between reading a row and deleting it, and between taking a scheduled message and acknowledging it.

By SIGKILL, which the server takes for a crash and restarts everything, or by an
ERROR, which ends the worker alone.  0 lost, 0 invented, at most a window of
copies, order kept within each key.
"""

import collections
import contextlib
import itertools

import psycopg2
import pytest

import ladder
from checks import await_until
from conftest import SETTINGS
from kill_build import KillableCluster, names
from load import Load, pending
from proxy import Proxy

PREFETCH = 50  # of the scheduler: the bound on its copies

# How a point is reached other than by messages that go out.
NEEDS_A_FAILURE = {"relay_failed", "relay_failure_written", "relay_failure_committed"}
RELAY_POINTS = [name for name in names() if name.startswith("relay_")]
SCHEDULER_POINTS = [name for name in names() if name.startswith("scheduler_")]
# In the middle of a window too.
LATER = ["relay_publishing:30", "relay_published:30", "relay_confirmed:30"]

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def killable():
    with KillableCluster() as server:
        yield server


@pytest.fixture(scope="module")
def make_killable(killable, broker):
    """A context manager of a database of that server, relaying through a proxy."""

    @contextlib.contextmanager
    def make():
        broker.ensure_running()
        vhost = broker.vhost()
        secret = killable.secret_file("broker-password", broker.password + "\n")
        with Proxy(broker.port) as proxy:
            settings = {**SETTINGS, "acemq.url": vhost.url(port=proxy.port), "acemq.password_file": secret}
            del settings["acemq.scheduler"]
            with killable.database(f"killed{next(_numbers)}", settings) as database:
                database.vhost, database.proxy = vhost, proxy
                yield database

    return make


@pytest.fixture(scope="module")
def shared(make_killable):
    """For what restarts everything anyway."""
    with make_killable() as database:
        yield database


@pytest.fixture
def database(request, make_killable, shared):
    """For an error: a fresh one, since a worker that ends in error often is started again less and less soon."""
    with contextlib.ExitStack() as opened:
        if request.getfixturevalue("way") == "kill":
            yield shared
        else:
            yield opened.enter_context(make_killable())


def await_death(db, point, way):
    """It has died there, and the server takes connections again."""
    server = db.cluster
    await_until(server.reached, 20, f"a worker comes to {point}")
    if way == "kill":
        await_until(lambda: "all server processes terminated" in server.log_since(server.mark), 20, "the server restarts")
    await_until(lambda: server.sql("SELECT 1"), 30, "the server takes connections", ignoring=(psycopg2.OperationalError,))
    server.disarm()
    db.close()
    said = server.log_since(server.mark)
    assert f"kill point {point.partition(':')[0]}" in said
    assert said.count("terminated by signal 9") == (1 if way == "kill" else 0)


def arm(db, point, way):
    db.cluster.mark = db.cluster.log_mark()
    db.cluster.arm(point if way == "kill" else f"{point}{'' if ':' in point else ':1'}:error")


@contextlib.contextmanager
def held_back(db):
    """What is added meanwhile goes out afterwards: nobody is in the middle of a transaction when the worker dies."""
    db.sql("SELECT acemq.relay_pause()")
    db.await_state("paused")
    yield
    with contextlib.suppress(psycopg2.OperationalError):  # the answer may be lost, its commit is not
        db.sql("SELECT acemq.relay_resume()")


def add_failing(db, exchange):
    return db.value("SELECT acemq.outbox_add(%s, 'k', '{}', ordering_key => 'failing')", (exchange,))


@pytest.mark.thin(5)
@pytest.mark.parametrize("way", ["kill", "error"])
@pytest.mark.parametrize("point", RELAY_POINTS + LATER)
def test_the_relay_dies(database, point, way):
    db, exchange = database, f"orders{next(_numbers)}"
    queue = db.vhost.declare(f"events-{exchange}", exchange=exchange, binding="#")
    load = Load(db, exchange)
    failing = None
    with held_back(db):
        load.add(200)
        if point in NEEDS_A_FAILURE:
            db.vhost.declare_exchange(f"lonely-{exchange}")
            failing = add_failing(db, f"lonely-{exchange}")
        elif point == "relay_channel_closed":
            failing = add_failing(db, f"lonely-{exchange}")
        if point == "relay_lost":
            db.proxy.rule("to_worker", "basic.ack", 3, 0.0, "reset")
        arm(db, point, way)
    await_death(db, point, way)
    if way == "kill":
        load.failed_before = 0  # counters begin with the server
    check_relay(db, load, queue, failing, f"lonely-{exchange}")


def check_relay(db, load, queue, failing, lonely):
    """All of them are out, the one that cannot be is left with its attempts, and goes when it can."""
    with db.vhost.collect(queue) as collector:
        await_until(lambda: load.ledger.committed <= set(collector.ids), 30,
                    lambda: f"{len(set(collector.ids))} of {len(load.numbers)} came; {db.status()}")
        await_until(lambda: set(pending(db)) == ({failing} if failing else set()), 15, lambda: pending(db))
        await_until(lambda: db.vhost.count(queue) == 0, 10, "the queue is empty")
    load.check(collector.ids, losses=1)
    if failing is None:
        load.check_uncharged()
        return
    await_until(lambda: pending(db)[failing] >= 2, 15, "it is tried again")
    late = db.vhost.declare(f"late-{lonely}", exchange=lonely, binding="#")
    assert db.vhost.get(late, 15).properties.message_id == failing
    load.await_empty()


@pytest.mark.thin(5)
@pytest.mark.parametrize("way", ["kill", "error"])
@pytest.mark.parametrize("point", SCHEDULER_POINTS)
def test_the_scheduler_dies(database, point, way):
    """Messages that are due, one that goes around first, one that nobody takes and one that cannot be read."""
    db, exchange = database, f"due{next(_numbers)}"
    queue = db.vhost.declare(f"events-{exchange}", exchange=exchange, binding="order.#")
    ladder.await_consuming(db)
    db.cluster.configure(acemq__scheduler="off")
    try:
        await_until(lambda: db.status()["scheduler"] == "off", what="nobody consumes")
        messages = [{"exchange": exchange, "message_id": f"{exchange}-{n}", "seconds": 0} for n in range(60)]
        messages.insert(20, {"exchange": exchange, "message_id": f"{exchange}-hop", "seconds": 1.5})
        ladder.put_raw(db.vhost, ladder.header("not a schedule", b"S", "x"))
        if point == "scheduler_returned":
            ladder.put(db.vhost, exchange=exchange, routing_key="nobody", message_id=f"{exchange}-returned")
        ids = ladder.put_all(db.vhost, messages)
        arm(db, point, way)
    finally:
        db.cluster.configure(acemq__scheduler=None)
    await_death(db, point, way)
    with db.vhost.collect(queue) as collector:
        await_until(lambda: set(ids) <= set(collector.ids), 30, lambda: f"{len(set(collector.ids))} of {len(ids)}")
        await_until(lambda: db.vhost.count(ladder.DUE) == 0, 15, "the control queue is empty")
        await_until(lambda: db.vhost.count(queue) == 0, 10, "the queue is empty")
    copies = collections.Counter(collector.ids)
    assert set(copies) == set(ids)
    assert sum(copies.values()) - len(ids) <= PREFETCH
    # Dropped once or, if the worker died before the broker heard of it, twice.
    assert db.status()["ladder_malformed"] >= (1 if point == "scheduler_malformed" else 0)
