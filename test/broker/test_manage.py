"""Working with the outbox while the relay runs: sweep, cancel, release, pause, a relay outside the server."""

import threading
import time

import psycopg2
import pytest
from psycopg2 import errorcodes

import pika
from checks import Ledger, await_until

RETRY = {"acemq.retry_delay": "100ms", "acemq.retry_delay_max": "100ms", "acemq.max_attempts": "2"}


@pytest.fixture
def queue(db):
    queue = db.vhost.declare("events", exchange="orders", binding="#")
    db.await_state("idle", "relaying")
    return queue


def add(db, message_id=None, exchange="orders", **options):
    names = "".join(f", {name} => %({name})s" for name in options)
    return db.value(f"SELECT acemq.outbox_add(%(exchange)s, 'k', '1', message_id => %(message_id)s{names})",
                    dict(options, exchange=exchange, message_id=message_id))


def ids(messages):
    return [message.properties.message_id for message in messages]


def restart_worker(db, settings):
    for name, value in settings.items():
        db.sql(f'ALTER DATABASE "{db.name}" SET {name} = %s', (str(value),))
    db.sql("SELECT acemq.worker_restart()")
    db.await_state("idle", "relaying")


def raises(connection, query, sqlstate, within=5.0):
    """The statement fails with that SQLSTATE, soon; its message."""
    begun = time.monotonic()
    with connection.cursor() as cursor, pytest.raises(psycopg2.Error) as caught:
        cursor.execute(query)
    assert caught.value.pgcode == sqlstate, caught.value
    assert time.monotonic() - begun < within
    return str(caught.value)


# -- sweep -------------------------------------------------------------------


def test_sweep_returns_when_all_is_sent(db, queue):
    for _ in range(50):
        add(db)
    waited = db.value("SELECT acemq.outbox_sweep()")
    assert db.vhost.count(queue) == 50
    assert 0 <= waited <= 50
    assert db.value("SELECT acemq.outbox_sweep()") == 0


def test_sweep_counts_what_waits_for_it(db, queue):
    """A backlog from a pause: every row is counted, none is left when it returns."""
    db.sql("SELECT acemq.relay_pause()")
    db.await_state("paused")
    db.sql("SELECT acemq.outbox_add('orders', 'k', '1') FROM generate_series(1, 5000)")
    db.sql("SELECT acemq.relay_resume()")
    db.await_state("relaying", "idle")
    waited = db.value("SELECT acemq.outbox_sweep('60 s')")
    assert db.vhost.count(queue) == 5000
    assert db.value("SELECT count(*) FROM acemq.outbox") == 0
    assert waited <= 5000


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_sweep_looks_with_fresh_snapshots(db, queue, isolation):
    """What others commit after our snapshot is waited for, what they send is seen, our own rows do not count."""
    connection = db.connect()
    with connection.cursor() as cursor:
        cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
        cursor.execute("SELECT count(*) FROM acemq.outbox")
        cursor.execute("SELECT acemq.outbox_add('orders', 'k', '1')")
        add(db, "other")
        cursor.execute("SELECT acemq.outbox_sweep()")
        assert cursor.fetchone()[0] in (0, 1)
        assert ids(db.vhost.drain(queue)) == ["other"]
    connection.rollback()


def test_sweep_leaves_out_what_is_not_due(db, queue):
    due = db.value("SELECT clock_timestamp() + interval '1 hour'")
    add(db, "later", not_before=due)
    assert db.value("SELECT acemq.outbox_sweep()") == 0
    assert db.value("SELECT count(*) FROM acemq.outbox_pending") == 1


def test_sweep_raises_for_a_failed_message(db, queue):
    add(db, "lost", exchange="nowhere")
    message = raises(db.connect(), "SELECT acemq.outbox_sweep('30 s')", "AQ005")
    assert '"lost"' in message and "nowhere" in message


def test_sweep_raises_when_nothing_relays(db, queue):
    db.sql("SELECT acemq.relay_pause()")
    db.await_state("paused")
    assert "relay_resume" in raises(db.connect(), "SELECT acemq.outbox_sweep('30 s')", "AQ003")


