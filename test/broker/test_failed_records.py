"""G5 and G6: a bad record holds its lane and nobody else, costs its neighbours no attempt, and can be mended."""

import re

import pytest

from checks import await_until, in_order

QUICK_RETRIES = {"acemq.retry_delay": "100ms", "acemq.retry_delay_max": "200ms", "acemq.max_attempts": "3"}


@pytest.fixture
def quick(db):
    """The database with retries that a test can wait for."""
    for name, value in QUICK_RETRIES.items():
        db.sql(f"ALTER DATABASE \"{db.name}\" SET {name} = '{value}'")
    restart_worker(db)
    return db


def restart_worker(db):
    before = db.cluster.backends("acemq worker", db.name)
    db.sql("SELECT acemq.worker_restart()")
    await_until(lambda: db.cluster.backends("acemq worker", db.name) not in (before, []), 15, "a new worker runs")
    db.await_state("idle", "relaying")


def add(db, exchange, routing_key, body="1", **options):
    names = "".join(f", {name} => %s" for name in options)
    return db.value(f"SELECT acemq.outbox_add(%s, %s, %s::text{names})",
                    (exchange, routing_key, body, *options.values()))


def attempts(db, message_id):
    return db.value("SELECT coalesce(max(attempts), 0) FROM acemq.outbox WHERE message_id = %s", (message_id,))


def retired(db):
    return db.sql("SELECT message_id, attempts, last_error FROM acemq.outbox_retired ORDER BY id")


def ids(messages):
    return [message.properties.message_id for message in messages]


def test_bad_among_good(db, broker):
    """
    A missing exchange, an unbound key, a body over the broker's limit and a bad
    property forced into the table, all among good rows of other exchanges.
    """
    vhost = db.vhost
    good = vhost.declare("good", exchange="good", binding="#")
    other = vhost.declare("other", exchange="other", binding="#")
    vhost.declare("bound", exchange="unbound", binding="nothing.like.it")
    vhost.declare("big", exchange="big", binding="#")
    vhost.declare("property", exchange="property", binding="#")
    broker.set_max_message_size(100_000)
    try:
        with db.connect() as connection, connection.cursor() as cursor:

            def send(exchange, key, body="1"):
                cursor.execute("SELECT acemq.outbox_add(%s, %s, %s::text)", (exchange, key, body))
                return cursor.fetchone()[0]

            fine, bad, behind = [], {}, []
            for round_ in range(20):
                fine.append(send("good", "k"))
                fine.append(send("other", "k"))
                if round_ == 10:
                    bad["ghost"] = send("ghost", "k")
                    bad["unbound"] = send("unbound", "k")
                    bad["big"] = send("big", "k", '"' + "x" * 200_000 + '"')
                    bad["property"] = send("property", "k")
                    cursor.execute("UPDATE acemq.outbox SET expiration = 99999999999999 WHERE message_id = %s",
                                   (bad["property"],))
                    behind = [send(lane, "k", str(n)) for n in range(3) for lane in ("ghost", "unbound", "big", "property")]
        await_until(lambda: all(attempts(db, one) >= 2 for one in bad.values()), 30, "every bad row was tried twice")
        arrived = set(ids(vhost.drain(good))) | set(ids(vhost.drain(other)))
        assert arrived == set(fine)

        words = dict(db.sql("SELECT exchange, last_error FROM acemq.outbox WHERE message_id = ANY(%s)",
                            (list(bad.values()),)))
        assert "404" in words["ghost"] or "NOT_FOUND" in words["ghost"]
        assert "312" in words["unbound"] and "NO_ROUTE" in words["unbound"]
        assert "max size" in words["big"] or "larger" in words["big"], words["big"]
        assert "PRECONDITION_FAILED" in words["property"], words["property"]
        assert db.value("SELECT max(attempts) FROM acemq.outbox WHERE message_id = ANY(%s)", (behind,)) == 0
        assert db.value("SELECT count(*) FROM acemq.outbox") == len(bad) + len(behind)

        # Mended: each lane goes out in order.
        vhost.declare("ghosts", exchange="ghost", binding="#")
        with vhost.channel() as channel:
            channel.queue_bind("bound", "unbound", "#")
        broker.set_max_message_size(1_000_000)
        db.sql("UPDATE acemq.outbox SET expiration = NULL WHERE message_id = %s", (bad["property"],))
        for queue, lane in (("ghosts", "ghost"), ("bound", "unbound"), ("big", "big"), ("property", "property")):
            messages = vhost.drain(queue, 4, timeout=60)
            assert ids(messages) == [bad[lane], *behind[["ghost", "unbound", "big", "property"].index(lane)::4]]
        db.sql("SELECT acemq.outbox_sweep()")
    finally:
        broker.set_max_message_size(134_217_728)


