"""The order of an ordering key where the relay is slow to look (G5)."""

import pytest


@pytest.mark.parametrize("frame", ["connection.tune", "connection.open-ok", "channel.open-ok"])
def test_a_late_commit_and_what_came_after_it(proxied, frame):
    """Both are committed while the relay connects.  The ids of the first one were passed over before, and still it goes first."""
    proxy = proxied.proxy
    with proxied.connect() as late, late.cursor() as cursor:
        cursor.execute("SELECT acemq.outbox_add('orders', 'k', to_jsonb(n), ordering_key => 'a') FROM generate_series(1, 4) n")
        proxied.sql("SELECT acemq.outbox_add('orders', 'other', '0')")
        proxied.sql("SELECT acemq.outbox_sweep()")
        rule = proxy.rule("to_worker", frame, action="stall", who="relay")
        proxy.shut()
        proxy.end_links()
        proxied.sql("SELECT acemq.outbox_add('orders', 'other', '0')")  # there is something to read, once it is connected
        proxied.await_state("disconnected")
        proxy.open()
        rule.wait()
        late.commit()
        proxied.sql("SELECT acemq.outbox_add('orders', 'k', '5', ordering_key => 'a')")
    for pipe in proxy.link().pipes:
        pipe.resume()
    messages = proxied.vhost.drain(proxied.queue, 7)
    assert [message.body for message in messages if message.routing_key == "k"] == [b"1", b"2", b"3", b"4", b"5"]