def test_sweep_follows_a_resume(db, queue):
    """Right after the resume, when the worker has not looked yet."""
    for number in range(10):
        db.sql("SELECT acemq.relay_pause()")
        db.await_state("paused")
        add(db, f"m{number}")
        db.sql("SELECT acemq.relay_resume()")
        assert db.value("SELECT acemq.outbox_sweep()") == 1
    assert db.vhost.count(queue) == 10


def test_sweep_follows_a_setting(db, queue):
    """Also the other switch: it goes to the worker by a reload."""
    try:
        db.cluster.configure(acemq__relay="off")
        db.await_state("paused")
        assert "acemq.relay" in raises(db.connect(), "SELECT acemq.outbox_sweep('30 s')", "AQ003")
        raises(db.connect(), "SELECT acemq.outbox_sweep('0')", "AQ003", within=1)
        add(db, "m")
        db.cluster.configure(acemq__relay=None)
        assert db.value("SELECT acemq.outbox_sweep()") == 1
    finally:
        db.cluster.configure(acemq__relay=None)


def test_resume_says_that_the_other_switch_is_off(db, queue):
    def notices():
        connection = db.connect(autocommit=True)
        with connection.cursor() as cursor:
            cursor.execute("SELECT acemq.relay_resume()")
        return "".join(connection.notices)

    assert notices() == ""
    try:
        db.cluster.configure(acemq__relay="off")
        db.await_state("paused")
        assert "acemq.relay is off" in notices()
    finally:
        db.cluster.configure(acemq__relay=None)


def test_sweep_raises_when_paused_while_it_waits(db, queue):
    add(db, "held", exchange="orders", not_before=db.value("SELECT clock_timestamp() + interval '300 ms'"))
    db.vhost.declare_exchange("empty")
    restart_worker(db, {"acemq.retry_delay": "1h", "acemq.retry_delay_max": "1h"})
    add(db, "stuck", exchange="empty")
    await_until(lambda: db.value("SELECT max(attempts) FROM acemq.outbox_pending") == 1, what="the row has failed")
    timer = threading.Timer(0.5, lambda: db.cluster.sql("SELECT acemq.relay_pause()", dbname=db.name))
    timer.start()
    raises(db.connect(), "SELECT acemq.outbox_sweep('30 s')", "AQ003")
    timer.join()


def test_sweep_times_out_without_a_broker(db, queue, broker):
    broker.stop_app()
    try:
        add(db, "waiting")
        db.await_state("disconnected")
        begun = time.monotonic()
        message = raises(db.connect(), "SELECT acemq.outbox_sweep('1 s')", "AQ004", within=4)
        assert time.monotonic() - begun >= 1
        assert "1 of 1 messages" in message and "disconnected" in message
    finally:
        broker.start_app()
    assert db.value("SELECT acemq.outbox_sweep('30 s')") <= 1
    assert ids(db.vhost.drain(queue)) == ["waiting"]


def test_sweep_waits_out_a_lost_connection(db, queue, broker):
    broker.stop_app()
    db.await_state("disconnected")
    add(db, "patient")
    timer = threading.Timer(1, broker.start_app)
    timer.start()
    assert db.value("SELECT acemq.outbox_sweep('60 s')") == 1
    timer.join()
    assert ids(db.vhost.drain(queue)) == ["patient"]


def test_sweep_raises_when_the_login_is_refused(db, queue, cluster, broker):
    wrong = cluster.secret_file("wrong-password", "wrong\n")
    db.sql(f'ALTER DATABASE "{db.name}" SET acemq.password_file = %s', (wrong,))
    add(db, "locked-out", not_before=db.value("SELECT clock_timestamp() + interval '500 ms'"))
    db.sql("SELECT acemq.worker_restart()")
    await_until(lambda: db.value("SELECT clock_timestamp() > not_before FROM acemq.outbox"), 5, "the message is due")
    message = raises(db.connect(), "SELECT acemq.outbox_sweep('30 s')", "AQ004", within=15)
    assert "wrong" not in message.replace("wrong-password", "")
    assert "ACCESS_REFUSED" in message

    # Corrected in the file only: nothing but the next sweep tells the worker.
    cluster.secret_file("wrong-password", broker.password + "\n")
    assert db.value("SELECT acemq.outbox_sweep()") == 1
    assert ids(db.vhost.drain(queue)) == ["locked-out"]


