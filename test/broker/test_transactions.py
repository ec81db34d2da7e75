"""G1 and G4: a message exists if and only if its transaction commits, however late and out of order it does."""

import random
import threading
import time

import psycopg2
import pytest

from checks import Ledger, await_until
from cluster import Cluster

WRITERS = 20
MESSAGES = 5000


@pytest.fixture
def queue(db):
    return db.vhost.declare("events", exchange="orders", binding="#")


def add(cursor, ledger, body="1"):
    """Adds under a generated id: that is the way with the bare minimum of indexes."""
    cursor.execute("SELECT acemq.outbox_add('orders', 'order.placed', %s)", (body,))
    return cursor.fetchone()[0]


def write(connection, ledger, count, seed):
    """Transactions of random length that wait before they end; some roll back, in whole or in part."""
    dice = random.Random(seed)
    committed = 0
    while committed < count:
        with connection.cursor() as cursor:
            ids = [add(cursor, ledger) for _ in range(min(dice.choice((1, 1, 2, 5, 20)), count - committed))]
            undone = []
            if dice.random() < 0.2:
                cursor.execute("SAVEPOINT part")
                undone = [add(cursor, ledger) for _ in range(3)]
                cursor.execute("ROLLBACK TO part")
        time.sleep(dice.random() * 0.1)
        if dice.random() < 0.15:
            connection.rollback()
            ledger.roll_back(*ids, *undone)
            continue
        connection.commit()
        ledger.commit(*ids)
        ledger.roll_back(*undone)
        committed += len(ids)


