"""G3: nothing is published whose commit could still be lost."""

import threading
import time

from checks import await_until
from cluster import Cluster


def add_and_cancel_the_wait(db, body):
    """Adds in a transaction whose wait for the standby is cancelled: it has committed here all the same."""
    connection = db.connect(autocommit=True)
    pid = connection.get_backend_pid()

    def add():
        with connection.cursor() as cursor:
            cursor.execute("SELECT acemq.outbox_add('orders', 'k', %s::text)", (body,))

    thread = threading.Thread(target=add)
    thread.start()
    await_until(lambda: db.sql("SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event = 'SyncRep'", (pid,)), 10,
                "the commit waits for its standby")
    db.sql("SELECT pg_cancel_backend(%s)", (pid,))
    thread.join(10)


def test_held_for_a_missing_standby(broker):
    """What is visible here and not on the synchronous standby stays, until the standby has it or none is asked for."""
    vhost = broker.vhost()
    with Cluster() as cluster:
        secret = cluster.secret_file("broker-password", broker.password + "\n")
        with cluster.database("shop", {"acemq.url": vhost.url(), "acemq.password_file": secret}) as db:
            queue = vhost.declare("events", exchange="orders", binding="#")
            db.sql("SELECT acemq.outbox_add('orders', 'k', '1')")
            assert vhost.get(queue).body == b"1"
            db.sql("SELECT acemq.outbox_sweep()")

            cluster.configure(synchronous_standby_names="nobody")
            await_until(lambda: db.value("SHOW synchronous_standby_names") == "nobody", 10, "the setting is in force")
            add_and_cancel_the_wait(db, "2")
            with db.connect() as connection, connection.cursor() as cursor:
                cursor.execute("SET synchronous_commit = local")
                cursor.execute("SELECT acemq.outbox_add('orders', 'k', '3')")
            assert db.value("SELECT count(*) FROM acemq.outbox") == 2
            time.sleep(2)  # that nothing comes is what is tested
            assert vhost.drain(queue) == []

            cluster.configure(synchronous_standby_names="")
            assert [message.body for message in vhost.drain(queue, 2)] == [b"2", b"3"]


def test_sent_when_the_standby_has_it(broker):
    """With a synchronous standby that answers, messages flow."""
    vhost = broker.vhost()
    standby = Cluster()
    with Cluster() as primary:
        try:
            standby.copy_of(primary)
            primary.configure(synchronous_standby_names="*")
            secret = primary.secret_file("broker-password", broker.password + "\n")
            with primary.database("shop", {"acemq.url": vhost.url(), "acemq.password_file": secret}) as db:
                queue = vhost.declare("events", exchange="orders", binding="#")
                for number in range(20):
                    db.sql("SELECT acemq.outbox_add('orders', 'k', %s::text)", (str(number),))
                    assert vhost.get(queue).body == str(number).encode()
                db.sql("SELECT acemq.outbox_sweep()")
                primary.configure(synchronous_standby_names="")
        finally:
            standby.destroy()