def test_retire_release_discard(quick):
    """The last attempt retires the record; later rows of its lane go on; it comes back or goes by hand."""
    db, vhost = quick, quick.vhost
    queue = vhost.declare("events", exchange="orders", binding="good")
    bad = [add(db, "orders", "bad", str(n)) for n in range(2)]
    good = add(db, "orders", "good")
    await_until(lambda: [row[0] for row in retired(db)] == bad, 30, "both bad records are retired")
    assert all(tries == 3 and "NO_ROUTE" in error for _, tries, error in retired(db))
    assert ids(vhost.drain(queue, 1)) == [good]
    assert db.status()["retired"] == 2

    assert db.value("SELECT acemq.outbox_discard(%s, 'test')", (bad[1],)) is True
    assert db.value("SELECT acemq.outbox_release('no such id')") is False
    vhost.declare("events", exchange="orders", binding="bad")
    assert db.value("SELECT acemq.outbox_release(%s)", (bad[0],)) is True
    assert ids(vhost.drain(queue, 1)) == [bad[0]]
    await_until(lambda: db.value("SELECT count(*) FROM acemq.outbox") == 0, 10, "the outbox is empty")
    assert db.status()["retired"] == 0


def test_release_all_of_an_exchange(quick):
    """What a deploy in the wrong order has retired is sent with one call."""
    db, vhost = quick, quick.vhost
    lost = [add(db, "late", "k", str(n)) for n in range(3)]
    await_until(lambda: len(retired(db)) == 3, 60, "all are retired")
    queue = vhost.declare("late", exchange="late", binding="#")
    assert db.value("SELECT acemq.outbox_release_all('other')") == 0
    assert db.value("SELECT acemq.outbox_release_all('late')") == 3
    assert ids(vhost.drain(queue, 3)) == lost


def test_ordering_key_is_strict(quick):
    """A failed row holds its key and not the others; order within each key is kept through failures and retirement."""
    db, vhost = quick, quick.vhost
    queue = vhost.declare("events", exchange="orders", binding="ok")
    first = add(db, "orders", "nowhere", '"A"', ordering_key="key-7")
    others = []
    with db.connect() as connection, connection.cursor() as cursor:
        for n in range(300):
            cursor.execute("SELECT acemq.outbox_add('orders', 'ok', %s::text, ordering_key => %s)",
                           (str(n), f"key-{n % 10}"))
            others.append(cursor.fetchone()[0])
    messages = vhost.drain(queue, 270)
    assert not {m.properties.message_id for m in messages} & {one for n, one in enumerate(others) if n % 10 == 7}
    messages += vhost.drain(queue, 30, timeout=60)
    assert [row[0] for row in retired(db)] == [first]
    for key in range(10):
        in_order([int(message.body) for message in messages if int(message.body) % 10 == key])
    assert len(set(ids(messages))) == 300


def test_pipelined_lane_keeps_order(db):
    """Without failures a lane of thousands of rows arrives in the order it was added."""
    queue = db.vhost.declare("events", exchange="orders", binding="#")
    db.sql("SELECT count(acemq.outbox_add('orders', 'k', n::text)) FROM generate_series(1, 5000) n")
    with db.vhost.collect(queue) as collector:
        messages = collector.wait(5000, 60)
    assert [int(message.body) for message in messages] == list(range(1, 5001))