def test_sweep_after_a_setting_was_mended(db, queue, cluster, broker):
    """A reload, and the sweep before the worker has heard of it: the refusal of before is not the answer."""
    good = cluster.secret_file("good-password", broker.password + "\n")
    wrong = cluster.secret_file("wrong-password", "wrong\n")
    try:
        cluster.configure(acemq__password_file=good)
        db.sql(f'ALTER DATABASE "{db.name}" RESET acemq.password_file')
        restart_worker(db, {})
        for number in range(3):
            cluster.configure(acemq__password_file=wrong)
            await_until(lambda: "ACCESS_REFUSED" in (db.status()["last_error"] or "")
                        and db.status()["state"] == "disconnected", what="the login is refused")
            add(db, f"m{number}")
            cluster.configure(acemq__password_file=good)
            assert db.value("SELECT acemq.outbox_sweep()") == 1
    finally:
        cluster.configure(acemq__password_file=None)
    assert db.vhost.count(queue) == 3


def test_sweep_counts_what_is_left(db, queue):
    """Of a backlog of which all but one message goes out."""
    restart_worker(db, {"acemq.retry_delay": "1h", "acemq.retry_delay_max": "1h"})
    add(db, "stuck", exchange="nowhere")
    await_until(lambda: db.value("SELECT max(attempts) FROM acemq.outbox_pending") == 1, what="the row has failed")
    db.sql("SELECT acemq.outbox_add('orders', 'k', '1') FROM generate_series(1, 2000)")
    message = raises(db.connect(), "SELECT acemq.outbox_sweep('3 s')", "AQ004", within=6)
    assert ": 1 of " in message
    assert 'lane "nowhere", message stuck' in message and "NOT_FOUND" not in message


def test_a_harmless_reload_is_no_error(db, queue, cluster):
    """The worker connects again with other settings; the log says why, and status has no error to show."""
    add(db)
    db.sql("SELECT acemq.outbox_sweep()")
    before = db.status()["reconnects"]
    mark = cluster.log_mark()
    try:
        cluster.configure(acemq__heartbeat="33")
        await_until(lambda: db.status()["reconnects"] > before, what="it has connected again")
    finally:
        cluster.configure(acemq__heartbeat=None)
    assert db.status()["last_error"] is None
    assert "settings of the connection have changed" in cluster.log_since(mark)


def test_sweep_can_be_cancelled(db, queue):
    restart_worker(db, {"acemq.retry_delay": "1h", "acemq.retry_delay_max": "1h"})
    add(db, "stuck", exchange="nowhere")
    await_until(lambda: db.value("SELECT max(attempts) FROM acemq.outbox_pending") == 1, what="the row has failed")
    connection = db.connect()
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = '500ms'")
    raises(connection, "SELECT acemq.outbox_sweep('30 s')", errorcodes.QUERY_CANCELED, within=3)


# -- cancel ------------------------------------------------------------------


def test_cancelled_is_never_sent(db, queue):
    due = db.value("SELECT clock_timestamp() + interval '500 ms'")
    add(db, "no", not_before=due)
    add(db, "yes", not_before=due)
    assert db.value("SELECT acemq.outbox_cancel('no')")
    assert ids(db.vhost.drain(queue, 1)) == ["yes"]
    time.sleep(0.5)  # that nothing more comes is what is tested
    assert db.vhost.count(queue) == 0
    assert not db.value("SELECT acemq.outbox_cancel('yes')")


