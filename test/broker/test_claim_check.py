"""Bodies that are checked in: what a client that is not ours reads, and what is behind it."""

import os
import re

import psycopg2
import pytest

from wire import properties_set

FRAME = re.compile(rb"\xac\x01\x01([0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})", re.S)


@pytest.fixture
def queue(db):
    return db.vhost.declare("events", exchange="orders", binding="#")


@pytest.fixture
def producer(db):
    connection = db.connect()
    with connection.cursor() as cursor:
        cursor.execute("SET acemq.claim_check_threshold = '100B'")
    connection.commit()
    return connection


def add(connection, expression, *params, **options):
    named = "".join(f", {name} => %s" for name in options)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT acemq.outbox_add('orders', 'order.placed', {expression}{named})", (*params, *options.values()))
        return cursor.fetchone()[0]


@pytest.mark.parametrize("expression, payload, content_type, stored", [
    pytest.param("%s", '{"b":  "%s"}' % ("x" * 200), "application/json", ('{"b":  "%s"}' % ("x" * 200)).encode(), id="text"),
    pytest.param("%s::json", '["\u00fc",  "%s"]' % ("x" * 200), "application/json", ('["\u00fc",  "%s"]' % ("x" * 200)).encode(), id="json"),
    pytest.param("%s::jsonb", '{"b":  "%s"}' % ("x" * 200), "application/json", ('{"b": "%s"}' % ("x" * 200)).encode(), id="jsonb"),
    pytest.param("%s::bytea", bytes(range(256)), "application/octet-stream", bytes(range(256)), id="bytea"),
])
def test_on_the_wire(db, queue, producer, expression, payload, content_type, stored):
    """The key travels; content type and headers are those of the payload, and no header tells."""
    message_id = add(producer, expression, payload, headers='{"tenant": "acme"}')
    producer.commit()
    message = db.vhost.get(queue)
    frame = FRAME.fullmatch(message.body)
    assert frame, message.body
    assert properties_set(message.properties) == {"content_type": content_type, "delivery_mode": 2, "message_id": message_id}
    assert {name for name in message.headers if not name.startswith("x-acemq-")} == {"tenant"}
    assert not [name for name in message.headers if "claim" in name]

    # The row is gone from the outbox, the payload is not.
    db.sql("SELECT acemq.outbox_sweep()")
    assert bytes(db.value("SELECT acemq.claim_check_decode(%s)", (message.body,))) == stored
    assert db.value("SELECT acemq.claim_check_key(%s)", (message.body,)) == frame.group(1).decode("ascii")
    assert bytes(db.value("SELECT acemq.claim_check_get(%s)", (frame.group(1).decode("ascii"),))) == stored


def test_small_bodies_and_own_frames(db, queue, producer):
    """Below the threshold nothing changes, and a frame that the application made is on the wire as it made it."""
    add(producer, "'{}'")
    add(producer, "acemq.claim_check_encode(%s)", b"x" * 500)
    add(producer, "acemq.claim_check_encode(%s, 10)", b"x" * 500)
    producer.commit()
    small, inline, checked = (message.body for message in db.vhost.drain(queue, 3))
    assert small == b"{}"
    assert inline == b"\xac\x01\x00" + b"x" * 500
    assert FRAME.fullmatch(checked)
    assert bytes(db.value("SELECT acemq.claim_check_decode(%s)", (checked,))) == b"x" * 500
    assert db.value("SELECT count(*) FROM acemq.claim_check") == 1


def test_rolled_back(db, queue, producer):
    """No message, no payload: of the whole transaction, and of a part of it."""
    add(producer, "%s::bytea", b"x" * 200)
    producer.rollback()
    with producer.cursor() as cursor:
        cursor.execute("SET acemq.claim_check_threshold = '100B'")
        cursor.execute("SAVEPOINT part")
    add(producer, "%s::bytea", b"y" * 200)
    with producer.cursor() as cursor:
        cursor.execute("ROLLBACK TO part")
    add(producer, "%s::bytea", b"z" * 200)
    producer.commit()
    body = db.vhost.get(queue).body
    assert bytes(db.value("SELECT acemq.claim_check_decode(%s)", (body,))) == b"z" * 200
    db.sql("SELECT acemq.outbox_sweep()")
    assert db.vhost.count(queue) == 0
    assert db.value("SELECT count(*) FROM acemq.claim_check") == 1


def test_larger_than_a_message_may_be(db, queue, producer):
    """acemq.max_body_size and the broker's own limit are for what travels."""
    payload = os.urandom(20_000_000)
    add(producer, "%s::bytea", payload)
    producer.commit()
    body = db.vhost.get(queue, 30).body
    assert len(body) == 39
    assert bytes(db.value("SELECT acemq.claim_check_decode(%s)", (body,))) == payload


def test_purge_between_sending_and_reading(db, queue, producer):
    """A waiting or retired message keeps its payload; once it is sent, its reader finds out that it came too late."""
    db.sql("SELECT acemq.relay_pause()")
    db.await_state("paused")
    add(producer, "%s::bytea", b"x" * 200)
    producer.commit()
    assert db.value("SELECT acemq.claim_check_purge('0')") == 0
    db.sql("SELECT acemq.relay_resume()")
    body = db.vhost.get(queue, 15).body
    db.sql("SELECT acemq.outbox_sweep()")
    assert db.value("SELECT acemq.claim_check_purge('1 hour')") == 0
    assert bytes(db.value("SELECT acemq.claim_check_decode(%s)", (body,))) == b"x" * 200
    assert db.value("SELECT acemq.claim_check_purge('0')") == 1
    with pytest.raises(psycopg2.Error) as late:
        db.value("SELECT acemq.claim_check_decode(%s)", (body,))
    assert late.value.pgcode == "AQ002"
