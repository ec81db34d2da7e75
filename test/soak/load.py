"""The load: writers with transactions of every kind.

Each writer has ordering keys of its own and counts up within them.  When a
COMMIT may or may not have happened it takes new keys, since the lost session
may still be committing while the next one adds.

May depend on: book.py, psycopg2.
"""

import contextlib
import json
import random
import threading

import psycopg2

from book import PLACES

# Route: exchange, routing key; the queue is known by the routing key's first word.
ROUTES = {
    "quorum": ("soak.topic", "quorum.order.placed"),
    "classic": ("soak.topic", "classic.order.placed"),
    "direct": ("soak.direct", "quorum"),
    "fanout": ("soak.fanout", "any"),
    "default": ("", "soak.classic"),
}

SCHEMA = """
CREATE TABLE soak_work (transaction bigint PRIMARY KEY);
CREATE FUNCTION soak_caught(exchange text, routing_key text, body text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM acemq.outbox_add(exchange, routing_key, body);
    RAISE division_by_zero;
EXCEPTION WHEN division_by_zero THEN
    NULL;
END $$;
"""

_ADD = """
SELECT acemq.outbox_add(%(exchange)s, %(routing_key)s, r.body, message_id => r.id, ordering_key => r.key)
FROM unnest(%(bodies)s::text[], %(ids)s::text[], %(keys)s::text[]) AS r (body, id, key)"""

_SCHEDULE = """
SELECT acemq.schedule_at(d.due, %(exchange)s, %(routing_key)s,
                         r.body::jsonb || jsonb_build_object('due', extract(epoch FROM d.due)))
FROM unnest(%(bodies)s::text[]) AS r (body),
     LATERAL (SELECT clock_timestamp() + random() * interval '800 ms' WHERE r.body <> '') AS d (due)"""

_LADDER = """
SELECT acemq.schedule_in((0.5 + 1.5 * random()) * interval '1 s', %(exchange)s, %(routing_key)s, r.body, via => 'ladder')
FROM unnest(%(bodies)s::text[]) AS r (body)"""

_MOST_PENDING = 1500


