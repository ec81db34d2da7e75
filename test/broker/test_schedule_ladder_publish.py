"""schedule_at and schedule_in with via => 'ladder': what lies on a rung, which rung, and what goes straight to its target.

The ladder is declared here as any AceMQ library declares it; nobody moves its messages on (acemq.scheduler is off).
"""

import itertools
import time

import pytest

from checks import await_until
from wire import properties_set

RUNGS = {"1h": 3600000, "10m": 600000, "1m": 60000, "10s": 10000, "1s": 1000}
DUE = "acemq.schedule.due"

_numbers = itertools.count(1)


@pytest.fixture
def db(cluster, broker, relay_settings):
    broker.ensure_running()
    vhost = broker.vhost()
    settings = {**relay_settings(vhost), "acemq.scheduler": "off", "acemq.retry_delay": "1h",
                "acemq.retry_delay_max": "1h"}
    with cluster.database(f"ladder{next(_numbers)}", settings) as database:
        database.vhost = vhost
        database.await_state("idle", "relaying")
        yield database


@pytest.fixture
def ladder(db):
    declare_ladder(db.vhost)


@pytest.fixture
def queue(db):
    return db.vhost.declare("letters", exchange="mail", binding="#")


def declare_ladder(vhost):
    with vhost.channel() as channel:
        channel.exchange_declare("acemq.schedule", "direct", durable=True)
        channel.queue_declare(DUE, durable=True)
        channel.queue_bind(DUE, "acemq.schedule", DUE)
        for name, ttl in RUNGS.items():
            declare_rung(channel, name, ttl)


def declare_rung(channel, name, ttl):
    rung = f"acemq.schedule.{name}"
    channel.queue_declare(rung, durable=True, arguments={
        "x-message-ttl": ttl, "x-dead-letter-exchange": "acemq.schedule", "x-dead-letter-routing-key": DUE})
    channel.queue_bind(rung, "acemq.schedule", rung)


def schedule(db, delay, exchange="mail", routing_key="letter.sent", payload="{}", **options):
    names = "".join(f", {name} => %({name})s" for name in options)
    return db.value(f"SELECT acemq.schedule_in(%(delay)s, %(exchange)s, %(routing_key)s, %(payload)s::text, via => 'ladder'{names})",
                    dict(options, delay=delay, exchange=exchange, routing_key=routing_key, payload=payload))


def due_ms(db, message_id):
    return db.value("SELECT floor(extract(epoch FROM ladder_due_at) * 1000)::bigint FROM acemq.outbox"
                    " WHERE message_id = %s", (message_id,))


def counters(db):
    status = db.status()
    return [status[f"ladder_{name}"] for name in ("scheduled", "hops", "delivered", "malformed")]


def last_error(db, message_id):
    return await_until(lambda: db.value("SELECT last_error FROM acemq.outbox WHERE message_id = %s", (message_id,)),
                       what="an attempt has failed")


def test_what_lies_on_a_rung(db, ladder, queue):
    """To the byte: envelope, application headers, the four of the ladder, and the properties."""
    db.sql("SELECT acemq.relay_pause()")
    db.await_state("paused")
    before = time.time() * 1000
    message_id = schedule(db, "90 s", payload='{"n":  1}', headers='{"x-tenant": "acme", "share": 2.5, "n": -7}')
    due_at = due_ms(db, message_id)
    db.sql("SELECT acemq.relay_resume()")
    message = db.vhost.get("acemq.schedule.1m")

    assert message.body == b'{"n":  1}'
    assert (message.exchange, message.routing_key) == ("acemq.schedule", "acemq.schedule.1m")
    assert properties_set(message.properties) == {
        "content_type": "application/octet-stream", "delivery_mode": 2, "message_id": message_id}
    headers = dict(message.headers)
    assert before - 1 <= headers.pop("x-acemq-first-seen") <= time.time() * 1000
    assert headers.pop("x-acemq-origin").startswith("acemq@")
    assert headers == {
        "x-acemq-id": message_id, "x-acemq-type": "ScheduledMessage", "x-acemq-version": 1,
        "x-acemq-correlation": message_id, "x-acemq-attempt": 1,
        "x-tenant": "acme", "share": 2.5, "n": -7,
        "x-schedule-exchange": "mail", "x-schedule-routing-key": "letter.sent", "x-schedule-due-at": due_at,
        "x-schedule-content-type": "application/json"}
    assert message.kinds == {
        "x-acemq-id": "S", "x-acemq-type": "S", "x-acemq-version": "I", "x-acemq-correlation": "S",
        "x-acemq-attempt": "I", "x-acemq-first-seen": "l", "x-acemq-origin": "S",
        "x-tenant": "S", "share": "d", "n": "l",
        "x-schedule-exchange": "S", "x-schedule-routing-key": "S", "x-schedule-due-at": "l",
        "x-schedule-content-type": "S"}
    await_until(lambda: counters(db) == [1, 1, 0, 0], what="counted as scheduled, with one hop")
    await_until(lambda: db.value("SELECT count(*) FROM acemq.outbox") == 0, what="the row is gone")


