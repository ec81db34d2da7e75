"""Standbys: one that is promoted goes on where the primary was, and a synchronous one that is lost or late holds messages, not the server."""

import contextlib
import time

import psycopg2
import pytest

from checks import Ledger, await_until
from cluster import Cluster
from test_durability import add_and_cancel_the_wait

ADD = "SELECT acemq.outbox_add('orders', 'k', %s::text)"


@contextlib.contextmanager
def pair(broker):
    """A primary that relays, its standby, and the virtual host they relay to."""
    broker.ensure_running()
    vhost = broker.vhost()
    vhost.declare("events", exchange="orders", binding="#", x_queue_type="quorum")
    standby = Cluster()
    with Cluster({"wal_keep_size": "256MB"}) as primary:
        try:
            primary.configure(acemq__url=vhost.url(),
                              acemq__password_file=primary.secret_file("broker-password", broker.password + "\n"))
            primary.sql("CREATE DATABASE shop TEMPLATE template0")
            standby.copy_of(primary)
            primary.sql("CREATE EXTENSION acemq", dbname="shop")
            yield primary, standby, vhost
        finally:
            standby.destroy()


def shop(cluster, query, params=None):
    return cluster.sql(query, params, dbname="shop")


def caught_up(primary, standby):
    position = primary.sql("SELECT pg_current_wal_flush_lsn()")[0][0]
    await_until(lambda: standby.sql("SELECT pg_last_wal_replay_lsn() >= %s", (position,)) == [(True,)], 20,
                "the standby has it all")


def test_promotion(broker, long_run):
    """With a backlog that the primary had begun to send, one that it had not, and messages due later.

    The standby serves nobody before; as soon as it is promoted it sends what is left, without being told to.
    """
    ledger = Ledger()
    with pair(broker) as (primary, standby, vhost):
        ledger.commit(*(row[0] for row in shop(primary, ADD + " FROM generate_series(1, 500)", ("1",))))
        shop(primary, "SELECT acemq.outbox_sweep('30 s')")
        shop(primary, "SELECT acemq.schedule_in('1 h', 'orders', 'k', '1', message_id => 'later')")
        shop(primary, "SELECT acemq.schedule_in('2 s', 'orders', 'k', '1', message_id => 'soon')")
        ledger.commit("soon")
        shop(primary, "SELECT acemq.idempotency_claim('key', '1 h', 'me')")
        count = 20000 if long_run else 3000
        ledger.commit(*(row[0] for row in shop(primary, ADD + " FROM generate_series(1, %s)", ("2", count))))

        caught_up(primary, standby)
        assert standby.backends("acemq launcher") == [] and standby.backends("acemq worker") == []
        with pytest.raises(psycopg2.errors.ReadOnlySqlTransaction):
            shop(standby, ADD, ("3",))
        assert shop(standby, "SELECT state, worker_pid FROM acemq.status") == [("starting", None)]
        processes = shop(standby, "SELECT ok, detail FROM acemq.doctor() WHERE \"check\" IN ('launcher', 'worker')")
        assert len(processes) == 2 and all(ok and "standby" in detail for ok, detail in processes)

        primary.crash()
        standby.promote()
        await_until(lambda: standby.backends("acemq worker", "shop"), 20, "the promoted one has a worker")
        ledger.commit(shop(standby, ADD, ("4",))[0][0])
        with vhost.collect("events") as collector:
            await_until(lambda: ledger.committed <= set(collector.ids), 90,
                        lambda: f"everything came; {len(ledger.committed - set(collector.ids))} are missing")
            await_until(lambda: shop(standby, "SELECT message_id FROM acemq.outbox") == [("later",)], 30,
                        "what is due later is left")
            ledger.check(collector.ids, duplicates=count)
        assert shop(standby, "SELECT acemq.idempotency_claim('key', '1 h', 'another')") == [("in_progress",)]
        assert shop(standby, "SELECT acemq.outbox_cancel('later')") == [(True,)]


def test_synchronous_standby_lost_and_back(broker):
    """A commit that waits for it is not published, nor one whose wait was cancelled; when it is back, both are."""
    with pair(broker) as (primary, standby, vhost):
        primary.configure(synchronous_standby_names="*")
        await_until(lambda: primary.sql("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"), 20,
                    "the standby is synchronous")
        shop(primary, ADD, ("1",))
        assert vhost.get("events").body == b"1"

        standby.stop("fast")
        with contextlib.closing(primary.connect("shop", options="-c synchronous_commit=local")) as session:
            cursor = session.cursor()
            db = _Shop(primary, session)
            add_and_cancel_the_wait(db, "2")
            cursor.execute("SELECT count(*) FROM acemq.outbox")
            assert cursor.fetchall() == [(1,)]
            time.sleep(2)  # that nothing comes is what is tested
            assert vhost.drain("events") == []
            cursor.execute("SELECT state, pending FROM acemq.status")
            assert cursor.fetchall() == [("relaying", 1)]
            db.close()

        standby.start()
        assert vhost.get("events", 30).body == b"2"
        shop(primary, ADD, ("3",))
        assert vhost.get("events", 30).body == b"3"
        primary.configure(synchronous_standby_names=None)


class _Shop:
    """What add_and_cancel_the_wait() wants of a database."""

    def __init__(self, cluster, session):
        self._cluster = cluster
        self._session = session
        self._lent = []

    def connect(self, autocommit):
        self._lent.append(self._cluster.connect("shop", autocommit))
        return self._lent[-1]

    def sql(self, query, params):
        with self._session.cursor() as cursor:
            self._session.autocommit = True
            cursor.execute(query, params)
            return cursor.fetchall()

    def close(self):
        for connection in self._lent:
            connection.close()