class Writer(threading.Thread):
    """One session after another, until told to stop."""

    def __init__(self, database, number, seed, book):
        super().__init__(daemon=True, name=f"writer {number}")
        self._database = database
        self._number = number
        self._random = random.Random(f"{seed} {number}")
        self._book = book
        self._connection = None
        self._generation = 0
        self._sequence = {}
        self._prepared = 0
        self.pid = None
        self.stopping = threading.Event()
        self.problem = None

    def run(self):
        kinds = [self._single, self._many, self._keyed, self._keyed, self._undone, self._savepoint, self._caught,
                 self._scheduled, self._ladder, self._asynchronous, self._two_phase]
        while not self.stopping.is_set():
            try:
                if self._connection is None:
                    self._connect()
                for _ in range(10):
                    self._random.choice(kinds)()
                self._wait_for_room()
            except psycopg2.Error as problem:
                # Without a code it is libpq that speaks: the session is gone; 57P0x is the server's goodbye.
                if problem.pgcode is not None and not problem.pgcode.startswith("57P"):
                    self.problem = problem
                    return
                self._lost()
            except Exception as problem:  # pylint: disable=broad-except
                self.problem = problem
                return
        self._close()

    # -- the session -----------------------------------------------------------

    def _connect(self):
        self._connection = self._database.cluster.connect(self._database.name, autocommit=False)
        self.pid = self._connection.info.backend_pid
        self._settle_prepared()

    def _settle_prepared(self):
        """What an earlier session had prepared when it was lost; either way will do."""
        self._connection.autocommit = True
        with self._connection.cursor() as cursor:
            cursor.execute("SELECT gid FROM pg_prepared_xacts WHERE gid LIKE %s", (f"soak-{self._number}-%",))
            for (gid,) in cursor.fetchall():
                cursor.execute(f"{self._random.choice(['COMMIT', 'ROLLBACK'])} PREPARED '{gid}'")
        self._connection.autocommit = False

    def _close(self):
        if self._connection is not None:
            with contextlib.suppress(psycopg2.Error):
                self._connection.close()
            self._connection = None

    def _lost(self):
        self._close()
        self._generation += 1
        self._sequence = {}
        self.stopping.wait(0.1)

    def _wait_for_room(self):
        """The backlog stays small enough to be gone soon after a fault."""
        while not self.stopping.is_set():
            with self._connection.cursor() as cursor:
                cursor.execute("SELECT pending FROM acemq.status")
                (pending,) = cursor.fetchone()
            self._connection.rollback()
            if pending is None or pending < _MOST_PENDING:
                return
            self.stopping.wait(0.05)

    # -- messages --------------------------------------------------------------

    def _begin(self):
        transaction = self._book.new_transaction()
        with self._connection.cursor() as cursor:
            cursor.execute("INSERT INTO soak_work VALUES (%s)", (transaction,))
        return transaction

    def _bodies(self, transaction, count, first=0, **more):
        size = 20000 if self._random.random() < 0.01 else self._random.randrange(300)
        return [json.dumps({"n": transaction * PLACES + first + place, **more, "pad": "x" * size})
                for place in range(count)]

    def _add(self, bodies, route, statement=_ADD, keys=None):
        exchange, routing_key = ROUTES[route]
        given = self._random.random() < 0.2
        ids = [f"soak-{json.loads(body)['n']}" if given else None for body in bodies]
        with self._connection.cursor() as cursor:
            cursor.execute(statement, {"exchange": exchange, "routing_key": routing_key, "bodies": bodies, "ids": ids,
                                       "keys": keys or [None] * len(bodies)})

    def _commit(self, transaction, lasts=True):
        try:
            self._connection.commit()
        except psycopg2.Error:
            self._book.outcome_unknown()
            raise
        if lasts:
            self._book.acknowledge(transaction)

    def _numbers(self, transaction, count, first=0):
        return [transaction * PLACES + first + place for place in range(count)]

    def _route(self):
        return self._random.choice(list(ROUTES))

    def _plain(self, count, statement=_ADD, lasts=True, **more):
        transaction = self._begin()
        self._add(self._bodies(transaction, count, **more), self._route(), statement)
        self._book.begin(transaction, self._numbers(transaction, count), ladder="ladder" in more)
        self._commit(transaction, lasts)

    # -- transactions ----------------------------------------------------------

    def _single(self):
        self._plain(1)

    def _many(self):
        self._plain(self._random.randrange(2, 150))

    def _scheduled(self):
        self._plain(self._random.randrange(1, 10), _SCHEDULE)

    def _ladder(self):
        self._plain(self._random.randrange(1, 4), _LADDER, ladder=True)

    def _asynchronous(self):
        """May be lost by a crash although its COMMIT came back; then its message must not be out."""
        with self._connection.cursor() as cursor:
            cursor.execute("SET LOCAL synchronous_commit = off")
        self._plain(self._random.randrange(1, 5), lasts=False)

    def _keyed(self):
        """A few keys, each always with the same route."""
        transaction = self._begin()
        place = 0
        for _ in range(self._random.randrange(1, 4)):
            route = self._route()
            key = f"{self._number}.{self._generation}.{route}.{self._random.randrange(3)}"
            count = self._random.randrange(1, 5)
            bodies = []
            for _ in range(count):
                self._sequence[key] = self._sequence.get(key, 0) + 1
                bodies += self._bodies(transaction, 1, place, key=key, seq=self._sequence[key])
                place += 1
            self._add(bodies, route, keys=[key] * count)
        self._book.begin(transaction, self._numbers(transaction, place))
        self._commit(transaction)

    def _undone(self):
        transaction = self._begin()
        count = self._random.randrange(1, 20)
        self._add(self._bodies(transaction, count), self._route(),
                  self._random.choice([_ADD, _SCHEDULE]))
        self._book.begin(transaction, self._numbers(transaction, count))
        self._book.roll_back(transaction)
        self._connection.rollback()

    def _savepoint(self):
        transaction = self._begin()
        before, undone, after = (self._random.randrange(1, 5) for _ in range(3))
        self._add(self._bodies(transaction, before), self._route())
        with self._connection.cursor() as cursor:
            cursor.execute("SAVEPOINT s")
        self._add(self._bodies(transaction, undone, before), self._route())
        with self._connection.cursor() as cursor:
            cursor.execute("ROLLBACK TO s")
        self._add(self._bodies(transaction, after, before + undone), self._route())
        self._book.begin(transaction, self._numbers(transaction, before) + self._numbers(transaction, after, before + undone),
                         self._numbers(transaction, undone, before))
        self._commit(transaction)

    def _caught(self):
        """The message of a PL/pgSQL block whose exception was caught."""
        transaction = self._begin()
        self._add(self._bodies(transaction, 1), self._route())
        with self._connection.cursor() as cursor:
            cursor.execute("SELECT soak_caught(%s, %s, %s)",
                           (*ROUTES[self._route()], *self._bodies(transaction, 1, 1)))
        self._book.begin(transaction, self._numbers(transaction, 1), self._numbers(transaction, 1, 1))
        self._commit(transaction)

    def _two_phase(self):
        transaction = self._begin()
        count = self._random.randrange(1, 5)
        self._add(self._bodies(transaction, count), self._route())
        self._book.begin(transaction, self._numbers(transaction, count))
        self._prepared += 1
        gid = f"soak-{self._number}-{self._prepared}"
        end = self._random.choice(["COMMIT", "COMMIT", "ROLLBACK"])
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(f"PREPARE TRANSACTION '{gid}'")
            self._connection.rollback()  # psycopg2 does not know that the transaction is over
            self._connection.autocommit = True
            with self._connection.cursor() as cursor:
                cursor.execute(f"{end} PREPARED '{gid}'")
            self._connection.autocommit = False
        except psycopg2.Error:
            self._book.outcome_unknown()
            raise
        if end == "COMMIT":
            self._book.acknowledge(transaction)
