"""DROP EXTENSION, CREATE EXTENSION and DROP DATABASE while producers and the relay are at work."""

import contextlib
import threading

import psycopg2

from checks import Ledger, await_until

GONE = (psycopg2.errors.UndefinedFunction, psycopg2.errors.InvalidSchemaName, psycopg2.errors.UndefinedTable,
        psycopg2.errors.DeadlockDetected, psycopg2.errors.InternalError_)


class Producer(threading.Thread):
    """Adds in transactions of its own; an extension that is not there is waited for."""

    def __init__(self, db, ledger):
        super().__init__(daemon=True)
        self.connection = db.connect(autocommit=True)
        self.ledger = ledger
        self.stopping = threading.Event()
        self.unexpected = []
        self.refused = 0

    def run(self):
        try:
            with self.connection.cursor() as cursor:
                while not self.stopping.wait(0.002):
                    try:
                        cursor.execute("SELECT acemq.outbox_add('orders', 'k', '1')")
                        self.ledger.commit(cursor.fetchone()[0])
                    except GONE as error:
                        self.refused += 1
                        if isinstance(error, psycopg2.errors.InternalError_):
                            self.unexpected.append(error)
        except psycopg2.Error as error:
            if not self.stopping.is_set():
                self.unexpected.append(error)

    def stop(self):
        self.stopping.set()
        self.join(20)


def drop_extension(db, how):
    """Its relations are locked one after the other, in another order than a producer does: PostgreSQL may call it a deadlock."""
    for _ in range(20):
        with contextlib.suppress(psycopg2.errors.DeadlockDetected):
            db.sql(f"DROP EXTENSION acemq {how}")
            return
    raise AssertionError("deadlocks only")


def test_drop_and_create_under_load(db, queue, long_run):
    """What is in the outbox goes with it, what is added to the new one is sent; nobody meets an internal error or hangs."""
    rounds = 30 if long_run else 4
    ledger = Ledger()
    postmaster_log = db.cluster.log_mark()
    producers = [Producer(db, ledger) for _ in range(3)]
    with db.vhost.collect(queue) as collector:
        for producer in producers:
            producer.start()
        for number in range(rounds):
            seen = len(collector.messages)
            collector.wait(seen + 20, 30)
            drop_extension(db, "" if number % 2 == 0 else "CASCADE")
            await_until(lambda: not db.cluster.backends("acemq worker", db.name), 10, "the worker has gone")
            db.sql("CREATE EXTENSION acemq")
            db.await_state("relaying", "idle", timeout=30)
        for producer in producers:
            producer.stop()
        last = db.value("SELECT acemq.outbox_add('orders', 'k', '1')")
        ledger.commit(last)
        await_until(lambda: last in collector.ids, 30, "the last message came")
        await_until(lambda: db.value("SELECT count(*) FROM acemq.outbox") == 0, 20, "the outbox is empty")
    assert [error for producer in producers for error in producer.unexpected] == []
    assert sum(producer.refused for producer in producers) > 0, "no producer met the gap: the test has shown nothing"
    assert set(collector.ids) <= ledger.committed, "a message of no commit"
    log = db.cluster.log_since(postmaster_log)
    assert "terminating any other active server processes" not in log and "TRAP" not in log


def test_databases_come_and_go_under_load(db, queue, long_run):
    """Made, used, renamed, copied and dropped beside a database that relays, which misses nothing."""
    ledger = Ledger()
    producer = Producer(db, ledger)
    mark = db.cluster.log_mark()
    with db.vhost.collect(queue) as collector, contextlib.closing(db.cluster.connect()) as session:
        cursor = session.cursor()
        producer.start()
        for number in range(20 if long_run else 3):
            cursor.execute("CREATE DATABASE visitor TEMPLATE template0")
            db.cluster.sql("CREATE EXTENSION acemq", dbname="visitor")
            cursor.execute("ALTER DATABASE visitor RENAME TO guest")
            cursor.execute("CREATE DATABASE visitor TEMPLATE guest")
            cursor.execute("DROP DATABASE guest" if number % 2 else "DROP DATABASE guest WITH (FORCE)")
            cursor.execute("DROP DATABASE visitor WITH (FORCE)" if number % 2 else "DROP DATABASE visitor")
        producer.stop()
        await_until(lambda: ledger.committed <= set(collector.ids), 30, "everything came")
    assert producer.unexpected == [] and len(ledger.committed) > 100
    ledger.check(collector.ids)
    assert "terminating any other active server processes" not in db.cluster.log_since(mark)
