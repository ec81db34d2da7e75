"""G7: whatever the broker, the table or the standby does, the server stops, other people's DDL goes on, nobody's commit waits.

Each state is made, then: a database that is none of ours is dropped, producers
commit, nothing of ours holds a snapshot, and the server is stopped.  When the
trouble is over, what was committed arrives.
"""

import contextlib
import ctypes
import os
import socket
import statistics
import time

import psycopg2
import pytest

from checks import Ledger, await_until
from cluster import Cluster
from ladder import await_consuming
from line import Line
from processes import write_file

STOPPED = 10.0
IO_TIMEOUT = 5.0
DROPPED = IO_TIMEOUT + 2.0
# Generous, since a test machine has other work; without the relay a commit is as fast.
COMMITTED = 2.0

ADD = "SELECT acemq.outbox_add('orders', 'k', %s::text)"


def add(db, ledger, count, body="1", *settings):
    """Commits `count` transactions of a session with those settings; the seconds each took."""
    took = []
    with contextlib.closing(db.connect(autocommit=True)) as connection, connection.cursor() as cursor:
        for setting in settings:
            cursor.execute(setting)
        for _ in range(count):
            begun = time.monotonic()
            cursor.execute(ADD, (body,))
            took.append(time.monotonic() - begun)
            ledger.commit(cursor.fetchone()[0])
    return took


# -- the states --------------------------------------------------------------


@contextlib.contextmanager
def idle(db, broker, ledger):
    db.await_state("idle")
    yield


@contextlib.contextmanager
def publishing(db, broker, ledger):
    ledger.commit(*(row[0] for row in db.sql(
        "SELECT acemq.outbox_add('orders', 'k', n::text) FROM generate_series(1, 15000) n")))
    db.await_state("relaying")
    yield


@contextlib.contextmanager
def frozen(db, broker, ledger):
    """Well known to the worker and idle when it happens, then with more to send than the socket takes."""
    add(db, ledger, 1)
    await_until(lambda: db.status()["published"] == 1, what="the exchange is known to be there")
    await_consuming(db)
    broker.freeze()
    try:
        add(db, ledger, 30, '"' + "x" * 300_000 + '"')
        await_until(lambda: db.status()["in_flight"] > 0, what="something is on the wire")
        yield
    finally:
        broker.thaw()


@contextlib.contextmanager
def blocked(db, broker, ledger):
    db.await_state("idle")
    with broker.memory_alarm():
        add(db, ledger, 30, '"' + "x" * 300_000 + '"')
        db.await_state("blocked", timeout=30)
        yield


@contextlib.contextmanager
def gone(db, broker, ledger):
    broker.stop()
    try:
        db.await_state("disconnected", timeout=30)
        add(db, ledger, 10)
        yield
    finally:
        broker.start()


@contextlib.contextmanager
def table_locked(db, broker, ledger):
    """For every purpose but reading, so producers are the lock's victims too, and commit elsewhere."""
    db.await_state("idle")
    add(db, ledger, 10)
    with contextlib.closing(db.connect()) as connection:
        connection.cursor().execute("LOCK TABLE acemq.outbox IN EXCLUSIVE MODE")
        yield


@contextlib.contextmanager
def standby_gone(db, broker, ledger):
    """Rows that the relay has to hold."""
    db.await_state("idle")
    db.cluster.configure(synchronous_standby_names="nobody")
    try:
        await_until(lambda: db.value("SHOW synchronous_standby_names") == "nobody", what="a standby is asked for")
        add(db, ledger, 10, "1", "SET synchronous_commit = local")
        yield
    finally:
        db.cluster.ensure_running()
        db.cluster.configure(synchronous_standby_names=None)


STATES = [idle, publishing, frozen, blocked, gone, table_locked, standby_gone]


# -- what holds in each ------------------------------------------------------


def drop_another_database(cluster):
    """The seconds that DROP DATABASE took, from a session whose own commit waits for no standby."""
    with contextlib.closing(cluster.connect()) as session, session.cursor() as cursor:
        cursor.execute("SET synchronous_commit = local")
        cursor.execute("CREATE DATABASE bystander TEMPLATE template0")
        begun = time.monotonic()
        cursor.execute("DROP DATABASE bystander")
        return time.monotonic() - begun


