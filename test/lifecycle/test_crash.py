"""G2, G3, G4: what a crash takes and what it does not.  What was committed is sent, what was lost with the crash was not."""

import os
import signal
import threading

import psycopg2
import pytest

from checks import Ledger, await_until

WINDOW = 1000

ORDER = ("WITH o AS (INSERT INTO public.orders VALUES (%s) RETURNING id)"
         " SELECT acemq.outbox_add('orders', 'k', '1', message_id => id) FROM o")


class Orders(threading.Thread):
    """Commits an order and its message under one id, as fast as it can, until the server goes."""

    def __init__(self, db, ledger, *settings):
        super().__init__(daemon=True)
        self.connection = db.connect()
        self.ledger = ledger
        self.stopping = threading.Event()
        with self.connection.cursor() as cursor:
            for setting in settings:
                cursor.execute(setting)
        self.connection.commit()

    def run(self):
        try:
            with self.connection.cursor() as cursor:
                while not self.stopping.is_set():
                    message_id = Ledger.new_id()
                    cursor.execute(ORDER, (message_id,))
                    self.connection.commit()
                    self.ledger.commit(message_id)
        except psycopg2.Error:
            if not self.connection.closed:
                raise

    def stop(self):
        self.stopping.set()
        self.join(20)


def stored(db):
    return {row[0] for row in db.sql("SELECT id FROM public.orders")}


def test_asynchronous_commit_and_immediate_stop(db, queue, long_run, capsys):
    """Producers whose commits are not flushed for ten seconds: as soon as a message is seen in the queue the server dies.

    Its order must be there afterwards, and so must that of any other message that got out.
    """
    db.sql("CREATE TABLE public.orders (id text PRIMARY KEY)")
    db.cluster.configure(wal_writer_delay="10s", wal_writer_flush_after="1GB")
    lost = 0
    try:
        with db.vhost.collect(queue) as collector:
            for number in range(100 if long_run else 4):
                db.await_state("idle")
                ledger = Ledger()
                producer = Orders(db, ledger, "SET synchronous_commit = off")
                seen = len(collector.messages)
                producer.start()
                # At once, and (every other time) in the middle of a stream of them.
                collector.wait(seen + 1 + (number % 2) * 200, 20)
                db.cluster.stop("immediate")
                producer.stop()
                db.close()
                db.cluster.start()
                orders = stored(db)
                lost += len(ledger.committed - orders)
                ghosts = set(collector.ids) - orders
                assert not ghosts, f"round {number}: {len(ghosts)} messages whose transaction is gone"
            db.sql("SELECT acemq.outbox_sweep('60 s')")
            await_until(lambda: set(collector.ids) == stored(db), 30, "what was kept is sent, and nothing else")
    finally:
        db.cluster.ensure_running()
        db.cluster.configure(wal_writer_delay=None, wal_writer_flush_after=None)
    with capsys.disabled():
        print(f"\n  {lost} commits lost with the server, none of them published", end="")
    assert lost > 0 or not long_run, "no round lost a commit: the test has shown nothing"


@pytest.mark.parametrize("victim", ["worker", "launcher", "backend", "postmaster"])
def test_killed(db, queue, victim, long_run):
    """SIGKILL in the middle of a stream, several times: all that was committed is sent, with the window's worth of copies."""
    db.sql("CREATE TABLE public.orders (id text PRIMARY KEY)")
    ledger = Ledger()
    rounds = 25 if long_run else 1
    with db.vhost.collect(queue) as collector:
        for _ in range(rounds):
            producer = Orders(db, ledger)
            seen = len(collector.messages)
            producer.start()
            collector.wait(seen + 100, 30)
            kill(db, victim)
            producer.stop()
            db.close()
            await_until(lambda: db.status()["state"] in ("idle", "relaying"), 30, "it relays again",
                        ignoring=(psycopg2.OperationalError, psycopg2.InterfaceError))
        ledger.committed = stored(db)  # a commit may have been made that its client was not told of
        await_until(lambda: ledger.committed <= set(collector.ids), 60, "everything came")
        await_until(lambda: db.value("SELECT count(*) FROM acemq.outbox") == 0, 30, "the outbox is empty")
        ledger.check(collector.ids, duplicates=rounds * WINDOW)


def kill(db, victim):
    if victim == "postmaster":
        db.cluster.crash()
        db.cluster.start()
        return
    if victim == "backend":
        pid = db.connect().get_backend_pid()
    else:
        pid, = db.cluster.backends(f"acemq {victim}", db.name if victim == "worker" else None)
    before = db.cluster.log_mark()
    os.kill(pid, signal.SIGKILL)
    await_until(lambda: "all server processes terminated; reinitializing" in db.cluster.log_since(before), 20,
                "the server has started its processes anew")


def test_a_backend_killed_with_an_open_transaction(db, queue):
    """Its messages never were; those of the others, added between them, arrive."""
    ledger = Ledger()
    victim = db.connect()
    with victim.cursor() as cursor:
        for _ in range(20):
            cursor.execute("SELECT acemq.outbox_add('orders', 'k', '0')")
            ledger.roll_back(cursor.fetchone()[0])
            ledger.commit(db.value("SELECT acemq.outbox_add('orders', 'k', '1')"))
    os.kill(victim.get_backend_pid(), signal.SIGKILL)
    db.close()
    with db.vhost.collect(queue) as collector:
        await_until(lambda: ledger.committed <= set(collector.ids), 30, "everything came")
        await_until(lambda: db.value("SELECT count(*) FROM acemq.outbox") == 0, 20, "the outbox is empty",
                    ignoring=(psycopg2.OperationalError, psycopg2.InterfaceError))
        ledger.check(collector.ids, duplicates=WINDOW)
