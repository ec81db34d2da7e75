"""The scheduler when something goes wrong under it: due messages flow again within 30 s, and nothing that the broker kept is lost."""

import collections
import contextlib
import time

import pika.exceptions
import pytest

import ladder
from checks import await_until
from cluster import Cluster
from ladder import await_consuming, counters, put

FLOWS_AGAIN = 30


@pytest.fixture
def queue(db):
    queue = db.vhost.declare("events", exchange="orders", binding="#", x_queue_type="quorum")
    await_consuming(db)
    return queue


def await_flowing(db, queue, name):
    """A message that is put there now, and again as long as it may have gone with a queue, arrives in time."""
    started = time.monotonic()
    with db.vhost.collect(queue) as collector:
        while name not in collector.ids:
            assert time.monotonic() - started < FLOWS_AGAIN, f"no message after {FLOWS_AGAIN} s; {db.status()}"
            with contextlib.suppress(Exception):
                put(db.vhost, 0, message_id=name)
            time.sleep(0.2)
    print(f"{name}: flowing after {time.monotonic() - started:.1f} s")


def await_problem(db, words):
    return await_until(lambda: words in (db.status()["scheduler_problem"] or ""), 15,
                       lambda: f"status tells of \"{words}\": {db.status()['scheduler_problem']}")


def test_the_control_queue_is_deleted(db, queue, cluster):
    """And once more while the first time is still being shown."""
    mark = cluster.log_mark()
    for name in ("deleted", "deleted again"):
        db.vhost.delete(ladder.DUE)
        await_problem(db, "cancelled the consumer")
        await_flowing(db, queue, name)
    await_consuming(db)
    assert "cancelled the consumer" in cluster.log_since(mark)
    assert "cancelled the consumer" in db.status()["scheduler_problem"]  # still told when it is over


def test_a_rung_and_the_exchange_are_deleted(db, queue, long_run):
    """A hop finds that out first: it waits until they are there again, and is not lost."""
    db.vhost.delete("acemq.schedule.1s")
    message_id = put(db.vhost, 2.2)
    assert db.vhost.get(queue).properties.message_id == message_id
    with db.vhost.channel() as channel:
        channel.exchange_delete(ladder.EXCHANGE)
    ids = ladder.put_all(db.vhost, [{"seconds": 2.2} for _ in range(20)])
    found = db.vhost.drain(queue, 20, FLOWS_AGAIN)
    assert sorted(message.properties.message_id for message in found) == sorted(ids)
    assert db.status()["scheduler"] == "consuming"
    if long_run:
        # Nobody is told that a binding is gone: it comes back with the next round.
        with db.vhost.channel() as channel:
            channel.queue_unbind(ladder.DUE, ladder.EXCHANGE, ladder.DUE)
        await_until(lambda: is_bound(db), 15, "the binding is back", interval=0.5)


def is_bound(db):
    with db.vhost.channel() as channel:
        channel.confirm_delivery()
        try:
            channel.basic_publish(ladder.EXCHANGE, ladder.DUE, b"", mandatory=True)
            return True
        except pika.exceptions.UnroutableError:
            return False


def test_one_bad_exchange_harms_nobody_else(db, queue, cluster):
    """Many to exchanges that are missing or may not be published to, among many good ones of several exchanges."""
    with db.vhost.channel() as channel:
        channel.exchange_declare("inside", "topic", durable=True, internal=True)
        for i in range(3):
            channel.exchange_declare(f"good{i}", "topic", durable=True)
            channel.queue_bind(queue, f"good{i}", "#")
    messages = []
    for i in range(240):
        bad = i % 3 == 0
        exchange = ("inside" if i % 2 else f"missing{i % 7}") if bad else f"good{i % 4}" if i % 4 != 3 else "orders"
        messages.append({"exchange": exchange, "message_id": f"{'bad' if bad else 'good'}-{i}"})
    started = time.monotonic()
    ladder.put_all(db.vhost, messages)
    found = [message.properties.message_id for message in db.vhost.drain(queue, 160, 8)]
    print(f"160 good ones among 80 bad ones: {time.monotonic() - started:.1f} s")
    assert sorted(found) == sorted(message["message_id"] for message in messages if message["message_id"][0] == "g")
    await_until(lambda: counters(db) == (80, 160, 0), what=lambda: counters(db))
    assert db.status()["scheduler"] == "consuming" and db.status()["state"] in ("idle", "relaying")