def test_nack_counts_an_attempt(db):
    """A full queue that rejects: the broker's refusal is pinned on the row."""
    db.vhost.declare("full", exchange="orders", binding="#", x_max_length=1, x_overflow="reject-publish")
    first, second = add(db, "orders", "k"), add(db, "orders", "k")
    await_until(lambda: attempts(db, second) >= 1, 20, "the second row was refused")
    assert "nack" in db.value("SELECT last_error FROM acemq.outbox WHERE message_id = %s", (second,))
    assert ids(db.vhost.drain("full", 1)) == [first]
    assert ids(db.vhost.drain("full", 1, timeout=60)) == [second]


def test_sweep_tells(quick):
    """outbox_sweep returns what it waited for, and raises as soon as one of those rows fails."""
    db = quick
    db.vhost.declare("events", exchange="orders", binding="good")
    add(db, "orders", "good")
    assert db.value("SELECT acemq.outbox_sweep()") in (0, 1)
    add(db, "orders", "bad")
    with pytest.raises(Exception) as raised:
        db.sql("SELECT acemq.outbox_sweep('20 s')")
    assert raised.value.pgcode == "AQ005"
    assert "NO_ROUTE" in str(raised.value)


def test_cancel(db):
    """A row that waits behind a failed one can be cancelled; one that is gone cannot."""
    vhost = db.vhost
    queue = vhost.declare("events", exchange="orders", binding="good")
    sent = add(db, "orders", "good")
    assert ids(vhost.drain(queue, 1)) == [sent]
    assert db.value("SELECT acemq.outbox_cancel(%s)", (sent,)) is False
    bad = add(db, "orders", "bad")
    await_until(lambda: attempts(db, bad) >= 1, 10, "the bad row has failed and holds the lane")
    waiting = [add(db, "orders", "good", str(n)) for n in range(3)]
    await_until(lambda: db.value("SELECT acemq.outbox_cancel(%s)", (waiting[1],)), 10, "the row is cancelled")
    vhost.declare("events", exchange="orders", binding="bad")
    assert ids(vhost.drain(queue, 3, timeout=60)) == [bad, waiting[0], waiting[2]]


PATIENCE = {"acemq.retry_delay": "1h", "acemq.retry_delay_max": "1h", "acemq.poll_interval": "60s"}


@pytest.fixture
def patient(db):
    """The database with a back-off that no test waits for, and where the worker finds nothing by polling."""
    for name, value in PATIENCE.items():
        db.sql(f"ALTER DATABASE \"{db.name}\" SET {name} = '{value}'")
    restart_worker(db)
    return db


def held_by(db):
    return db.status()["held_by"] or ""


def held_lane(db, **options):
    """A failed message and one behind it; the lane is held for the first."""
    failed = add(db, "no such exchange", "k", **options)
    await_until(lambda: failed in held_by(db), 15, lambda: f"the lane is held: {held_by(db)}")
    await_until(lambda: attempts(db, failed) == 1, 10, "the attempt is written down")
    return failed, add(db, "orders", "k", **options)


CANCEL = "SELECT acemq.outbox_cancel(%(id)s)"
# How a row goes that holds its lane; whether the worker is told or has to find out when it polls.
WAYS_OUT = {
    "cancelled": [CANCEL],
    "in a subtransaction": ["SAVEPOINT a", CANCEL, "RELEASE a"],
    "undone and done again": ["SAVEPOINT a", CANCEL, "ROLLBACK TO a", CANCEL],
    "released and cancelled": ["SELECT acemq.outbox_release(%(id)s)", CANCEL],
    "deleted by hand": ["DELETE FROM acemq.outbox WHERE message_id = %(id)s"],
    "retired by hand": ["UPDATE acemq.outbox SET retired_at = now() WHERE message_id = %(id)s"],
    "no longer backing off": ["UPDATE acemq.outbox SET next_attempt_at = NULL, exchange = 'orders' WHERE message_id = %(id)s"],
}


