"""Commit to delivery is not a polling delay, and an idle worker costs next to nothing."""

import statistics
import time

import pytest

from checks import await_until

COMMITS = 1000


@pytest.fixture
def queue(db):
    return db.vhost.declare("events", exchange="orders", binding="#")


def test_single_commits(db, queue, capsys):
    """Figures are printed; what is asserted is only that nobody waited for acemq.poll_interval (1 s)."""
    committed = []
    with db.vhost.collect(queue) as collector, db.connect() as connection, connection.cursor() as cursor:
        for n in range(COMMITS):
            cursor.execute("SELECT acemq.outbox_add('orders', 'k', '{\"n\": 1}')")
            connection.commit()
            committed.append(time.monotonic())
            collector.wait(n + 1, 10)
        delays = sorted((message.at - at) * 1000 for message, at in zip(collector.messages, committed))
    with capsys.disabled():
        print(f"\n  commit to delivery: median {statistics.median(delays):.2f} ms, "
              f"p99 {delays[int(COMMITS * 0.99)]:.2f} ms, worst {delays[-1]:.2f} ms")
    assert statistics.median(delays) < 100


def idle_transactions(cluster):
    """Transactions of the database, and the WAL position of the cluster."""
    ((transactions, wal),) = cluster.sql("SELECT xact_commit, (pg_current_wal_insert_lsn() - '0/0')::bigint"
                                         " FROM pg_stat_database WHERE datname = 'idle'")
    return transactions, wal


def await_idle_transactions(cluster):
    """Until ten seconds pass in which the database has counted at most one transaction."""
    last = [time.monotonic(), idle_transactions(cluster)[0]]

    def quiet():
        now, count = time.monotonic(), idle_transactions(cluster)[0]
        if count > last[1] + 1:
            last[:] = [now, count]
        return now - last[0] > 10

    await_until(quiet, 60, "the worker is idle", interval=0.5)


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def test_idle_cost(cluster, broker, long_run, capsys):
    """What an idle worker does: transactions, WAL and CPU, over a minute with --long, ten seconds otherwise."""
    vhost = broker.vhost()
    secret = cluster.secret_file("broker-password", broker.password + "\n")
    with cluster.database("idle", {"acemq.url": vhost.url(), "acemq.password_file": secret},
                          extensions=("acemq",)) as db:
        vhost.declare("events", exchange="orders", binding="#")
        db.sql("SELECT acemq.outbox_add('orders', 'k', '1')")
        await_until(lambda: db.value("SELECT count(*) FROM acemq.outbox") == 0, 10, "sent")
        await_until(lambda: not db.status()["pending_approximate"], 30, "rows are counted")
        (pid,) = cluster.backends("acemq worker", "idle")
        db.sql("SELECT pg_stat_force_next_flush()")
        db.close()

        # Two polls bring what came before into the statistics, and the poll interval to its full length.
        seconds = 120 if long_run else 30
        cluster.configure(autovacuum="off")  # its transactions would be counted with the worker's
        try:
            await_idle_transactions(cluster)
            cluster.sql("CHECKPOINT")
            before = (*idle_transactions(cluster), cpu_seconds(pid))
            time.sleep(seconds)  # the length of the idle time is what is measured
            after = (*idle_transactions(cluster), cpu_seconds(pid))
        finally:
            cluster.configure(autovacuum=None)
    transactions, wal, cpu = (b - a for a, b in zip(before, after))
    with capsys.disabled():
        print(f"\n  idle for {seconds} s: {transactions} transactions, {wal} bytes of WAL, {cpu:.2f} s CPU")
    # One per stretched poll, and one that was reported late.
    assert transactions <= seconds / 10 + 2
