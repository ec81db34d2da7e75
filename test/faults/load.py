"""Rows to relay, and what has to be true of them afterwards, whatever happened on the way.

May depend on: test/lib/checks.py.
"""

import collections

from checks import Ledger, await_until, in_order

WINDOW = 100  # acemq.max_in_flight of these tests
KEYS = 3


class Load:
    """Messages of one exchange: a fourth of them in a lane of their own without a key, the others in three keyed lanes."""

    def __init__(self, db, exchange="orders"):
        self.db = db
        self.exchange = exchange
        self.ledger = Ledger()
        self.failed_before = db.status()["failed"]
        self.numbers = {}
        self.lanes = collections.defaultdict(list)

    def add(self, count, keys=KEYS, body=None):
        """So many in one transaction, numbered on; their ids in order."""
        first = len(self.numbers) + 1
        rows = self.db.sql(
            "SELECT n, acemq.outbox_add(%s, 'k', coalesce(%s::text, '') || n, content_type => 'text/plain',"
            " ordering_key => CASE WHEN n %% %s > 0 THEN 'key-' || n %% %s END)"
            " FROM generate_series(%s::int, %s) n", (self.exchange, body, keys + 1, keys + 1, first, first + count - 1))
        for number, message_id in rows:
            self.numbers[message_id] = number
            self.lanes[number % (keys + 1)].append(message_id)
            self.ledger.commit(message_id)
        return [message_id for _, message_id in rows]

    def await_empty(self, timeout=30):
        await_until(lambda: self.db.value("SELECT count(*) FROM acemq.outbox") == 0, timeout,
                    lambda: f"the outbox is empty; {self.db.status()}")

    def check(self, ids, losses=0):
        """0 lost, 0 invented, at most a window of duplicates per loss, each lane in order."""
        self.ledger.check(ids, duplicates=losses * WINDOW)
        for lane in self.lanes.values():
            members = set(lane)
            in_order(self.numbers[one] for one in ids if one in members)

    def check_uncharged(self):
        """Nothing of it was any message's fault."""
        assert self.db.value("SELECT coalesce(max(attempts), 0) FROM acemq.outbox") == 0
        assert self.db.status()["failed"] == self.failed_before

    def finish(self, queue, losses=0, timeout=60):
        """All of them come out of the queue of the real broker, as check() wants it."""
        with self.db.vhost.collect(queue) as collector:
            await_until(lambda: self.ledger.committed <= set(collector.ids), timeout,
                        lambda: f"{len(set(collector.ids))} of {len(self.ledger.committed)} came; {self.db.status()}")
            self.await_empty(timeout)
            # What is on its way still has been sent before the outbox was emptied.
            await_until(lambda: self.db.vhost.count(queue) == 0, 10, "the queue is empty")
        self.check(collector.ids, losses)
        self.check_uncharged()


def restart_worker(db):
    """Another one, which has read the settings of the database again and remembers nothing; it has begun when this returns."""
    before = db.cluster.backends("acemq worker", db.name)
    db.sql("SELECT acemq.worker_restart()")
    await_until(lambda: db.cluster.backends("acemq worker", db.name) not in (before, []), 15, "a new worker runs")


def pending(db):
    """Ids in the outbox with their attempts."""
    return dict(db.sql("SELECT message_id, attempts FROM acemq.outbox"))


def worker_pid(db, timeout=15):
    return await_until(lambda: (db.cluster.backends("acemq worker", db.name) or [None])[0], timeout, "a worker")


def holds_nothing(db):
    """No transaction, no snapshot and no lock of the worker of this database."""
    rows = db.sql("SELECT a.backend_xmin, a.backend_xid, a.xact_start, (SELECT count(*) FROM pg_locks l"
                  " WHERE l.pid = a.pid) FROM pg_stat_activity a WHERE a.backend_type = 'acemq worker'"
                  " AND a.datname = current_database()")
    return rows == [(None, None, None, 0)]
