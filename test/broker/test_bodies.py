"""Bodies arrive byte for byte: none, every byte, the largest default, another encoding of the database."""

import hashlib
import os

import pytest


@pytest.fixture
def queue(db):
    return db.vhost.declare("events", exchange="orders", binding="#")


@pytest.mark.parametrize("size", [0, 1, 255, 131064, 131072, 1_000_003, 10_000_000])
def test_binary_bodies(db, queue, size):
    """Around the frame size too: 131064 is what one frame holds."""
    body = os.urandom(size)
    db.sql("SELECT acemq.outbox_add('orders', 'k', %s::bytea)", (body,))
    message = db.vhost.get(queue, 30)
    assert len(message.body) == size
    assert hashlib.sha256(message.body).digest() == hashlib.sha256(body).digest()
    assert message.properties.content_type == "application/octet-stream"


def test_empty_text(db, queue):
    """An empty text is a body of no bytes, where the content type allows it."""
    db.sql("SELECT acemq.outbox_add('orders', 'k', ''::text, content_type => 'text/plain')")
    assert db.vhost.get(queue).body == b""


def test_many_large_bodies(db, queue):
    """200 MB of backlog goes through a budget of 8 MB."""
    db.sql("SELECT acemq.outbox_add('orders', 'k', convert_to(repeat(n::text || ' ', 500000), 'UTF8'))"
           " FROM generate_series(10, 99) n")
    for number in range(10, 100):
        assert db.vhost.get(queue, 60).body == b"%d " % number * 500000


def test_larger_than_the_budget(db, queue):
    """A body larger than acemq.max_in_flight_bytes goes out alone, between its neighbours."""
    db.sql("SELECT acemq.outbox_add('orders', 'k', '1')")
    db.sql("SELECT acemq.outbox_add('orders', 'k', convert_to(repeat('x', 12000000), 'UTF8'))")
    db.sql("SELECT acemq.outbox_add('orders', 'k', '3')")
    assert [len(db.vhost.get(queue, 30).body) for _ in range(3)] == [1, 12000000, 1]


def test_default_exchange(db):
    """'' is the default exchange: the routing key names the queue."""
    queue = db.vhost.declare("inbox")
    db.sql("SELECT acemq.outbox_add('', 'inbox', '1')")
    message = db.vhost.get(queue)
    assert (message.exchange, message.routing_key) == ("", "inbox")
    assert message.headers["x-acemq-type"] == "inbox"


def test_large_body_beside_a_hanging_queue(db, broker, queue):
    """A body larger than the budget waits for an empty wire only as long as the wire moves, and stops nobody else."""
    stuck = db.vhost.declare("stuck", exchange="stuck", binding="#")
    db.sql("SELECT acemq.outbox_add('stuck', 'k', '0')")
    db.vhost.get(stuck)
    with broker.suspended_queue(db.vhost, stuck):
        db.sql("SELECT acemq.outbox_add('stuck', 'k', '1')")
        for body in ("1", "x" * 12000000, "3"):
            db.sql("SELECT acemq.outbox_add('orders', 'k', convert_to(%s, 'UTF8'))", (body,))
        assert [len(db.vhost.get(queue, 15).body) for _ in range(3)] == [1, 12000000, 1]


def test_memory_with_large_headers(db, queue):
    """What headers take counts like what bodies take."""
    (pid,) = db.cluster.backends("acemq worker", db.name)
    db.sql("SELECT acemq.relay_pause()")
    db.await_state("paused")
    db.sql("SELECT acemq.outbox_add('orders', 'k', '1', headers => jsonb_build_object('h', repeat(n::text, 15000)))"
           " FROM generate_series(1000, 2499) n")
    db.sql("SELECT acemq.relay_resume()")
    with db.vhost.collect(queue) as collector:
        collector.wait(1500, 60)
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        (peak,) = [int(line.split()[1]) for line in status if line.startswith("VmHWM")]
    assert peak < 100 * 1024, f"the worker had {peak} kB, shared memory included"
