"""Messages and queues that are made to do harm: one of them must not take the ladder, or the relay, away from all others."""

import time

import pytest

import ladder
from checks import await_until
from ladder import await_consuming, counters, header, in_ms, put


@pytest.fixture
def queue(db):
    queue = db.vhost.declare("events", exchange="orders", binding="#")
    await_consuming(db)
    return queue


@pytest.mark.parametrize("name", ["CC", "BCC"])
def test_copies_at_every_hop(db, queue, name):
    """The broker routes by these headers: a message that names the control queue in one would multiply itself."""
    copies = header(name, b"A", b"S\0\0\0\x12" + ladder.DUE.encode())
    ladder.put_raw(db.vhost, ladder.schedule_headers("orders", "k", in_ms(7200)) + copies)
    message_id = put(db.vhost, message_id="after it")
    assert db.vhost.get(queue).properties.message_id == message_id
    await_until(lambda: counters(db)[0] >= 1, what="the hop")
    assert db.value("SELECT acemq.outbox_add('orders', 'k', '{}', message_id => 'last')") == "last"
    db.vhost.drain(queue, 1)
    assert counters(db)[0] == 1 and db.vhost.count("acemq.schedule.1h") == 1
    with pytest.raises(Exception, match="which the ladder cannot carry"):
        db.sql("SELECT acemq.schedule_in('3 h', 'orders', 'k', '{}', headers => %s, via => 'ladder')",
               (f'{{"{name}": ["{ladder.DUE}"]}}',))


def test_the_moment_that_is_zero(db, queue):
    """2000-01-01 in UTC, which PostgreSQL stores as 0, is a time like any other."""
    db.sql("SELECT acemq.schedule_at('2000-01-01 00:00:00+00', 'missing', 'k', '{}', via => 'ladder') FROM generate_series(1, 3)")
    db.sql("SELECT acemq.outbox_add('missing', 'k', '{}', not_before => '2000-01-01 00:00:00+00')")
    await_until(lambda: db.value("SELECT max(attempts) FROM acemq.outbox_pending") == 1, what="an attempt has failed")
    late = db.vhost.declare("late", exchange="missing")
    db.sql("SELECT acemq.outbox_release_all()")
    assert len(db.vhost.drain(late, 4)) == 4


def test_a_rung_that_does_not_answer(db, queue, broker):
    """It is left out: the relay goes on, also while the answer is waited for, and so does what is due."""
    with broker.suspended_queue(db.vhost, "acemq.schedule.1h"):
        longest = 0
        until = time.monotonic() + 60
        while "does not answer" not in (db.status()["scheduler_problem"] or ""):
            assert time.monotonic() < until, "it is noticed"
            begun = time.monotonic()
            db.sql("SELECT acemq.outbox_add('orders', 'k', '{}')")
            db.vhost.get(queue)
            longest = max(longest, time.monotonic() - begun)
        assert longest < 2.5, "acemq.io_timeout is 5 s"
        await_consuming(db)
        reconnects = broker.log_text().count("accepting AMQP connection")
        for number in range(20):
            db.sql("SELECT acemq.outbox_add('orders', 'k', '{}', message_id => %s)", (f"m{number}",))
            assert db.vhost.get(queue, 3).properties.message_id == f"m{number}"
        put(db.vhost, 0, message_id="due")
        assert db.vhost.get(queue, 15).properties.message_id == "due"
        put(db.vhost, 7200, message_id="in two hours")
        await_until(lambda: db.vhost.count("acemq.schedule.10m") == 1, 15, "it takes a shorter rung")
        assert broker.log_text().count("accepting AMQP connection") - reconnects < 60


def test_a_right_that_is_missing_for_one_routing_key(db, queue, broker):
    """Nobody else of the exchange is held up by it."""
    broker.ctl("set_topic_permissions", "-p", db.vhost.name, "acemq", "orders", "^good.*", ".*")
    try:
        put(db.vhost, 0, routing_key="denied", message_id="denied")
        await_until(lambda: "ACCESS_REFUSED" in (db.status()["scheduler_problem"] or ""), what="it was refused")
        for number in range(5):
            put(db.vhost, 0, routing_key=f"good.{number}", message_id=f"good {number}")
        assert len(db.vhost.drain(queue, 5, 8)) == 5
    finally:
        broker.ctl("clear_topic_permissions", "-p", db.vhost.name, "acemq")


def test_a_rung_that_refuses(db, queue, broker):
    """What is due does not wait behind fifty that a rung does not take."""
    broker.ctl("set_policy", "-p", db.vhost.name, "full", r"^acemq\.schedule\.1h$",
               '{"max-length": 1, "overflow": "reject-publish"}', "--apply-to", "queues")
    for number in range(70):
        put(db.vhost, 7200, message_id=f"later {number}")
    for number in range(5):
        put(db.vhost, 0, message_id=f"due {number}")
    assert len(db.vhost.drain(queue, 5, 15)) == 5
    await_until(lambda: db.vhost.count("acemq.schedule.10m") >= 60, 15, "another rung has the others")