def nothing_of_ours_holds_a_snapshot(cluster):
    """None of our processes has an xmin from before, now or soon: transactions are short, and none waits for anybody."""
    then = cluster.sql("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")[0][0]
    await_until(lambda: cluster.sql(
        "SELECT 1 FROM pg_stat_activity WHERE backend_type LIKE 'acemq %%' AND (age(backend_xmin) > 0"
        " AND backend_xmin::text::bigint < %s OR xact_start < clock_timestamp() - interval '1 s')",
        (then % 2 ** 32,)) == [], 5, "no snapshot of ours is old")


def producers_commit(db, ledger, state):
    """Single-row transactions; the slowest of them."""
    if state is not table_locked:
        return max(add(db, ledger, 20, "1", "SET synchronous_commit = local"))
    with contextlib.closing(db.connect(autocommit=True)) as connection, connection.cursor() as cursor:
        begun = time.monotonic()
        cursor.execute("CREATE TABLE IF NOT EXISTS public.elsewhere (n int); INSERT INTO public.elsewhere VALUES (1)")
        return time.monotonic() - begun


def check_everything(db, ledger, state, drops, mode="fast"):
    """The seconds of drops, of commits and of the stop; everybody else's sessions are over by then, as a smart stop wants it."""
    dropped = []
    for _ in range(drops):
        dropped.append(drop_another_database(db.cluster))
        assert dropped[-1] < DROPPED
        nothing_of_ours_holds_a_snapshot(db.cluster)
    committed = producers_commit(db, ledger, state)
    assert committed < COMMITTED
    db.close()
    stopped = db.cluster.stop(mode, 4 * STOPPED)
    assert stopped < STOPPED
    return max(dropped), committed, stopped


def report(capsys, what, seconds):
    with capsys.disabled():
        print("\n  %s: DROP DATABASE %.2f s, commit %.3f s, stop %.2f s (longest)" % (what, *seconds), end="")


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_state(db, broker, queue, state, long_run, capsys):
    check_state(db, broker, queue, state, "fast", 6 if long_run else 1, capsys)


# A smart stop waits for the sessions of others, and one of those has the lock.
OTHER_STOPS = [pytest.param(state, mode, marks=() if (state, mode) in ((frozen, "smart"), (publishing, "immediate"))
                            else pytest.mark.long_only)
               for state in STATES for mode in ("smart", "immediate") if (state, mode) != (table_locked, "smart")]


@pytest.mark.parametrize("state, mode", OTHER_STOPS, ids=lambda value: getattr(value, "__name__", value))
def test_other_stops(db, broker, queue, state, mode, capsys):
    check_state(db, broker, queue, state, mode, 1, capsys)


def check_state(db, broker, queue, state, mode, drops, capsys):
    ledger = Ledger()
    mark = db.cluster.log_mark()
    with state(db, broker, ledger):
        seconds = check_everything(db, ledger, state, drops, mode)
    assert "terminating any other active server processes" not in db.cluster.log_since(mark)
    report(capsys, f"{state.__name__}, {mode}", seconds)
    db.cluster.ensure_running()
    with db.vhost.collect(queue) as collector:
        await_until(lambda: ledger.committed <= set(collector.ids), 120, interval=0.2,
                    what=lambda: f"everything came; {len(ledger.committed - set(collector.ids))} are missing, {db.status()}")
    ledger.check(collector.ids, duplicates=2000)


def test_frozen_in_the_first_request_of_the_scheduler(db, broker, queue, long_run, capsys):
    """It has sent a declaration and waits for the answer, while the relay's connection is well."""
    ledger = Ledger()
    with Line(broker.port, silent_after=b"acemq.schedule") as line:
        db.sql(f"ALTER DATABASE \"{db.name}\" SET acemq.url = '{db.vhost.url(port=line.port)}'")
        db.sql("SELECT acemq.worker_restart()")
        assert line.silent.wait(15), "the scheduler has begun to declare"
        seconds = check_everything(db, ledger, idle, 6 if long_run else 1)
    report(capsys, "first request of the scheduler", seconds)
    db.cluster.start()
    db.sql(f"ALTER DATABASE \"{db.name}\" SET acemq.url = '{db.vhost.url()}'")
    db.sql("SELECT acemq.worker_restart()")
    with db.vhost.collect(queue) as collector:
        await_until(lambda: ledger.committed <= set(collector.ids), 60, "everything came")