def test_a_cancel_that_rolls_back_does_not_delay(db, queue):
    """The relay passes over the row while the cancel is open; afterwards it comes at once."""
    due = db.value("SELECT clock_timestamp() + interval '300 ms'")
    add(db, "back", not_before=due)
    connection = db.connect()
    with connection.cursor() as cursor:
        cursor.execute("SELECT acemq.outbox_cancel('back')")
        assert cursor.fetchone()[0]
        time.sleep(1)  # that nothing comes while the transaction is open is what is tested
        assert db.vhost.count(queue) == 0
        connection.rollback()
    begun = time.monotonic()
    assert ids(db.vhost.drain(queue, 1)) == ["back"]
    assert time.monotonic() - begun < 1


def test_a_failed_message_can_be_cancelled(db, queue):
    """It is not on its way while it waits for the next attempt."""
    restart_worker(db, {"acemq.retry_delay": "1h", "acemq.retry_delay_max": "1h"})
    add(db, "failed", exchange="nowhere")
    await_until(lambda: db.value("SELECT max(attempts) FROM acemq.outbox_pending") == 1, what="the row has failed")
    await_until(lambda: db.value("SELECT acemq.outbox_cancel('failed')"), 2, "the relay has let go of it")
    assert db.value("SELECT count(*) FROM acemq.outbox") == 0
    assert db.status()["pending"] == 0


def test_a_lease_that_ran_out_bars_the_cancel_until_the_relay_has_tried(db, queue):
    """Nobody knows what the relay outside did with it; once ours has had it back from the broker, we do."""
    restart_worker(db, {"acemq.retry_delay": "1h", "acemq.retry_delay_max": "1h"})
    db.sql("SELECT acemq.relay_pause()")
    db.await_state("paused")
    add(db, "leased", exchange="nowhere")
    assert len(db.sql("SELECT id FROM acemq.outbox_claim(1, '1 s', 'outside')")) == 1
    await_until(lambda: db.value("SELECT clock_timestamp() > leased_until FROM acemq.outbox WHERE message_id = 'leased'"),
                5, "the lease has run out")
    assert not db.value("SELECT acemq.outbox_cancel('leased')")
    db.sql("SELECT acemq.relay_resume()")
    await_until(lambda: db.value("SELECT max(attempts) FROM acemq.outbox_pending") == 1, what="the row has failed")
    await_until(lambda: db.value("SELECT acemq.outbox_cancel('leased')"), 2, "the relay has let go of it")
    assert db.status()["pending"] == 0