@pytest.mark.parametrize("target, reason", [({"exchange": "orders", "routing_key": "nobody"}, "312 NO_ROUTE"),
                                            ({"exchange": "missing"}, "404"),
                                            ({"exchange": "", "routing_key": "full"}, "basic.nack")])
def test_a_target_that_does_not_take_it_is_told_of(db, broker, cluster, target, reason):
    """Who is to look for a message that circles finds it in status, doctor and (once a minute) the log."""
    db.vhost.declare("events", exchange="orders", binding="order.due")
    db.vhost.declare("full", x_max_length=1, x_overflow="reject-publish")
    with db.vhost.channel() as channel:
        channel.basic_publish("", "full", b"")
    await_consuming(db)
    mark = cluster.log_mark()
    ladder.put_all(db.vhost, [target for _ in range(20)])
    await_problem(db, reason)
    problem = db.status()["scheduler_problem"]
    assert f'exchange "{target["exchange"]}"' in problem
    assert f'routing key "{target.get("routing_key", "order.due")}"' in problem
    ok, detail = db.sql("SELECT ok, detail FROM acemq.doctor() WHERE \"check\" = 'scheduler'")[0]
    assert ok and reason in detail
    await_until(lambda: counters(db)[0] >= 20, what=lambda: counters(db))
    assert cluster.log_since(mark).count("is not taken by its target") == 1


def test_an_exchange_that_goes_while_it_is_trusted(db, queue):
    """The main channel dies with others on it: they are sent again, and only the bad one goes around."""
    other = db.vhost.declare("other", exchange="others", binding="#")
    ladder.put_all(db.vhost, [{"exchange": "orders"}, {"exchange": "others"}])
    db.vhost.drain(queue, 1), db.vhost.drain(other, 1)
    with db.vhost.channel() as channel:
        channel.exchange_delete("others")
    ids = ladder.put_all(db.vhost, [{"exchange": "others" if i == 5 else "orders", "message_id": f"m{i}"}
                                    for i in range(30)])
    with db.vhost.collect(queue) as collector:
        await_until(lambda: set(collector.ids) == set(ids) - {"m5"}, 10, lambda: sorted(collector.ids))
    await_until(lambda: counters(db) == (1, 2 + 29, 0), what=lambda: counters(db))


def test_the_broker_restarts(db, queue, broker, cluster):
    """What was in the control queue arrives, and what is put there afterwards."""
    cluster.configure(acemq__scheduler="off")
    try:
        await_until(lambda: db.status()["scheduler"] == "off", what="nobody consumes")
        ids = ladder.put_all(db.vhost, [{} for _ in range(200)])
    finally:
        cluster.configure(acemq__scheduler=None)
        broker.stop_app()
        try:
            await_until(lambda: db.status()["scheduler"] == "disconnected", 15, lambda: db.status())
        finally:
            broker.start_app()
    await_consuming(db)
    put(db.vhost, message_id="after the restart")
    with db.vhost.collect(queue) as collector:
        await_until(lambda: set(collector.ids) == {*ids, "after the restart"}, FLOWS_AGAIN,
                    lambda: f"{len(set(collector.ids))} of 201")