def test_late_commits_out_of_order(db, queue):
    """20 writers, each with transactions that overlap the others': the set that arrives is the set committed."""
    ledger = Ledger()
    threads = [threading.Thread(target=write, args=(db.connect(), ledger, MESSAGES // WRITERS, seed))
               for seed in range(WRITERS)]
    with db.vhost.collect(queue) as collector:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(ledger.committed) == MESSAGES
        collector.wait(MESSAGES, 60)
        db.sql("SELECT acemq.outbox_sweep('30 s')")
        await_until(lambda: db.value("SELECT count(*) FROM acemq.outbox") == 0, 10, "the outbox is empty")
    ledger.check(collector.ids)


def test_one_late_commit(db, queue):
    """The id was taken first, the commit comes last, after others have been sent."""
    late = db.connect()
    with late.cursor() as cursor:
        late_id = add(cursor, None)
        others = [db.value("SELECT acemq.outbox_add('orders', 'order.placed', '2')") for _ in range(3)]
        db.sql("SELECT acemq.outbox_sweep()")
        assert [message.properties.message_id for message in db.vhost.drain(queue, 3)] == others
        late.commit()
    assert db.vhost.get(queue).properties.message_id == late_id


def test_wide_late_transaction(db, queue):
    """A long transaction that added rows between everybody else's reports all of them."""
    late = db.connect()
    ledger = Ledger()
    with late.cursor() as cursor:
        for _ in range(40):
            ledger.commit(add(cursor, ledger))
            for _ in range(40):
                ledger.commit(db.value("SELECT acemq.outbox_add('orders', 'order.placed', '2')"))
        db.sql("SELECT acemq.outbox_sweep()")
        late.commit()
    with db.vhost.collect(queue) as collector:
        collector.wait(40 * 41, 30)
    ledger.check(collector.ids)


def test_exception_blocks(db, queue):
    """1,000 PL/pgSQL blocks whose exception is caught send nothing (more than 64 subtransactions in one transaction)."""
    db.sql("""
        DO $$
        BEGIN
            FOR i IN 1 .. 1000 LOOP
                BEGIN
                    PERFORM acemq.outbox_add('orders', 'order.undone', '0');
                    RAISE EXCEPTION 'never mind';
                EXCEPTION WHEN raise_exception THEN
                    NULL;
                END;
            END LOOP;
            PERFORM acemq.outbox_add('orders', 'order.placed', '1');
        END $$""")
    db.sql("SELECT acemq.outbox_sweep()")
    assert [message.routing_key for message in db.vhost.drain(queue)] == ["order.placed"]


def test_asynchronous_commits(db, queue):
    """Producers with synchronous_commit = off are relayed like the others."""
    with db.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = off")
        connection.commit()
        for _ in range(50):
            add(cursor, None)
            connection.commit()
    assert len(db.vhost.drain(queue, 50)) == 50


def test_prepared_transactions(broker):
    """Prepared, the server restarted, committed by another session: sent once.  Rolled back: never."""
    vhost = broker.vhost()
    with Cluster({"max_prepared_transactions": 5}) as cluster:
        secret = cluster.secret_file("broker-password", broker.password + "\n")
        with cluster.database("shop", {"acemq.url": vhost.url(), "acemq.password_file": secret}) as db:
            queue = vhost.declare("events", exchange="orders", binding="#")
            ids = {}
            for gid in ("keep", "undo"):
                with db.connect(autocommit=True) as connection, connection.cursor() as cursor:
                    cursor.execute("BEGIN")
                    ids[gid] = add(cursor, None)
                    cursor.execute(f"PREPARE TRANSACTION '{gid}'")
                connection.close()
            later = db.value("SELECT acemq.outbox_add('orders', 'order.placed', '2')")
            assert vhost.get(queue).properties.message_id == later
            # Its delete has to be flushed: what a restart cuts off may come twice.
            db.sql("SELECT acemq.outbox_sweep()")
            cluster.restart()
            db.sql("COMMIT PREPARED 'keep'")
            db.sql("ROLLBACK PREPARED 'undo'")
            assert vhost.get(queue, 30).properties.message_id == ids["keep"]
            db.sql("SELECT acemq.outbox_sweep()")
            assert vhost.drain(queue) == []

            # Without a restart, and too quick for anybody to have seen it prepared.
            with db.connect(autocommit=True) as connection, connection.cursor() as cursor:
                cursor.execute("BEGIN")
                quick = add(cursor, None)
                cursor.execute("PREPARE TRANSACTION 'quick'")
                cursor.execute("COMMIT PREPARED 'quick'")
            connection.close()
            assert vhost.get(queue, 30).properties.message_id == quick


def test_prepared_transactions_are_counted(db, queue):
    """`pending` does not sink below what waits, however many were committed by COMMIT PREPARED; one rolled back is taken off."""
    for n in range(30):
        with db.connect(autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("BEGIN")
            add(cursor, None)
            cursor.execute(f"PREPARE TRANSACTION 'counted-{n}'")
            cursor.execute(f"COMMIT PREPARED 'counted-{n}'")
        connection.close()
        if n == 20:
            db.sql("SELECT acemq.outbox_sweep()")
            db.sql("SELECT acemq.relay_pause()")
            db.await_state("paused")
    await_until(lambda: db.status()["pending"] == 9, what=lambda: str(db.status()))
    with db.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN")
        add(cursor, None)
        cursor.execute("PREPARE TRANSACTION 'undone'")
        await_until(lambda: db.status()["pending"] == 10, what=lambda: str(db.status()))
        cursor.execute("ROLLBACK PREPARED 'undone'")
    connection.close()
    await_until(lambda: (db.status()["pending"], db.status()["pending_approximate"]) == (9, False), 60, lambda: str(db.status()))


def test_serializable_and_read_only(db, queue):
    """Works at every isolation level; a read-only transaction is told so."""
    for level in ("REPEATABLE READ", "SERIALIZABLE"):
        with db.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
            add(cursor, None)
    assert len(db.vhost.drain(queue, 2)) == 2
    with db.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION READ ONLY")
        with pytest.raises(psycopg2.errors.ReadOnlySqlTransaction):
            add(cursor, None)
