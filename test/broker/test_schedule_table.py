"""schedule_at and schedule_in by the default way: the row waits in the table and fires when it is due."""

import random
import threading
import time

import psycopg2
import pytest

from checks import Ledger, await_until, in_order


@pytest.fixture
def queue(db):
    queue = db.vhost.declare("letters", exchange="mail", binding="#")
    db.await_state("idle", "relaying")
    return queue


def schedule(db, delay, routing_key="letter.sent", **options):
    names = "".join(f", {name} => %({name})s" for name in options)
    return db.value(f"SELECT acemq.schedule_in(%(delay)s, 'mail', %(routing_key)s, '1'{names})",
                    dict(options, delay=delay, routing_key=routing_key))


def clock_offset():
    """What to add to time.monotonic() for seconds since 1970.  The server is on this machine, so it has the same clock."""
    return max(time.time() - time.monotonic() for _ in range(100))


def schedule_many(db, count, first, last, **how):
    """`count` messages at random moments from `first` to `last` seconds from now; {id: due, seconds since 1970}."""
    rows = db.sql("""
        WITH moments AS MATERIALIZED (
            SELECT clock_timestamp() + %(first)s * interval '1 s' + random() * %(span)s * interval '1 s' AS due
            FROM generate_series(1, %(count)s))
        SELECT acemq.schedule_at(due, 'mail', %(key)s, to_jsonb(due)), extract(epoch FROM due)::float8 FROM moments""",
                  {"count": count, "first": first, "span": last - first, "key": how.get("routing_key", "k")})
    return dict(rows)


def errors_of(messages, due, offset):
    """Seconds from the due time to the receipt, sorted."""
    return sorted(message.at + offset - due[message.properties.message_id] for message in messages)


def quantile(values, q):
    return values[min(int(len(values) * q), len(values) - 1)]


def test_firing_error(db, queue, long_run, capsys):
    """Received when it is due: never before, and by a deadline, not by polling.  The figures are printed."""
    count, span = (10_000, 60) if long_run else (1_500, 10)
    db.sql(f'ALTER DATABASE "{db.name}" SET acemq.poll_interval = \'60 s\'')
    db.sql("SELECT acemq.worker_restart()")
    db.await_state("idle", "relaying")
    due = schedule_many(db, count, 2, 2 + span)
    with db.vhost.collect(queue) as collector:
        messages = collector.wait(count, span + 40)
    errors = errors_of(messages, due, clock_offset())
    with capsys.disabled():
        print(f"\n  {count} messages in {span} s, received after they were due: p50 {quantile(errors, 0.5) * 1000:.2f} ms,"
              f" p99 {quantile(errors, 0.99) * 1000:.2f} ms, worst {errors[-1] * 1000:.1f} ms")
    assert sorted(due) == sorted(message.properties.message_id for message in messages)
    assert errors[0] >= -0.001  # two readings of the clock, milliseconds apart in what they round to
    assert errors[-1] < 30