@pytest.mark.parametrize("way", WAYS_OUT)
def test_a_lane_goes_on_without_its_failed_message(patient, way):
    """At the commit if acemq was asked, with the next poll if it was done by hand; and nothing keeps naming the message."""
    db = patient
    queue = db.vhost.declare("events", exchange="orders", binding="#")
    failed, behind = held_lane(db, ordering_key="k")
    if "hand" in way or "longer" in way:
        db.sql(f'ALTER DATABASE "{db.name}" RESET acemq.poll_interval')
        restart_worker(db)
        await_until(lambda: failed in held_by(db), 15, "the lane is held")
    with db.connect() as connection, connection.cursor() as cursor:
        for statement in WAYS_OUT[way]:
            cursor.execute(statement, {"id": failed})
        assert db.vhost.drain(queue) == [] and failed in held_by(db)
    assert ids(db.vhost.drain(queue, 1, timeout=5))[-1] in (failed, behind)
    await_until(lambda: held_by(db) == "", 5, "status names nobody")
    assert db.value("SELECT ok FROM acemq.doctor() WHERE \"check\" = 'held lanes'")


def test_a_cancel_that_is_rolled_back_frees_nothing(patient):
    queue = patient.vhost.declare("events", exchange="orders", binding="#")
    failed, behind = held_lane(patient, ordering_key="k")
    connection = patient.connect()
    with connection.cursor() as cursor:
        cursor.execute(CANCEL, {"id": failed})
        connection.rollback()
        cursor.execute("SAVEPOINT a")
        cursor.execute(CANCEL, {"id": failed})
        cursor.execute("ROLLBACK TO a")
        connection.commit()
    other = add(patient, "orders", "k")
    assert ids(patient.vhost.drain(queue, 1)) == [other]
    assert failed in held_by(patient)
    assert patient.value("SELECT acemq.outbox_cancel(%s)", (failed,))
    assert ids(patient.vhost.drain(queue, 1, timeout=5)) == [behind]


def test_the_next_failed_message_holds_its_lane(patient):
    """Two that back off in one pipelined lane: without the first the second holds it."""
    db = patient
    queue = db.vhost.declare("events", exchange="orders", binding="good")
    db.sql("SELECT acemq.relay_pause()")
    db.await_state("paused")
    first, second = add(db, "orders", "bad"), add(db, "orders", "bad")
    db.sql("UPDATE acemq.outbox SET attempts = 1, next_attempt_at = now() + '1 hour'")
    good = add(db, "orders", "good")
    db.sql("SELECT acemq.relay_resume()")
    for holder in (first, second):
        await_until(lambda: holder in held_by(db), 10, lambda: f"the lane is held: {held_by(db)}")
        assert db.vhost.drain(queue) == []
        assert db.value("SELECT acemq.outbox_cancel(%s)", (holder,))
    assert ids(db.vhost.drain(queue, 1, timeout=5)) == [good]


@pytest.mark.parametrize("report", ["outbox_mark_published(id, 'other')", "outbox_mark_failed(id, 'broken', 'other')"])
def test_a_lane_goes_on_after_a_lease(db, report):
    """A relay outside the server settles what it had leased long before the lease ends."""
    queue = db.vhost.declare("events", exchange="orders", binding="#")
    # One attempt, so that the second report retires the message: for a session that begins afterwards.
    db.sql(f"ALTER DATABASE \"{db.name}\" SET acemq.max_attempts = 1")
    db.sql(f"ALTER DATABASE \"{db.name}\" SET acemq.poll_interval = '60 s'")
    restart_worker(db)
    db.sql("SELECT acemq.relay_pause()")
    db.await_state("paused")
    leased, behind = (add(db, "orders", "k", ordering_key="k") for _ in range(2))
    (claimed,) = db.sql("SELECT id FROM acemq.outbox_claim(1, '1 hour', 'other')")
    db.sql("SELECT acemq.relay_resume()")
    await_until(lambda: leased in held_by(db), 15, lambda: f"the lane is held: {held_by(db)}")
    with db.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT acemq.{report} FROM (SELECT %s::bigint AS id) one", claimed)
        assert cursor.fetchone()[0]
    assert ids(db.vhost.drain(queue, 1, timeout=5)) == [behind]
    await_until(lambda: held_by(db) == "", 5, "status names nobody")