def test_connections_cut_between_publish_and_ack(db, queue, broker, long_run):
    """The broker delivers again what was not settled: copies have the same id, and are no more than that."""
    silent = db.vhost.declare("silent", exchange="hush", binding="#")
    cuts = 20 if long_run else 1
    put(db.vhost, exchange="hush")  # from now on its messages share a channel
    db.vhost.drain(silent, 1)
    await_until(lambda: counters(db)[1] == 1, what=lambda: counters(db))
    with broker.suspended_queue(db.vhost, silent):
        ids = ladder.put_all(db.vhost, [{"exchange": "hush", "message_id": f"cut-{i}"} for i in range(60)])
        for _ in range(cuts):
            await_until(lambda: db.vhost.count(ladder.DUE) == 10, 10, "fifty are on the wire")
            since = db.status()["scheduler_since"]
            broker.close_connections()
            await_until(lambda: db.status()["scheduler_since"] != since, 10, "it has noticed")
            await_consuming(db)
            # Nobody can be asked whether the fifty have come again but the queue itself.
            await_until(lambda: db.vhost.count(ladder.DUE) == 10, 10, "fifty are on the wire again")
    with db.vhost.collect(silent) as collector:
        await_until(lambda: set(collector.ids) == set(ids), FLOWS_AGAIN, lambda: f"{len(set(collector.ids))} of 60")
        await_until(lambda: db.vhost.count(ladder.DUE) == 0 and counters(db)[1] >= 61, 10, lambda: counters(db))
        copies = collections.Counter(collector.ids)
    assert set(copies) == set(ids)
    assert 25 < sum(copies.values()) - 60 <= 50 * cuts
    print(f"{sum(copies.values()) - 60} copies after {cuts} cuts")


def test_a_target_that_does_not_answer(db, queue, broker, cluster):
    """Its messages take the prefetch until the confirms have timed out; then they go around and the others go on."""
    silent = db.vhost.declare("silent", exchange="hush", binding="#")
    cluster.configure(acemq__confirm_timeout="3s")
    try:
        with broker.suspended_queue(db.vhost, silent):
            ladder.put_all(db.vhost, [{"exchange": "hush", "message_id": f"s{i}"} for i in range(60)])
            put(db.vhost, message_id="beside")
            with db.vhost.collect(queue) as collector:
                collector.wait(1, FLOWS_AGAIN)
    finally:
        cluster.configure(acemq__confirm_timeout=None)
    assert "confirm_timeout" in (db.status()["scheduler_problem"] or "")


def test_memory_alarm(db, queue, broker, cluster):
    """What it has in hand waits for the end of the alarm; then all goes on by itself."""
    cluster.configure(acemq__scheduler="off")
    try:
        await_until(lambda: db.status()["scheduler"] == "off", what="nobody consumes")
        ids = ladder.put_all(db.vhost, [{} for _ in range(100)])
        with broker.memory_alarm():
            cluster.configure(acemq__scheduler=None)
            await_until(lambda: db.status()["scheduler"] == "blocked", FLOWS_AGAIN, lambda: db.status())
            assert "blocked" in db.status()["scheduler_problem"]
    finally:
        cluster.configure(acemq__scheduler=None)
    with db.vhost.collect(queue) as collector:
        await_until(lambda: set(collector.ids) == set(ids), FLOWS_AGAIN, lambda: f"{len(set(collector.ids))} of 100")
    await_consuming(db)
    assert "blocked" in db.status()["scheduler_problem"]  # still told when it is over


def test_longer_than_the_broker_takes(db, queue, broker, cluster):
    """Neither its target nor a rung would take it: it is kept, told of, and goes when the limit is higher."""
    cluster.configure(acemq__scheduler="off")
    try:
        await_until(lambda: db.status()["scheduler"] == "off", what="nobody consumes")
        put(db.vhost, body=b"b" * 200_000, message_id="kept")
        broker.set_max_message_size(100_000)
    finally:
        cluster.configure(acemq__scheduler=None)
    try:
        await_problem(db, "cannot be passed on")
        beside = put(db.vhost, message_id="beside")
        assert db.vhost.get(queue).properties.message_id == beside
        assert db.status()["state"] in ("idle", "relaying")
    finally:
        broker.set_max_message_size(134217728)
    assert db.vhost.get(queue, 2 * FLOWS_AGAIN).properties.message_id == "kept"
    await_until(lambda: counters(db) == (0, 2, 0), what=lambda: counters(db))


def test_fast_stop(broker):
    """With a broker that does not answer the server stops in ten seconds."""
    broker.ensure_running()
    vhost = broker.vhost()
    with Cluster() as server:
        settings = {"acemq.url": vhost.url(),
                    "acemq.password_file": server.secret_file("broker-password", broker.password + "\n")}
        with server.database("stopping", settings) as database:
            await_consuming(database)
            broker.freeze()
            try:
                assert server.stop("fast") < 10
            finally:
                broker.thaw()