def test_survives_a_restart_of_the_server(db, queue, long_run):
    """All arrive once, none early, those that were cancelled never; what was due meanwhile comes at once."""
    count, span = (10_000, 60) if long_run else (1_500, 10)
    due = schedule_many(db, count, 2, 2 + span)
    ledger = Ledger()
    ledger.commit(*due)
    late = sorted(due, key=due.get)[-count // 10:]
    with db.vhost.collect(queue) as collector:
        await_until(lambda: len(collector.ids) > count // 4, span + 20, "some have come")
        db.cluster.restart()
        for message_id in late[::2]:
            if db.value("SELECT acemq.outbox_cancel(%s)", (message_id,)):
                ledger.committed.discard(message_id)
                ledger.roll_back(message_id)
        assert ledger.rolled_back
        await_until(lambda: set(collector.ids) >= ledger.committed, span + 60, "all have come")
        await_until(lambda: db.value("SELECT count(*) FROM acemq.outbox") == 0, what="the table is empty")
        messages = collector.messages
    # An orderly restart: what is on the wire is confirmed or sent again.
    ledger.check([message.properties.message_id for message in messages], duplicates=1000)
    assert errors_of(messages, due, clock_offset())[0] >= -0.001


def test_order_of_a_lane_is_that_of_the_due_times(db, queue):
    """Whatever the order of adding, with and without an ordering key."""
    dues = [2000 + 5 * number for number in range(60)]
    random.Random(8).shuffle(dues)
    for key in (None, "acme"):
        db.sql("SELECT acemq.schedule_at(now() + due * interval '1 ms', 'mail', %s, to_jsonb(due), ordering_key => %s)"
               " FROM unnest(%s::int[]) due", (key or "plain", key, dues))
    assert db.value("SELECT count(*) FROM acemq.outbox WHERE not_before > clock_timestamp()") == 120
    messages = db.vhost.drain(queue, 120, 20)
    for routing_key in ("plain", "acme"):
        came = [int(message.body) for message in messages if message.routing_key == routing_key]
        assert len(came) == 60
        in_order(came)


def test_order_of_what_became_due_in_a_pause(db, queue):
    """It leaves in the order of the due times too, before the relay has seen any of it and after a new start."""
    db.sql("SELECT acemq.relay_pause()")
    db.await_state("paused")
    dues = list(range(300))
    random.Random(9).shuffle(dues)
    for key in (None, "acme"):
        db.sql("SELECT acemq.schedule_at(now() + (due - 300) * interval '1 s', 'mail', %s, to_jsonb(due), ordering_key => %s)"
               " FROM unnest(%s::int[]) due", (key or "plain", key, dues))
    db.sql("SELECT acemq.worker_restart()")
    db.await_state("paused")
    db.sql("SELECT acemq.relay_resume()")
    messages = db.vhost.drain(queue, 600, 30)
    for routing_key in ("plain", "acme"):
        assert [int(message.body) for message in messages if message.routing_key == routing_key] == list(range(300))


def shuffled_dues(db, due, count, key):
    """`count` messages of an ordering key, due at `due` + n ms (SQL), added in any order; the bodies are the n."""
    dues = list(range(count))
    random.Random(count).shuffle(dues)
    db.sql(f"SELECT acemq.schedule_at({due} + due * interval '1 ms', 'mail', 'k', to_jsonb(due), ordering_key => %s)"
           " FROM unnest(%s::int[]) due", (key, dues))


def test_order_of_due_messages_over_lost_connections(db, broker, queue):
    """More of them than one scan reads, and than fit into memory."""
    shuffled_dues(db, "now() - interval '1 h'", 3000, "acme")
    with db.vhost.collect(queue) as collector:
        for count in (200, 800, 1500):
            await_until(lambda count=count: len(collector.messages) >= count, 60, "some have come")
            broker.close_connections()
        await_until(lambda: len({message.body for message in collector.messages}) == 3000, 60, "all have come")
        in_order([int(message.body) for message in collector.messages])


def test_order_of_due_messages_behind_a_failed_one(db):
    """They become due while the lane is held; how long they have waited counts from then."""
    db.vhost.declare_exchange("mail")
    shuffled_dues(db, "now() + interval '1 s'", 700, "acme")
    db.sql("UPDATE acemq.outbox SET created_at = created_at - interval '1 day'")
    await_until(lambda: db.value("SELECT max(attempts) FROM acemq.outbox") >= 2, what="the first has failed twice")
    await_until(lambda: db.value("SELECT oldest_age FROM acemq.status") is not None, what="the oldest is known")
    assert db.value("SELECT oldest_age < interval '1 h' FROM acemq.status")
    queue = db.vhost.declare("letters", exchange="mail", binding="#")
    assert [int(message.body) for message in db.vhost.drain(queue, 700, 60)] == list(range(700))
    assert db.value("SELECT lag_p99 < 3600 FROM acemq.status")


def test_waiting_rows_delay_nobody(db, queue):
    """Of the same lane and exchange: what is to leave now does."""
    db.sql("SELECT acemq.schedule_in('1 h', 'mail', 'k', '1', ordering_key => 'acme') FROM generate_series(1, 5000)")
    db.sql("SELECT acemq.schedule_in('1 year', 'mail', 'k', '1') FROM generate_series(1, 5000)")
    ids = [db.value("SELECT acemq.outbox_add('mail', 'k', '1', ordering_key => 'acme')") for _ in range(10)]
    ids += [db.value("SELECT acemq.outbox_add('mail', 'k', '1')") for _ in range(10)]
    assert db.value("SELECT acemq.outbox_sweep()") <= 20
    assert sorted(message.properties.message_id for message in db.vhost.drain(queue)) == sorted(ids)
    assert db.value("SELECT count(*) FROM acemq.outbox_pending") == 10_000


def test_a_time_that_is_past(db, queue):
    ids = [schedule(db, delay) for delay in ("-1 h", "0", "-99 years")]
    ids.append(db.value("SELECT acemq.schedule_at('2000-01-01 UTC', 'mail', 'k', '1')"))
    assert sorted(message.properties.message_id for message in db.vhost.drain(queue, 4)) == sorted(ids)


def test_the_message_is_an_ordinary_one(db, queue):
    message_id = schedule(db, "200 ms", headers='{"x-tenant": "acme"}', expiration="1 h")
    message = db.vhost.get(queue)
    assert message.properties.message_id == message_id
    assert (message.properties.content_type, message.properties.expiration) == ("application/json", "3600000")
    assert message.headers["x-acemq-type"] == "letter.sent"
    assert [name for name in message.headers if not name.startswith("x-acemq-")] == ["x-tenant"]
    status = db.status()
    assert [status[f"ladder_{name}"] for name in ("scheduled", "hops", "delivered")] == [0, 0, 0]


def test_cancelled_until_it_is_on_the_wire(db, queue):
    """Cancels race with due times: each message is sent or cancelled, never both, never neither."""
    ledger = Ledger()
    lock = threading.Lock()

    def work(seed):
        rng = random.Random(seed)
        with db.connect(autocommit=True).cursor() as cursor:
            for _ in range(150):
                cursor.execute("SELECT acemq.schedule_in(%s * interval '1 ms', 'mail', 'k', '1')", (rng.randint(0, 12),))
                (message_id,) = cursor.fetchone()
                time.sleep(rng.random() / 100)
                cursor.execute("SELECT acemq.outbox_cancel(%s)", (message_id,))
                with lock:
                    (ledger.roll_back if cursor.fetchone()[0] else ledger.commit)(message_id)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ledger.committed) + len(ledger.rolled_back) == 600
    assert ledger.committed and ledger.rolled_back
    await_until(lambda: db.value("SELECT count(*) FROM acemq.outbox") == 0, what="the table is empty")
    ledger.check([message.properties.message_id for message in db.vhost.drain(queue)])


def test_rolled_back_is_never_sent(db, queue):
    """Also in a savepoint, and by COMMIT PREPARED after the time."""
    with db.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SAVEPOINT s")
        cursor.execute("SELECT acemq.schedule_in('100 ms', 'mail', 'k', '1')")
        cursor.execute("ROLLBACK TO s")
        cursor.execute("SELECT acemq.schedule_in('100 ms', 'mail', 'k', '2')")
    with pytest.raises(psycopg2.errors.DivisionByZero), db.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT acemq.schedule_in('100 ms', 'mail', 'k', '3')")
        cursor.execute("SELECT 1 / 0")
    assert db.vhost.get(queue).body == b"2"
    time.sleep(0.5)  # that nothing more comes is what is tested
    assert db.vhost.count(queue) == 0