def test_sweep_tells_of_a_held_lane(patient):
    """The broker takes everything: it is the failed message that has to be seen to."""
    failed, _ = held_lane(patient, ordering_key="k")
    with pytest.raises(Exception) as raised:
        patient.sql("SELECT acemq.outbox_sweep('1 s')")
    assert raised.value.pgcode == "AQ004"
    assert f'lane "k", message {failed}, until ' in raised.value.diag.message_detail
    assert "outbox_pending" in raised.value.diag.message_hint and "outbox_release" in raised.value.diag.message_hint


def test_not_before(db):
    """A row waits until it is due, holds nobody meanwhile, and can be cancelled until then."""
    queue = db.vhost.declare("events", exchange="orders", binding="#")
    late = db.value("SELECT acemq.outbox_add('orders', 'k', '1', not_before => clock_timestamp() + interval '1.5 s')")
    never = db.value("SELECT acemq.outbox_add('orders', 'k', '2', not_before => clock_timestamp() + interval '1.5 s')")
    now = add(db, "orders", "k")
    assert db.value("SELECT acemq.outbox_cancel(%s)", (never,)) is True
    assert ids(db.vhost.drain(queue, 1)) == [now]
    due = db.value("SELECT not_before FROM acemq.outbox WHERE message_id = %s", (late,))
    assert ids(db.vhost.drain(queue, 1)) == [late]
    assert db.value("SELECT clock_timestamp() >= %s", (due,))
    db.sql("SELECT acemq.outbox_sweep()")
    assert db.vhost.drain(queue) == []


def test_a_record_that_ends_the_connection(quick):
    """
    The broker answers a malformed direct reply-to address with an internal
    error that ends the whole connection (RabbitMQ 4.3 has learnt to return it).
    The record is found, and charged for it.
    """
    db, vhost = quick, quick.vhost
    queue = vhost.declare("events", exchange="orders", binding="#")
    with db.connect() as connection, connection.cursor() as cursor:
        good = []
        for n in range(100):
            cursor.execute("SELECT acemq.outbox_add('orders', 'k', %s::text)", (str(n),))
            good.append(cursor.fetchone()[0])
        cursor.execute("SELECT acemq.outbox_add('', 'amq.rabbitmq.reply-to.!!!.k', '1')")
        (bad,) = cursor.fetchone()
    await_until(lambda: [row[0] for row in retired(db)] == [bad], 60, "the culprit is retired")
    with vhost.collect(queue) as collector:
        await_until(lambda: set(good) <= set(collector.ids), 30, "the others came")
    assert set(collector.ids) == set(good)
    assert re.search("INTERNAL_ERROR|NO_ROUTE", retired(db)[0][2])
    assert db.value("SELECT count(*) FROM acemq.outbox WHERE retired_at IS NULL") == 0
    in_order([int(message.body) for message in collector.messages])


def test_many_keys_to_a_deleted_exchange(db):
    """An exchange that was there and is deleted: 300 keys to it leave room for the lane that is well."""
    vhost = db.vhost
    gone = vhost.declare("gone", exchange="gone", binding="#")
    queue = vhost.declare("events", exchange="orders", binding="#")
    add(db, "gone", "k", ordering_key="first")
    assert len(vhost.drain(gone, 1)) == 1
    with vhost.channel() as channel:
        channel.exchange_delete("gone")
    good = []
    with vhost.collect(queue) as collector:
        for n in range(300):
            add(db, "gone", "k", ordering_key=f"key-{n}")
            good += [row[0] for row in db.sql("SELECT acemq.outbox_add('orders', 'k', '1') FROM generate_series(1, 20)")]
        await_until(lambda: set(good) <= set(collector.ids), 20, "the good lane is through")
    assert db.value("SELECT count(*) FROM acemq.outbox WHERE exchange = 'orders' AND attempts > 0") == 0


