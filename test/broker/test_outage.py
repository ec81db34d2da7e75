"""G2, G4, G10: a broker that is away costs nobody an attempt, slows no commit, and gets everything afterwards."""

import statistics
import threading
import time

import pytest

from checks import Ledger, await_until


@pytest.fixture
def queue(db):
    return db.vhost.declare("events", exchange="orders", binding="#", x_queue_type="quorum")


def worker_memory(db):
    """Private memory of the worker in kB: what is not shared with other processes."""
    (pid,) = db.cluster.backends("acemq worker", db.name)
    private = 0
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as rollup:
        for line in rollup:
            if line.startswith(("Private_Clean", "Private_Dirty")):
                private += int(line.split()[1])
    return private


class Load(threading.Thread):
    """Single-row transactions, about 100 a second; how long each commit took."""

    def __init__(self, db, ledger):
        super().__init__(daemon=True)
        self.connection = db.connect()
        self.ledger = ledger
        self.times = []
        self.stopping = threading.Event()

    def run(self):
        with self.connection.cursor() as cursor:
            while not self.stopping.wait(0.005):
                started = time.monotonic()
                cursor.execute("SELECT acemq.outbox_add('orders', 'k', '{\"n\": 1}')")
                (message_id,) = cursor.fetchone()
                self.connection.commit()
                self.times.append(time.monotonic() - started)
                self.ledger.commit(message_id)

    def take_times(self):
        times, self.times = self.times, []
        return times


def test_broker_stopped_under_load(db, broker, queue, long_run, capsys):
    """Stopped for five minutes with --long, for fifteen seconds otherwise."""
    ledger = Ledger()
    load = Load(db, ledger)
    load.start()
    await_until(lambda: len(ledger.committed) >= 300, 30, "the load runs")
    db.await_state("relaying", "idle")
    with_broker = load.take_times()
    memory = worker_memory(db)

    broker.stop()
    try:
        db.await_state("disconnected")
        load.take_times()
        time.sleep(300 if long_run else 15)  # the length of the outage is what is tested
        without_broker = load.take_times()
        away_memory = worker_memory(db)
        assert db.value("SELECT max(attempts) FROM acemq.outbox") == 0
    finally:
        broker.start()
    db.await_state("relaying", "idle", timeout=60)
    load.stopping.set()
    load.join()
    db.sql("SELECT acemq.outbox_sweep('120 s')")
    with db.vhost.collect(queue) as collector:
        await_until(lambda: ledger.committed <= set(collector.ids), 60, "every message came")
    ledger.check(collector.ids, duplicates=1000)

    medians = [statistics.median(times) * 1000 for times in (with_broker, without_broker)]
    with capsys.disabled():
        print(f"\n  commit with broker {medians[0]:.2f} ms, without {medians[1]:.2f} ms (medians); "
              f"worker {memory} kB before, {away_memory} kB away, {worker_memory(db)} kB after")
    assert away_memory <= 64 * 1024 and worker_memory(db) <= 64 * 1024


def test_application_restarted_again_and_again(db, broker, queue, long_run):
    """stop_app and start_app in the middle of a backlog: the set is complete, duplicates stay under the bound."""
    ledger, times = Ledger(), 5 if long_run else 2
    for _ in range(times):
        ledger.commit(*(row[0] for row in db.sql(
            "SELECT acemq.outbox_add('orders', 'k', n::text) FROM generate_series(1, 2000) n")))
        broker.stop_app()
        broker.start_app()
    await_until(lambda: db.value("SELECT count(*) FROM acemq.outbox") == 0, 120, "the outbox is empty")
    assert db.status()["failed"] == 0
    with db.vhost.collect(queue) as collector:
        await_until(lambda: ledger.committed <= set(collector.ids), 60, "every message came")
    ledger.check(collector.ids, duplicates=times * 1000)


def test_connection_closed_by_the_broker(db, broker, queue):
    """Closed ten times while rows flow: nothing lost, no attempt charged."""
    ledger = Ledger()
    for _ in range(10):
        ledger.commit(*(row[0] for row in db.sql(
            "SELECT acemq.outbox_add('orders', 'k', n::text) FROM generate_series(1, 500) n")))
        broker.close_connections()
    await_until(lambda: db.value("SELECT count(*) FROM acemq.outbox") == 0, 60, "the outbox is empty")
    assert db.status()["failed"] == 0
    with db.vhost.collect(queue) as collector:
        await_until(lambda: ledger.committed <= set(collector.ids), 60, "every message came")
    ledger.check(collector.ids, duplicates=10 * 1000)


def test_frozen_broker(db, broker, queue):
    """A broker that holds the connection and says nothing: no attempt, no open transaction; it goes on when thawed."""
    db.sql(f"ALTER DATABASE \"{db.name}\" SET acemq.confirm_timeout = '2s'")
    db.sql("SELECT acemq.worker_restart()")
    db.await_state("idle")
    broker.freeze()
    try:
        sent = [row[0] for row in db.sql(
            "SELECT acemq.outbox_add('orders', 'k', n::text) FROM generate_series(1, 100) n")]
        db.await_state("disconnected", timeout=30)
        assert db.sql("SELECT 1 FROM pg_stat_activity WHERE backend_type = 'acemq worker' AND datname = %s"
                      " AND (backend_xmin IS NOT NULL OR xact_start IS NOT NULL)", (db.name,)) == []
        assert db.value("SELECT max(attempts) FROM acemq.outbox") == 0
    finally:
        broker.thaw()
    with db.vhost.collect(queue) as collector:
        await_until(lambda: set(sent) <= set(collector.ids), 60, "every message came")
    assert set(collector.ids) == set(sent)