def test_frozen_at_every_step_of_connecting(db, broker, queue, long_run):
    """Before the broker's first byte, in the login, at the first channel, at the first message: the server stops."""
    steps = {"greeting": b"AMQP\0", "login": b"PLAIN", "open": b"\0\x0a\0\x28", "confirm": b"\0\x55\0\x0a",
             "message": b"\0\x3c\0\x28"}
    for name, request in steps.items():
        if not long_run and name not in ("login", "message"):
            continue
        db.cluster.ensure_running()
        with Line(broker.port, silent_after=request) as line:
            db.sql(f"ALTER DATABASE \"{db.name}\" SET acemq.url = '{db.vhost.url(port=line.port)}'")
            db.sql("SELECT acemq.worker_restart()")
            db.sql("SELECT acemq.outbox_add('orders', 'k', '1')")
            assert line.silent.wait(15), name
            assert drop_another_database(db.cluster) < DROPPED, name
            db.close()
            assert db.cluster.stop("fast", 4 * STOPPED) < STOPPED, name


# -- names -------------------------------------------------------------------

_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNS, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x20000, 0x1000, 0x4000, 0x40000


def _checked(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@contextlib.contextmanager
def own_resolver(address):
    """Programs started while it lasts ask that name server; nobody else notices."""
    directory, before = os.getcwd(), os.open("/proc/self/ns/mnt", os.O_RDONLY)
    file = write_file(f"/tmp/acemq-resolv.{os.getpid()}", f"nameserver {address}\n")
    try:
        _checked(_libc.unshare(_CLONE_NEWNS))
        try:
            _checked(_libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None))
            _checked(_libc.mount(file.encode(), b"/etc/resolv.conf", None, _MS_BIND, None))
            yield
        finally:
            _checked(_libc.setns(before, _CLONE_NEWNS))
            os.chdir(directory)
    finally:
        os.close(before)
        os.unlink(file)


def test_name_that_does_not_resolve(capsys):
    """The name server takes the question and says nothing: 1 s for each attempt to connect, and the worker waits between them."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as name_server, own_resolver("127.53.53.53"):
        name_server.bind(("127.53.53.53", 53))
        name_server.settimeout(20)
        with Cluster({"acemq.url": "amqp://me@broker.example"}) as cluster, cluster.database("shop") as db:
            name_server.recv(512)
            await_until(lambda: "could not resolve" in (db.status()["last_error"] or ""), 15, lambda: db.status())
            # The second question and those that follow have the same limit as the first.
            name_server.recv(512), name_server.recv(512)
            seconds = check_everything(db, Ledger(), idle, 2)
    report(capsys, "silent name server", seconds)


# -- the worker itself -------------------------------------------------------


def test_worker_ended_how_soon_it_relays_again(db, queue, long_run, capsys):
    """From the end of the worker to the arrival of a message that was committed right after it."""
    took = []
    for _ in range(20 if long_run else 5):
        db.await_state("idle")
        (pid,) = db.cluster.backends("acemq worker", db.name)
        begun = time.monotonic()
        db.sql("SELECT pg_terminate_backend(%s)", (pid,))
        db.sql(ADD, ("1",))
        db.vhost.get(queue)
        took.append(time.monotonic() - begun)
    with capsys.disabled():
        print(f"\n  worker ended, relaying again: median {statistics.median(took):.2f} s, longest {max(took):.2f} s", end="")
    assert statistics.median(took) < 2.0


def test_broker_back_how_soon_the_first_confirm(db, broker, queue, long_run, capsys):
    """From the moment the port answers; it was away long enough for the longest wait between attempts."""
    took = []
    with Line(broker.port) as line:
        db.sql(f"ALTER DATABASE \"{db.name}\" SET acemq.url = '{db.vhost.url(port=line.port)}'")
        db.sql("SELECT acemq.worker_restart()")
        for _ in range(10 if long_run else 2):
            db.await_state("idle")
            line.down()
            db.await_state("disconnected")
            published = db.status()["published"]
            db.sql(ADD, ("1",))
            time.sleep(4 if long_run else 2)  # the length of the outage is what is tested
            begun = time.monotonic()
            line.up()
            await_until(lambda: db.status()["published"] > published, 20, "the message is confirmed", interval=0.005)
            took.append(time.monotonic() - begun)
    with capsys.disabled():
        print(f"\n  broker back, first confirm: median {statistics.median(took):.2f} s, longest {max(took):.2f} s", end="")
    assert statistics.median(took) < 2.0
