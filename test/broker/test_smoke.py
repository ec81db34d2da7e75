"""One message of each payload type, from SQL to a queue, read by a client that is not ours."""

import time
import uuid

import pytest

from wire import properties_set

JSON = "application/json"
BYTES = bytes(range(256)) + b"\x00\xff"

PAYLOADS = [
    # as written in SQL, parameter, content type, bytes on the wire
    pytest.param("%s", '{"b": 1,  "a": "\u00fc\u20ac"}', JSON, '{"b": 1,  "a": "\u00fc\u20ac"}'.encode(), id="text"),
    pytest.param("%s::json", '{"b": 1,  "a": 2, "a": 3}', JSON, b'{"b": 1,  "a": 2, "a": 3}', id="json"),
    pytest.param("%s::jsonb", '{"b": 1,  "a": 2}', JSON, b'{"a": 2, "b": 1}', id="jsonb"),
    pytest.param("%s::bytea", BYTES, "application/octet-stream", BYTES, id="bytea"),
]

HEADERS = """{"x-tenant": "acme", "count": 3, "negative": -7, "share": 2.5, "urgent": true, "nothing": null,
              "list": [1, "two", null], "nested": {"deep": {"er": false}}}"""


@pytest.fixture
def queue(db):
    return db.vhost.declare("events", exchange="orders", binding="order.*")


@pytest.mark.parametrize("expression, payload, content_type, body", PAYLOADS)
def test_payload_types(db, queue, expression, payload, content_type, body):
    """The bytes arrive as they are, with the envelope of the family and nothing else."""
    before = time.time() * 1000
    message_id = db.value(f"SELECT acemq.outbox_add('orders', 'order.placed', {expression}, headers => %s)",
                          (payload, HEADERS))
    after = time.time() * 1000
    message = db.vhost.get(queue)

    assert message.body == body
    assert (message.exchange, message.routing_key) == ("orders", "order.placed")
    assert uuid.UUID(message_id).version == 4
    assert properties_set(message.properties) == {"content_type": content_type, "delivery_mode": 2, "message_id": message_id}

    reserved = {name: value for name, value in message.headers.items() if name.startswith("x-acemq-")}
    assert before - 1 <= reserved.pop("x-acemq-first-seen") <= after
    assert reserved.pop("x-acemq-origin").startswith("acemq@")
    assert reserved == {"x-acemq-id": message_id, "x-acemq-type": "order.placed", "x-acemq-version": 1,
                        "x-acemq-correlation": message_id, "x-acemq-attempt": 1}
    own = {name: value for name, value in message.headers.items() if not name.startswith("x-acemq-")}
    assert own == {"x-tenant": "acme", "count": 3, "negative": -7, "share": 2.5, "urgent": True,
                   "list": [1, "two", None], "nested": {"deep": {"er": False}}}
    assert message.kinds == {
        "x-acemq-id": "S", "x-acemq-type": "S", "x-acemq-version": "I", "x-acemq-correlation": "S",
        "x-acemq-attempt": "I", "x-acemq-first-seen": "l", "x-acemq-origin": "S",
        "x-tenant": "S", "count": "l", "negative": "l", "share": "d", "urgent": "t",
        "list": ["l", "S", "V"], "nested": {"deep": {"er": "t"}}}


def test_every_option(db, queue):
    """What the caller asks for is on the wire, in the property or header where the family puts it."""
    message_id = db.value("""
        SELECT acemq.outbox_add('orders', 'order.placed', 'plain', type => 'order.placed.v2', message_id => 'order-17',
            correlation_id => 'basket-3', causation_id => 'click-9', version => 2, content_type => 'text/plain',
            priority => 7, expiration => '90 s', reply_to => 'answers', persistent => false, ordering_key => 'acme')""")
    message = db.vhost.get(queue)

    assert message_id == "order-17"
    assert message.body == b"plain"
    properties = message.properties
    assert (properties.message_id, properties.content_type) == ("order-17", "text/plain")
    assert (properties.priority, properties.expiration, properties.reply_to) == (7, "90000", "answers")
    assert properties.delivery_mode == 1
    assert properties.correlation_id is None
    expected = {"x-acemq-id": "order-17", "x-acemq-type": "order.placed.v2", "x-acemq-version": 2,
                "x-acemq-correlation": "basket-3", "x-acemq-causation": "click-9", "acemq-reply-to": "answers"}
    assert {name: message.headers[name] for name in expected} == expected


def test_rollback_sends_nothing(db, queue):
    """Of two transactions, one rolled back, the queue sees one; sweeping says when to look."""
    with db.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT acemq.outbox_add('orders', 'order.placed', '1')")
        connection.rollback()
        cursor.execute("SELECT acemq.outbox_add('orders', 'order.placed', '2')")
    db.sql("SELECT acemq.outbox_sweep()")
    assert [message.body for message in db.vhost.drain(queue)] == [b"2"]
    assert db.value("SELECT count(*) FROM acemq.outbox") == 0