def test_cancel_and_relay_agree(db, queue, long_run):
    """Whatever the interleaving: a message is cancelled or sent, never both, never neither."""
    rounds = 20_000 if long_run else 2_000
    ledger = Ledger()

    def work(seed):
        connection = db.connect(autocommit=True)
        with connection.cursor() as cursor:
            for number in range(rounds // 4):
                name = f"{seed}-{number}"
                cursor.execute("SELECT acemq.outbox_add('orders', 'k', '1', message_id => %s)", (name,))
                if (number * 7 + seed) % 3 == 0:
                    time.sleep((number % 10) / 10_000)
                cursor.execute("SELECT acemq.outbox_cancel(%s)", (name,))
                (ledger.roll_back if cursor.fetchone()[0] else ledger.commit)(name)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    db.sql("SELECT acemq.outbox_sweep('30 s')")
    assert len(ledger.committed) + len(ledger.rolled_back) == rounds // 4 * 4
    assert ledger.committed and ledger.rolled_back
    ledger.check(ids(db.vhost.drain(queue, len(ledger.committed), 30) + db.vhost.drain(queue)))
    status = db.status()
    assert (status["pending"], status["retired"]) == (0, 0)


# -- retired -----------------------------------------------------------------


@pytest.mark.parametrize("call", ["outbox_release('first')", "outbox_release_all('late')", "outbox_release_all()"])
def test_released_goes_out(db, queue, call):
    restart_worker(db, RETRY)
    add(db, "first", exchange="late")
    await_until(lambda: db.status()["retired"] == 1, what="the message is retired")
    for number in range(3):
        add(db, f"other-{number}")
    db.sql("SELECT acemq.outbox_sweep()")
    late = db.vhost.declare("late-queue", exchange="late")
    assert db.value(f"SELECT acemq.{call}") in (True, 1)
    assert ids(db.vhost.drain(late, 1, 5)) == ["first"]
    await_until(lambda: (db.status()["pending"], db.status()["retired"]) == (0, 0), what="counters are right")


@pytest.mark.parametrize("call", ["outbox_release('first')", "outbox_release_all('late')", "outbox_release_all()"])
@pytest.mark.parametrize("options", [{}, {"ordering_key": "customer"}])
def test_a_mended_message_can_be_tried_now(db, queue, call, options):
    """It backs off for an hour, and so does what waits behind it; released, all goes out at once and in order."""
    restart_worker(db, {"acemq.retry_delay": "1h", "acemq.retry_delay_max": "1h"})
    add(db, "first", exchange="late", **options)
    await_until(lambda: db.value("SELECT max(attempts) FROM acemq.outbox_pending") == 1, what="the row has failed")
    add(db, "second", exchange="late", **options)
    late = db.vhost.declare("late-queue", exchange="late")
    assert not db.value("SELECT acemq.outbox_release('second')")
    assert db.value(f"SELECT acemq.{call}") in (True, 1)
    assert ids(db.vhost.drain(late, 2, 5)) == ["first", "second"]
    await_until(lambda: (db.status()["pending"], db.status()["retired"]) == (0, 0), what="counters are right")


def test_discard_is_logged(db, queue):
    restart_worker(db, RETRY)
    add(db, "bad", exchange="nowhere")
    await_until(lambda: db.status()["retired"] == 1, what="the message is retired")
    mark = db.cluster.log_mark()
    assert db.value("SELECT acemq.outbox_discard('bad', 'ticket 4711')")
    log = db.cluster.log_since(mark)
    assert '"bad"' in log and "ticket 4711" in log and "nowhere" in log
    assert db.status()["retired"] == 0


# -- pause, and a relay outside ----------------------------------------------


def test_pause_holds_and_resume_sends(db, queue):
    db.sql("SELECT acemq.relay_pause()")
    db.await_state("paused")
    add(db, "held")
    time.sleep(0.5)  # that nothing comes is what is tested
    assert db.vhost.count(queue) == 0
    db.cluster.restart()
    db.await_state("paused")
    db.sql("SELECT acemq.relay_resume()")
    assert ids(db.vhost.drain(queue, 1)) == ["held"]


def test_two_relays_take_turns(db, queue):
    """A relay of ours leases half of the rows; the one in the server sends the other half, and the lost ones later."""
    db.sql("SELECT acemq.relay_pause()")
    db.await_state("paused")
    ledger = Ledger()
    for number in range(20):
        ledger.commit(add(db, f"m{number}"))
    rows = db.sql("SELECT id, message_id, exchange, routing_key, content_type, headers, body FROM acemq.outbox_claim(8, '2 s', 'outside')")
    assert [row[1] for row in rows] == [f"m{number}" for number in range(8)]
    assert psycopg_error(db, "SELECT * FROM acemq.outbox_claim(0)") == "22023"

    with db.vhost.channel() as channel:
        channel.confirm_delivery()
        for row in rows[:5]:
            channel.basic_publish(row[2], row[3], bytes(row[6]), pika.BasicProperties(
                message_id=row[1], content_type=row[4], headers=row[5], delivery_mode=2), mandatory=True)
            assert db.value("SELECT acemq.outbox_mark_published(%s, 'outside')", (row[0],))
    db.sql("SELECT acemq.relay_resume()")
    db.await_state("relaying", "idle")
    assert psycopg_error(db, "SELECT * FROM acemq.outbox_claim()") == "55000"
    await_until(lambda: db.value("SELECT count(*) FROM acemq.outbox") == 0, 20, "the leases have run out and all is sent")
    ledger.check(ids(db.vhost.drain(queue)))
    assert not db.value("SELECT acemq.outbox_mark_published(%s, 'outside')", (rows[6][0],))


def psycopg_error(db, query):
    with pytest.raises(psycopg2.Error) as caught:
        db.sql(query)
    return caught.value.pgcode
