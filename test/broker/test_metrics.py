"""acemq.metrics: the numbers are those of what happened."""

import contextlib
import time

import pytest

import ladder
from checks import await_until


def metrics(db, name):
    """{labels as sorted pairs: value} of that name."""
    rows = db.sql("SELECT labels, value FROM acemq.metrics WHERE name = %s", (name,))
    return {tuple(sorted(labels.items())): value for labels, value in rows}


def metric(db, name, **labels):
    """The one value of that name with those labels; a dot in a label is written as two underscores."""
    labels = {label.replace("__", "."): value for label, value in labels.items()}
    return metrics(db, name).get(tuple(sorted(labels.items())))


def outcomes(db, exchange, routing_key):
    return [metric(db, "acemq.outbox.total", exchange=exchange, routing__key=routing_key, outcome=outcome)
            for outcome in ("published", "failed")]


def await_metric(db, name, holds, timeout=20):
    return await_until(lambda: holds(metric(db, name)), timeout, lambda: f"{name} is {metric(db, name)}")


def restart(db, **settings):
    for name, value in settings.items():
        db.sql(f'ALTER DATABASE "{db.name}" SET acemq.{name} = %s', (value,))
    db.sql("SELECT acemq.worker_restart()")
    await_until(lambda: db.status()["worker_pid"], what="a new worker")


@pytest.fixture
def queue(db):
    queue = db.vhost.declare("events", exchange="orders", binding="order.*")
    db.await_state("idle", "relaying")
    return queue


def test_outcomes_by_destination(db, queue):
    """Counted where they belong, and together as many as status says."""
    db.sql("SELECT acemq.outbox_add('orders', 'order.' || n % 3, '1') FROM generate_series(1, 30) n")
    db.sql("SELECT acemq.outbox_add('', 'events', '1')")
    db.sql("SELECT acemq.outbox_sweep()")
    restart(db, max_attempts="2", retry_delay="10ms")
    db.sql("SELECT acemq.outbox_add('orders', 'no queue', '1')")
    await_metric(db, "acemq.outbox.retired", lambda value: value == 1)

    assert [outcomes(db, "orders", f"order.{n}") for n in range(3)] == [[10, 0]] * 3
    assert outcomes(db, "", "events") == [1, 0]
    assert outcomes(db, "orders", "no queue") == [0, 2]
    status = db.status()
    total = metrics(db, "acemq.outbox.total")
    assert status["published"] == 31 == sum(value for labels, value in total.items() if ("outcome", "published") in labels)
    assert status["failed"] == 2 == sum(value for labels, value in total.items() if ("outcome", "failed") in labels)
    assert metric(db, "acemq.outbox.returned.total") == 2 == status["returned"]
    assert metric(db, "acemq.outbox.added.total") == 32
    assert metric(db, "acemq.outbox.pending") == 0 == metric(db, "acemq.outbox.in.flight")
    assert db.vhost.count(queue) == 31


def test_lag(db, queue):
    db.sql("SELECT acemq.relay_pause()")
    db.await_state("paused")
    db.sql("SELECT acemq.outbox_add('orders', 'order.late', '1')")
    await_metric(db, "acemq.outbox.oldest.age", lambda age: age > 1)
    db.sql("SELECT acemq.relay_resume()")
    db.sql("SELECT acemq.outbox_sweep()")
    labels = {"exchange": "orders", "routing__key": "order.late", "outcome": "published"}
    assert metric(db, "acemq.outbox.lag.count", **labels) == 1
    assert 1 < metric(db, "acemq.outbox.lag.sum", **labels) < 60
    for quantile in ("p50", "p95", "p99"):
        assert 1 < metric(db, f"acemq.outbox.lag.{quantile}") < 60
    await_metric(db, "acemq.outbox.oldest.age", lambda age: age == 0)


def test_oldest_age_under_constant_load(db, queue):
    """A lane that is never empty has no old row: the age is that of what waits, not of the time since it was empty."""
    for name, value in (("max_in_flight", "4"), ("max_in_flight_bytes", "64kB")):
        db.sql(f"ALTER DATABASE \"{db.name}\" SET acemq.{name} = '{value}'")
    db.sql("SELECT acemq.worker_restart()")
    db.await_state("idle", "relaying")
    begun, wrong = time.monotonic(), []
    while time.monotonic() < begun + 10:
        if db.status()["pending"] < 2000:
            db.sql("SELECT count(acemq.outbox_add('orders', 'order.k', to_json(repeat('x', 300))::text)) FROM generate_series(1, 1000)")
        ((shown, real),) = db.sql("SELECT extract(epoch FROM oldest_age)::float,"
                                  " (SELECT extract(epoch FROM clock_timestamp() - min(created_at))::float FROM acemq.outbox) FROM acemq.status")
        if shown is not None and shown > (real or 0) + 2.5:
            wrong.append((shown, real))
    assert db.status()["published"] > 200 and not wrong, wrong[-3:]