def test_memory_alarm(db, broker, queue):
    """Blocked by the broker: adding goes on, the state says so, everything arrives when the alarm is over."""
    with broker.memory_alarm():
        sent = [row[0] for row in db.sql(
            "SELECT acemq.outbox_add('orders', 'k', repeat('x', 100000), content_type => 'text/plain')"
            " FROM generate_series(1, 100) n")]
        db.await_state("blocked", timeout=20)
        assert db.value("SELECT max(attempts) FROM acemq.outbox") == 0
    with db.vhost.collect(queue) as collector:
        await_until(lambda: set(sent) <= set(collector.ids), 60, "every message came")
    assert db.status()["failed"] == 0


def test_worker_terminated(db, queue):
    """pg_terminate_backend in the middle of a backlog, five times: a new worker takes over, nothing is lost."""
    ledger = Ledger()
    for _ in range(5):
        ledger.commit(*(row[0] for row in db.sql(
            "SELECT acemq.outbox_add('orders', 'k', n::text) FROM generate_series(1, 2000) n")))
        for pid in db.cluster.backends("acemq worker", db.name):
            db.sql("SELECT pg_terminate_backend(%s)", (pid,))
    await_until(lambda: db.value("SELECT count(*) FROM acemq.outbox") == 0, 60, "the outbox is empty")
    with db.vhost.collect(queue) as collector:
        await_until(lambda: ledger.committed <= set(collector.ids), 60, "every message came")
    ledger.check(collector.ids, duplicates=5 * 1000)


def test_one_queue_that_never_confirms(db, broker, queue):
    """
    A queue whose process hangs: the broker's flow control stops the whole
    connection until acemq.confirm_timeout ends it.  From then on the lane is
    probed with one row, and keeps neither window nor memory from the others.
    """
    db.sql(f"ALTER DATABASE \"{db.name}\" SET acemq.confirm_timeout = '3s'")
    db.sql("SELECT acemq.worker_restart()")
    stuck = db.vhost.declare("stuck", exchange="stuck", binding="#")
    db.sql("SELECT acemq.outbox_add('stuck', 'k', '0')")
    db.vhost.get(stuck)
    with broker.suspended_queue(db.vhost, stuck):
        slow = {row[0] for row in db.sql(
            "SELECT acemq.outbox_add('stuck', 'k', n::text) FROM generate_series(1, 5000) n")}
        await_until(lambda: db.status()["in_flight"] > 0, 10, "the stuck lane has begun")
        fast = {row[0] for row in db.sql(
            "SELECT acemq.outbox_add('orders', 'k', n::text) FROM generate_series(1, 3000) n")}
        with db.vhost.collect(queue) as collector:
            await_until(lambda: fast <= set(collector.ids), 30, "the other lane is through")
        assert db.value("SELECT max(attempts) FROM acemq.outbox") == 0
    with db.vhost.collect(stuck) as collector:
        await_until(lambda: slow <= set(collector.ids), 120, "the stuck lane is through")
    assert set(collector.ids) == slow


def test_many_keys_to_a_queue_that_never_confirms(db, broker, queue):
    """
    Each of 200 ordering keys is a lane of its own: together they keep no more
    from the others than one would, and cost no more connections.  Half of them
    go through an exchange, half to the queue by its name.
    """
    db.sql(f"ALTER DATABASE \"{db.name}\" SET acemq.confirm_timeout = '3s'")
    db.sql(f"ALTER DATABASE \"{db.name}\" SET acemq.retry_delay = '15s'")
    stuck = db.vhost.declare("stuck", exchange="stuck", binding="#")
    with broker.suspended_queue(db.vhost, stuck):
        db.sql("SELECT acemq.relay_pause()")
        slow = {row[0] for row in db.sql(
            "SELECT acemq.outbox_add(CASE WHEN n > 100 THEN 'stuck' ELSE '' END, 'stuck', n::text, ordering_key => n::text)"
            " FROM generate_series(1, 200) n")}
        fast = {row[0] for row in db.sql(
            "SELECT acemq.outbox_add('orders', 'k', n::text) FROM generate_series(1, 500) n")}
        # A connection that knows neither exchange.
        db.sql("SELECT acemq.worker_restart()")
        db.sql("SELECT acemq.relay_resume()")
        with db.vhost.collect(queue) as collector:
            await_until(lambda: fast <= set(collector.ids), 30, "the other lane is through")
            await_until(lambda: "confirm_timeout" in (db.status()["last_error"] or ""), 20, "the first key is given up")
            connections, until = db.status()["reconnects"], time.monotonic() + 10
            while time.monotonic() < until:
                late = {row[0] for row in db.sql("SELECT acemq.outbox_add('orders', 'k', '1')")}
                await_until(lambda: late <= set(collector.ids), 10, "so is a later one")
            assert db.status()["reconnects"] <= connections + 2  # one for each of the two destinations
        assert db.value("SELECT max(attempts) FROM acemq.outbox") == 0
    with db.vhost.collect(stuck) as collector:
        await_until(lambda: slow <= set(collector.ids), 120, "the stuck lanes are through")
