"""The scheduler when the broker's administrators are at work: somebody else has the queue, or the user is gone."""

import contextlib
import time

import ladder
from checks import await_until
from ladder import await_consuming, put


def test_exclusive_consumer(db, queue, broker):
    """Somebody consumes the control queue alone: told of, tried again, and the relay does not mind."""
    await_consuming(db)
    db.sql("SELECT acemq.relay_resume()")
    with contextlib.ExitStack() as stack:
        ladder.consume_alone(db.vhost, stack)
        await_until(lambda: "exclusive" in (db.status()["scheduler_problem"] or ""), 20, lambda: db.status())
        assert db.status()["scheduler"] == "not consuming"
        db.sql("SELECT acemq.outbox_add('orders', 'k', '1')")
        assert db.vhost.get(queue).body == b"1"
        ok, = db.sql("SELECT ok FROM acemq.doctor() WHERE \"check\" = 'scheduler'")[0]
        assert not ok
    await_consuming(db)
    assert put(db.vhost) == db.vhost.get(queue, 20).properties.message_id


def test_user_deleted(cluster, broker):
    """The broker closes the connections of a user that is deleted; messages wait, and go when the user is there again."""
    cluster.ensure_running()
    broker.ensure_running()
    vhost = broker.vhost()
    queue = vhost.declare("events", exchange="orders", binding="#")

    def make_user():
        broker.ctl("add_user", "shop", "sesame")
        broker.ctl("set_permissions", "-p", vhost.name, "shop", ".*", ".*", ".*")

    make_user()
    settings = {"acemq.url": vhost.url(user="shop"), "acemq.password_file": cluster.secret_file("shop-password", "sesame\n")}
    with cluster.database("user_deleted", settings) as db:
        await_consuming(db)
        mark = cluster.log_mark()
        broker.ctl("delete_user", "shop")
        broker.close_connections()  # later releases do it by themselves
        await_until(lambda: "403" in (db.status()["last_error"] or ""), 20, lambda: db.status())
        db.sql("SELECT acemq.outbox_add('orders', 'k', '1')")
        assert db.status()["state"] == "disconnected" and db.status()["scheduler"] == "disconnected"
        ok, detail = db.sql("SELECT ok, detail FROM acemq.doctor() WHERE \"check\" = 'broker'")[0]
        assert not ok and "login" in detail
        assert db.value("SELECT max(attempts) FROM acemq.outbox") == 0
        begun = time.monotonic()
        make_user()
        cluster.sql("SELECT pg_reload_conf()")
        assert vhost.get(queue, 40).body == b"1"
        await_consuming(db, 40)
        assert "sesame" not in cluster.log_since(mark)
        assert time.monotonic() - begun < 40
    broker.ctl("delete_user", "shop")