def test_every_option_on_a_rung(db, ladder):
    message_id = schedule(db, "2 h", "", "letters", "plain", type="mail.letter", message_id="letter-1",
                          correlation_id="basket-3", causation_id="click-9", version=2, content_type="text/plain",
                          priority=7, reply_to="answers", ordering_key="acme")
    message = db.vhost.get("acemq.schedule.1h")
    assert message_id == "letter-1"
    assert message.body == b"plain"
    assert properties_set(message.properties) == {
        "content_type": "application/octet-stream", "delivery_mode": 2, "message_id": "letter-1", "priority": 7,
        "reply_to": "answers"}
    expected = {"x-acemq-id": "letter-1", "x-acemq-type": "mail.letter", "x-acemq-version": 2,
                "x-acemq-correlation": "basket-3", "x-acemq-causation": "click-9", "acemq-reply-to": "answers",
                "x-schedule-exchange": "", "x-schedule-routing-key": "letters", "x-schedule-content-type": "text/plain"}
    assert {name: message.headers.get(name) for name in expected} == expected


@pytest.mark.parametrize("delay, rung", [("15 s", "10s"), ("5 min", "1m"), ("30 min", "10m"), ("4 h", "1h"),
                                         ("2 years", "1h")])
def test_the_longest_rung_that_fits(db, ladder, queue, delay, rung):
    message_id = schedule(db, delay)
    assert db.vhost.get(f"acemq.schedule.{rung}").properties.message_id == message_id
    assert db.vhost.count(queue) == 0


def test_the_shortest_rung(db, ladder, queue):
    """Too short to be caught there: it comes out where the ladder's control queue is read, a second later."""
    begun = time.monotonic()
    message_id = schedule(db, "3 s")
    message = db.vhost.get(DUE)
    assert time.monotonic() - begun > 0.9
    assert message.properties.message_id == message_id
    assert message.headers["x-death"][0]["queue"] == "acemq.schedule.1s"


@pytest.mark.parametrize("delay", ["999 ms", "0", "-1 h"])
def test_less_than_a_second_goes_straight(db, queue, delay):
    """There is not even a ladder.  The receiver sees a message like any other."""
    message_id = schedule(db, delay, payload='{"n": 1}', headers='{"x-tenant": "acme"}')
    message = db.vhost.get(queue)
    assert (message.body, message.exchange, message.routing_key) == (b'{"n": 1}', "mail", "letter.sent")
    assert properties_set(message.properties) == {
        "content_type": "application/json", "delivery_mode": 2, "message_id": message_id}
    assert message.headers["x-acemq-type"] == "ScheduledMessage"
    assert [name for name in message.headers if not name.startswith("x-acemq-")] == ["x-tenant"]
    await_until(lambda: counters(db) == [1, 0, 1, 0], what="counted as scheduled and delivered")


def test_the_rung_is_chosen_when_it_is_sent(db, ladder, queue):
    """Not when it was added: meanwhile the relay was paused."""
    db.sql("SELECT acemq.relay_pause()")
    db.await_state("paused")
    shorter = schedule(db, "60.5 s")
    straight = schedule(db, "1.2 s")
    await_until(lambda: db.value("SELECT min(ladder_due_at) < clock_timestamp() + interval '200 ms' FROM acemq.outbox"),
                what="less is left")
    db.sql("SELECT acemq.relay_resume()")
    assert db.vhost.get("acemq.schedule.10s").properties.message_id == shorter
    assert db.vhost.get(queue).properties.message_id == straight
    await_until(lambda: counters(db) == [2, 1, 1, 0], what="both are counted")


def test_a_missing_ladder_holds_nobody_else(db, queue):
    """Neither its exchange nor its rungs are there: the error says who makes them, and other messages pass."""
    waits = schedule(db, "5 min", message_id="waits")
    error = last_error(db, "waits")
    assert "acemq.schedule" in error and "acemq.scheduler" in error
    other = db.value("SELECT acemq.outbox_add('mail', 'letter.sent', '{}')")
    assert db.vhost.get(queue).properties.message_id == other

    with db.vhost.channel() as channel:
        channel.exchange_declare("acemq.schedule", "direct", durable=True)
    db.sql("SELECT acemq.outbox_release('waits')")
    await_until(lambda: "NO_ROUTE" in last_error(db, "waits"), what="returned, as the rung is not there")
    error = last_error(db, "waits")
    assert '"acemq.schedule.1m"' in error and "acemq.scheduler" in error and "scheduler_problem in acemq.status" in error
    assert counters(db) == [0, 0, 0, 0]

    declare_ladder(db.vhost)
    assert db.value("SELECT acemq.outbox_release('waits')")
    assert db.vhost.get("acemq.schedule.1m").properties.message_id == waits


