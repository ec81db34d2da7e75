"""acemq.doctor() and acemq.status: what they say of each trouble, and what to do about it."""

import contextlib
import os

import pytest

import ladder
from checks import await_until
from cluster import Cluster


@pytest.fixture
def queue(db):
    queue = db.vhost.declare("events", exchange="orders", binding="#")
    db.await_state("idle", "relaying")
    ladder.await_consuming(db)
    return queue


def report(db):
    """{check: (ok, detail, hint)}, read by a session that is new."""
    with contextlib.closing(db.cluster.connect(db.name)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT * FROM acemq.doctor()")
        return {check: tuple(rest) for check, *rest in cursor}


def fail_one(db):
    db.sql("SELECT acemq.outbox_add('nowhere', 'k', '1', message_id => 'unroutable')")
    await_until(lambda: db.value("SELECT max(attempts) FROM acemq.outbox_pending") >= 1, what="the row has failed")


def write_conf(cluster, text):
    """A line of our own in the configuration file, as an administrator writes it."""
    with open(f"{cluster.data}/postgresql.conf", encoding="utf-8") as conf:
        kept = [line for line in conf if "# test" not in line]
    with open(f"{cluster.data}/postgresql.conf", "w", encoding="utf-8") as conf:
        conf.writelines(kept + ([text + " # test\n"] if text else []))
    cluster.sql("SELECT pg_reload_conf()")


def test_all_is_well(db, queue):
    assert [check for check, (ok, _, _) in report(db).items() if not ok] == []


def test_the_scheduler(db, queue, broker):
    """Consuming, without a broker, switched off.  (A rung that differs: test_scheduler.py.)"""
    ok, detail, _ = report(db)["scheduler"]
    assert ok and detail.startswith("consuming since")
    ok, detail, _ = report(db)["ladder"]
    assert ok and "as they should be" in detail
    broker.stop_app()
    try:
        await_until(lambda: db.status()["scheduler"] == "disconnected", 15, lambda: db.status())
        ok, detail, hint = report(db)["scheduler"]
        assert not ok and detail.startswith("disconnected since") and "by itself" in hint
    finally:
        broker.start_app()
    ladder.await_consuming(db)
    db.sql(f'ALTER DATABASE "{db.name}" SET acemq.scheduler = off')
    db.sql("SELECT acemq.worker_restart()")
    await_until(lambda: "acemq.scheduler is off" in report(db).get("scheduler", ("", ""))[1], 15, "the doctor says so")
    assert report(db)["scheduler"][0] and report(db)["ladder"][0]


@pytest.mark.parametrize("line, words", [
    ("acemq.url = 'amqq://user:hush@host'", "acemq.url cannot be used: it does not begin with amqp"),
    ("acemq.poll_interval = 'hush'", "acemq.poll_interval"),
    ("acemq.pol_interval = 'hush'", "acemq.pol_interval"),
    ("acemq.url = hush: 'x", "a line that cannot be read"),
])
def test_a_refused_line_of_the_configuration_file(db, queue, cluster, line, words):
    try:
        write_conf(cluster, line)
        ok, detail, hint = report(db)["configuration file"]
        assert not ok and words in detail and "postgresql.conf, line" in detail and "pg_reload_conf" in hint
        assert "hush" not in detail
    finally:
        write_conf(cluster, None)
    assert report(db)["configuration file"][0]


def test_a_database_setting_the_worker_has_not(db, queue):
    db.sql(f'ALTER DATABASE "{db.name}" SET acemq.url = %s', ("amqp://somebody@localhost/else",))
    ok, detail, hint = report(db)["broker URL"]
    assert not ok and "another value" in detail and "worker_restart" in hint
    db.sql(f'ALTER DATABASE "{db.name}" SET acemq.relay = off')
    ok, detail, hint = report(db)["relay on"]
    assert not ok and "on in the worker" in detail and "worker_restart" in hint


def test_the_worker_counts_and_not_the_session(db, queue):
    """The worker has no URL; a session that has one does not make it better."""
    url = db.vhost.url()
    db.sql(f'ALTER DATABASE "{db.name}" RESET acemq.url')
    db.sql("SELECT acemq.worker_restart()")
    db.await_state("disconnected")
    assert "acemq.url is empty in the worker" in report(db)["broker URL"][1]
    db.sql(f'ALTER DATABASE "{db.name}" SET acemq.url = %s', (url,))
    ok, detail, _ = report(db)["broker URL"]
    assert not ok and "but set in this session" in detail
    assert "no broker URL" in report(db)["broker"][1]


def test_paused(db, queue):
    fail_one(db)
    db.sql("SELECT acemq.relay_pause()")
    db.await_state("paused")
    ok, detail, hint = report(db)["broker"]
    assert not ok and "paused" in detail and "relay_resume" in hint
    assert "nowhere" not in detail


def test_blocked(db, queue, broker):
    fail_one(db)
    with broker.memory_alarm():
        db.sql("SELECT acemq.outbox_add('orders', 'k', '1')")
        db.await_state("blocked")
        ok, detail, hint = report(db)["broker"]
    assert not ok and "blocked publishing" in detail and "memory" in hint
    assert "nowhere" not in detail


def test_unreachable(db, queue, broker):
    fail_one(db)
    broker.stop_app()
    try:
        db.await_state("disconnected")
        await_until(lambda: "cannot be reached" in report(db)["broker"][1], what="it has tried to connect")
        ok, detail, hint = report(db)["broker"]
        assert not ok and "nowhere" not in detail and "runs" in hint
        assert "nowhere" not in db.status()["last_error"]
    finally:
        broker.start_app()
    db.await_state("idle", "relaying")


@pytest.mark.parametrize("mode, words, hint_words", [
    (0o600, "refuses the login", "acemq.password_file"),
    (0o644, "acemq.password_file must be", "reload"),
])
def test_login(db, queue, cluster, mode, words, hint_words):
    path = cluster.secret_file("bad-password", "hush\n")
    os.chmod(path, mode)
    db.sql(f'ALTER DATABASE "{db.name}" SET acemq.password_file = %s', (path,))
    db.sql("SELECT acemq.worker_restart()")
    await_until(lambda: words in report(db)["broker"][1], 15, lambda: str(report(db)["broker"]))
    ok, detail, hint = report(db)["broker"]
    assert not ok and hint_words in hint and "hush" not in detail


def test_held_lane(db, queue):
    """The lane and the message that holds it, in status too; and where to see all of them."""
    db.sql(f'ALTER DATABASE "{db.name}" SET acemq.retry_delay = \'1h\'')
    db.sql(f'ALTER DATABASE "{db.name}" SET acemq.retry_delay_max = \'1h\'')
    db.sql("SELECT acemq.worker_restart()")
    db.await_state("idle", "relaying")
    fail_one(db)
    held = await_until(lambda: db.status()["held_by"], what="status names it")
    assert "unroutable" in held and "nowhere" in held
    ok, detail, hint = report(db)["held lanes"]
    assert not ok and detail == db.status()["held_by"] and "outbox_pending" in hint and "outbox_release" in hint
    assert report(db)["backlog"][1].startswith(("1 message is waiting", "about 1 message is waiting"))


def test_two_held_lanes(db, queue):
    db.sql(f'ALTER DATABASE "{db.name}" SET acemq.retry_delay = \'1h\'')
    db.sql(f'ALTER DATABASE "{db.name}" SET acemq.retry_delay_max = \'1h\'')
    db.sql("SELECT acemq.worker_restart()")
    db.await_state("idle", "relaying")
    db.sql("SELECT acemq.outbox_add(exchange, 'k', '1') FROM (VALUES ('nowhere'), ('elsewhere')) v (exchange)")
    await_until(lambda: "2 lanes are held" in report(db)["held lanes"][1], 15, lambda: str(report(db)["held lanes"]))


def test_a_file_is_mended(db, queue, cluster, broker):
    """outbox_sweep() has both connections tried again: neither waits for the half minute that a bad setting costs."""
    path = cluster.secret_file("mended", broker.password + "\n")
    os.chmod(path, 0o644)
    db.sql(f'ALTER DATABASE "{db.name}" SET acemq.password_file = %s', (path,))
    db.sql("SELECT acemq.worker_restart()")
    await_until(lambda: "acemq.password_file must be" in (db.status()["scheduler_problem"] or ""), 15, lambda: str(db.status()))
    await_until(lambda: "acemq.password_file must be" in report(db)["broker"][1], 15, lambda: str(report(db)["broker"]))
    os.chmod(path, 0o600)
    db.sql("SELECT acemq.outbox_sweep()")
    db.await_state("idle", "relaying", timeout=5)
    await_until(lambda: db.status()["scheduler"] == "consuming", 5, lambda: str(db.status()))


def test_nobody_is_told_of_a_row_that_is_sent(db, queue):
    """The age of the oldest row goes with the row, also of one that waited while relaying was paused."""
    db.sql("SELECT acemq.relay_pause()")
    db.await_state("paused")
    db.sql("SELECT acemq.outbox_add('orders', 'k', '1')")
    await_until(lambda: db.status()["oldest_age"] is not None, what="status tells of the row")
    db.sql("SELECT acemq.relay_resume()")
    seen = await_until(lambda: (lambda now: now if now["pending"] == 0 else None)(db.status()), what="the row is sent")
    if seen["oldest_age"] is not None:  # a moment between two counters
        await_until(lambda: db.status()["oldest_age"] is None, 0.4, "nothing waits any more")
    assert report(db)["backlog"][:2] == (True, "0 messages are waiting")


def test_rows_that_came_past_outbox_add(db, queue):
    """As pg_restore brings them, while relaying is paused: they are counted all the same."""
    db.sql("SELECT acemq.relay_pause()")
    db.await_state("paused")
    db.sql("INSERT INTO acemq.outbox (message_id, exchange, routing_key, body, content_type)"
           " SELECT 'restored-' || n, 'orders', 'k', '1', 'application/json' FROM generate_series(1, 7) n")
    await_until(lambda: (db.status()["pending"], db.status()["pending_approximate"]) == (7, False), 40, lambda: str(db.status()))


def test_no_rights_to_the_ladder(db, queue, broker):
    """Told once, with what to do; not for each of its objects."""
    broker.ctl("add_user", "plain", "pass")
    try:
        broker.ctl("set_permissions", "-p", db.vhost.name, "plain", "", ".*", "")
        db.sql(f'ALTER DATABASE "{db.name}" SET acemq.password_file = %s', (db.cluster.secret_file("plain", "pass\n"),))
        db.sql(f'ALTER DATABASE "{db.name}" SET acemq.url = \'amqp://plain@127.0.0.1:{broker.port}/{db.vhost.name}\'')
        db.sql("SELECT acemq.worker_restart()")
        await_until(lambda: "; and " in report(db).get("ladder", ("", ""))[1], 15, lambda: str(report(db)))
        findings = report(db)
        assert "acemq.scheduler = off" in findings["ladder"][2] and findings["ladder"][1].count("403") <= 3
        assert "403" not in findings["scheduler"][1] and "ladder" in findings["scheduler"][2]
    finally:
        broker.ctl("delete_user", "plain")


def test_right_after_create_extension(cluster):
    """Until the worker has come there is no time since when anything is as it is; and nothing is off that is not."""
    with cluster.database("new", extensions=()) as new:
        new.sql("CREATE EXTENSION acemq")
        seen = set()
        while not report(new)["worker"][0]:
            seen |= {detail for _, detail, _ in report(new).values()}
        assert [detail for detail in seen if "2000-01-01" in detail or "acemq.scheduler is off" in detail] == []


def test_the_limit_of_databases():
    with Cluster({"acemq.max_databases": 1}) as cluster, cluster.database("first") as first:
        await_until(lambda: first.status()["worker_pid"], what="the first one is served")
        with cluster.database("second") as second:
            await_until(lambda: "acemq.max_databases = 1 is reached" in report(second)["worker"][1], 15,
                        lambda: str(report(second)["worker"]))
            assert "max_databases" in report(second)["worker"][2]
            assert report(first)["worker"][0]