def test_truncate_restart_identity(db, broker):
    """Ids that are handed out again belong to other messages: what the broker says of the old ones is not believed."""
    queue = db.vhost.declare("events", exchange="orders", binding="#")
    add(db, "orders", "k", "0")
    db.vhost.drain(queue, 1)
    with broker.suspended_queue(db.vhost, queue):
        old = {add(db, "orders", "k", str(n)) for n in range(5)}
        await_until(lambda: db.status()["in_flight"] == 5, 10, "five are on the wire")
        db.sql("TRUNCATE acemq.outbox RESTART IDENTITY")
        new = {add(db, "orders", "k", str(n)) for n in range(10, 15)}
    with db.vhost.collect(queue) as collector:
        await_until(lambda: new <= set(collector.ids), 30, "the new messages came")
    assert set(collector.ids) <= old | new
    await_until(lambda: db.value("SELECT count(*) FROM acemq.outbox") == 0, 10, "the outbox is empty")


def test_rewritten_under_load(db):
    """VACUUM FULL, CLUSTER and an added column between batches: nothing is lost."""
    queue = db.vhost.declare("events", exchange="orders", binding="#")
    sent = set()
    for statement in ("VACUUM FULL acemq.outbox", "CLUSTER acemq.outbox USING outbox_pkey",
                      "ALTER TABLE acemq.outbox ADD COLUMN note text DEFAULT clock_timestamp()::text",
                      "REINDEX TABLE acemq.outbox"):
        sent |= {row[0] for row in db.sql("SELECT acemq.outbox_add('orders', 'k', '1') FROM generate_series(1, 2000)")}
        db.sql(statement)
    with db.vhost.collect(queue) as collector:
        await_until(lambda: sent <= set(collector.ids), 60, "every message came")
    assert set(collector.ids) == sent


def test_a_nacked_message_cannot_be_cancelled(quick):
    """A fanout to a queue that refuses and one that does not: the message is out, whatever the confirm says."""
    db, vhost = quick, quick.vhost
    vhost.declare("full", exchange="all", kind="fanout", x_max_length=1, x_overflow="reject-publish")
    good = vhost.declare("good", exchange="all", kind="fanout")
    add(db, "all", "k", "1")
    assert len(vhost.drain(good, 1)) == 1
    nacked = add(db, "all", "k", "2")
    await_until(lambda: attempts(db, nacked) >= 1, 10, "the message was nacked")
    assert db.value("SELECT acemq.outbox_cancel(%s)", (nacked,)) is False
    assert nacked in ids(vhost.drain(good))


def test_properties_that_close_the_channel(quick):
    """Forty keys of one exchange with a header that the broker refuses: another exchange hardly notices."""
    db, vhost = quick, quick.vhost
    vhost.declare("bad", exchange="bad", binding="#")
    queue = vhost.declare("events", exchange="orders", binding="#")
    sent = set()
    with vhost.collect(queue) as collector:
        for n in range(40):
            db.sql("SELECT acemq.outbox_add('bad', 'k', '1', headers => '{\"CC\": \"not a list\"}', ordering_key => %s)",
                   (f"key-{n}",))
            sent |= {row[0] for row in db.sql("SELECT acemq.outbox_add('orders', 'k', '1') FROM generate_series(1, 100)")}
        await_until(lambda: sent <= set(collector.ids), 30, "the good lane is through")
    await_until(lambda: len(retired(db)) == 40, 60, "all bad records are retired")
    assert set(collector.ids) == sent


def test_many_keys_on_a_new_connection(db):
    """All of 3,000 keys wait for the first message to their exchange, and then no longer."""
    queue = db.vhost.declare("events", exchange="orders", binding="#")
    ids = {row[0] for row in db.sql(
        "SELECT acemq.outbox_add('orders', 'k', '1', ordering_key => n::text) FROM generate_series(1, 3000) n")}
    with db.vhost.collect(queue) as collector:
        await_until(lambda: ids <= set(collector.ids), 15, "they are through")