def test_more_destinations_than_there_is_room_for(db, queue):
    """An id in the routing key does not make more than so many rows; nothing is left out of the sum."""
    db.vhost.declare("all", exchange="wide", binding="#")
    db.sql("SELECT acemq.outbox_add('wide', 'order.' || n, '1') FROM generate_series(1, 300) n")
    db.sql("SELECT acemq.outbox_sweep('30 s')")
    assert outcomes(db, "(other)", "(other)") == [44, 0]
    assert len(metrics(db, "acemq.outbox.total")) == 2 * 257
    assert sum(metrics(db, "acemq.outbox.total").values()) == 300
    db.sql("SELECT acemq.outbox_add('wide', 'order.1', '1')")
    db.sql("SELECT acemq.outbox_sweep()")
    assert outcomes(db, "wide", "order.1") == [2, 0]


def test_counters_outlive_the_worker(db, queue):
    db.sql("SELECT acemq.outbox_add('orders', 'order.1', '1')")
    db.sql("SELECT acemq.outbox_sweep()")
    before = metric(db, "acemq.relay.reconnects.total")
    restart(db)
    db.sql("SELECT acemq.outbox_add('orders', 'order.1', '1')")
    db.sql("SELECT acemq.outbox_sweep()")
    assert outcomes(db, "orders", "order.1") == [2, 0]
    assert metric(db, "acemq.relay.reconnects.total") > before


def test_blocked_seconds(db, queue, broker):
    assert metric(db, "acemq.relay.blocked.seconds.total") == 0
    with broker.memory_alarm():
        db.sql("SELECT acemq.outbox_add('orders', 'order.1', '1')")
        db.await_state("blocked")
        await_metric(db, "acemq.relay.blocked.seconds.total", lambda seconds: seconds > 0.2)
        assert metric(db, "acemq.relay.connected") == 1 == metric(db, "acemq.relay.in.state", state="blocked")
    db.await_state("idle", "relaying")
    blocked = metric(db, "acemq.relay.blocked.seconds.total")
    assert 0.2 < blocked < 60
    db.sql("SELECT acemq.outbox_sweep()")
    assert metric(db, "acemq.relay.blocked.seconds.total") == blocked


def test_held_lane(db, queue):
    assert metric(db, "acemq.outbox.held.age") == 0
    db.sql("SELECT acemq.outbox_add('orders', 'no queue', '1', message_id => 'bad')")
    await_metric(db, "acemq.outbox.held.age", lambda age: age > 0.5)
    assert "bad" in db.status()["held_by"]
    # Not while it is just being tried again.
    await_until(lambda: db.value("SELECT acemq.outbox_cancel('bad')"), what="it is cancelled")
    await_metric(db, "acemq.outbox.held.age", lambda age: age == 0)


def test_what_housekeeping_removed(db, queue):
    db.sql("SELECT acemq.idempotency_claim('key ' || n, '1 ms') FROM generate_series(1, 700) n")
    restart(db, outbox_retention="1s")
    await_metric(db, "acemq.idempotency.purged.total", lambda count: count == 700)
    db.sql("SELECT acemq.outbox_add('orders', 'order.1', '1') FROM generate_series(1, 7)")
    db.sql("SELECT acemq.outbox_sweep()")
    await_metric(db, "acemq.outbox.purged.total", lambda count: count == 7)


def test_the_ladder(db, queue):
    ladder.await_consuming(db)
    db.sql("SELECT acemq.schedule_in('1 s', 'orders', 'order.later', '1', via => 'ladder')")
    await_metric(db, "acemq.schedule.delivered.total", lambda count: count == 1, 60)
    assert metric(db, "acemq.schedule.scheduled.total") == 1
    assert metric(db, "acemq.schedule.malformed.total") == 0
    assert metric(db, "acemq.schedule.hops.total") == db.status()["ladder_hops"]
    assert metric(db, "acemq.scheduler.in.state", state="consuming") == 1


def test_names_beyond_ascii(cluster, broker, relay_settings):
    """A database in another encoding shows its own characters."""
    vhost = broker.vhost()
    vhost.declare("schl\u00fcssel")
    with cluster.encoded_database("metrics_latin1", "LATIN1") as cursor:
        for name, value in relay_settings(vhost).items():
            cursor.execute(f"ALTER DATABASE metrics_latin1 SET {name} = %s", (value,))
        cursor.execute("SELECT acemq.worker_restart()")
        cursor.execute("SELECT acemq.outbox_add('', %s, '1')", ("schl\u00fcssel",))

        def published():
            cursor.execute("SELECT labels->>'routing.key', value FROM acemq.metrics"
                           " WHERE name = 'acemq.outbox.total' AND labels->>'outcome' = 'published'")
            return cursor.fetchall()

        cursor.connection.commit()
        with contextlib.closing(cluster.connect("metrics_latin1")) as connection, connection.cursor() as cursor:
            connection.set_client_encoding("UTF8")
            await_until(lambda: published() == [("schl\u00fcssel", 1)], 20, lambda: f"published: {published()}")