def test_a_missing_target_holds_the_target_only(db, ladder, queue):
    """What was due and has failed at its target is an ordinary message from then on."""
    db.vhost.declare_exchange("late")
    schedule(db, "-1 min", "late", message_id="first")
    assert "NO_ROUTE" in last_error(db, "first") and "acemq.scheduler" not in last_error(db, "first")
    on_rung = schedule(db, "5 min", "late")
    assert db.vhost.get("acemq.schedule.1m").properties.message_id == on_rung
    straight = schedule(db, "0")
    assert db.vhost.get(queue).properties.message_id == straight
    db.sql("SELECT acemq.outbox_add('late', 'k', '{}', message_id => 'second')")
    assert db.value("SELECT count(*) FROM acemq.outbox_pending WHERE message_id IN ('first', 'second')"
                    " AND ladder_due_at IS NULL") == 2

    bound = db.vhost.declare("late-letters", exchange="late")
    assert db.value("SELECT acemq.outbox_release('first')")
    assert [m.properties.message_id for m in db.vhost.drain(bound, 2)] == ["first", "second"]
    await_until(lambda: db.value("SELECT count(*) FROM acemq.outbox") == 0, what="all is sent")


def test_the_order_of_a_key(db, ladder, queue):
    """One after the other, whether they go to a rung or not: the one that has no ladder holds the rest."""
    with db.vhost.channel() as channel:
        channel.queue_unbind("acemq.schedule.1m", "acemq.schedule", "acemq.schedule.1m")
    schedule(db, "5 min", message_id="first", ordering_key="acme")
    last_error(db, "first")
    schedule(db, "0", message_id="second", ordering_key="acme")
    db.sql("SELECT acemq.outbox_add('mail', 'k', '{}', message_id => 'third', ordering_key => 'acme')")
    other = schedule(db, "0", ordering_key="other")
    assert db.vhost.get(queue).properties.message_id == other
    assert db.vhost.count(queue) == 0
    declare_ladder(db.vhost)
    db.sql("SELECT acemq.outbox_release('first')")
    assert [m.properties.message_id for m in db.vhost.drain(queue, 2)] == ["second", "third"]
    assert db.vhost.get("acemq.schedule.1m").properties.message_id == "first"


def test_cancelled_before_it_is_on_the_wire(db, ladder):
    db.sql("SELECT acemq.relay_pause()")
    db.await_state("paused")
    taken_back, kept = schedule(db, "5 min"), schedule(db, "5 min")
    assert db.value("SELECT acemq.outbox_cancel(%s)", (taken_back,))
    db.sql("SELECT acemq.relay_resume()")
    assert db.vhost.get("acemq.schedule.1m").properties.message_id == kept
    await_until(lambda: db.value("SELECT count(*) FROM acemq.outbox") == 0, what="it is sent")
    assert not db.value("SELECT acemq.outbox_cancel(%s)", (kept,))
    assert db.vhost.count("acemq.schedule.1m") == 0


def test_many_at_once(db, ladder):
    """A thousand rows share the channel and keep their order; a rolled back one is not among them."""
    db.sql("SELECT acemq.schedule_in('5 min', 'mail', 'k', to_jsonb(n), message_id => n::text, via => 'ladder')"
           " FROM generate_series(1, 1000) n")
    with db.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT acemq.schedule_in('5 min', 'mail', 'k', '0', via => 'ladder')")
        connection.rollback()
    messages = db.vhost.drain("acemq.schedule.1m", 1000, 20)
    assert [int(message.properties.message_id) for message in messages] == list(range(1, 1001))
    await_until(lambda: counters(db) == [1000, 1000, 0, 0], what="all are counted")


def test_a_big_body_is_checked_in(db, ladder):
    """As by outbox_add: what lies on the rung refers to the body."""
    with db.connect(autocommit=True).cursor() as cursor:
        cursor.execute("SET acemq.claim_check_threshold = 1000")
        cursor.execute("SELECT acemq.schedule_in('5 min', 'mail', 'k', to_jsonb(repeat('x', 5000)), via => 'ladder')")
        message = db.vhost.get("acemq.schedule.1m")
        assert len(message.body) < 1000
        assert message.headers["x-schedule-content-type"] == "application/json"
        cursor.execute("SELECT acemq.claim_check_decode(%s)", (message.body,))
        assert bytes(cursor.fetchone()[0]) == b'"' + b"x" * 5000 + b'"'
