"""The idempotency store when many are at the same key: claims that race, leases that run out, the worker's purge."""

import bisect
import collections
import contextlib
import itertools
import os
import random
import subprocess
import threading
import time

import psycopg2
import psycopg2.extensions
import pytest

from checks import await_until
from cluster import Cluster

_names = itertools.count(1)


@pytest.fixture
def db(cluster):
    cluster.ensure_running()
    with cluster.database(f"claims{next(_names)}") as database:
        yield database


def run_all(count, work):
    """work(number) in so many threads at once; its results."""
    results, failures = [None] * count, []

    def run(number):
        try:
            results[number] = work(number)
        except BaseException as error:  # noqa: B902 - shown by the caller, whatever it is
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


def ask(connection, query, params=None):
    with connection.cursor() as cursor:
        cursor.execute(query, params)
        return cursor.fetchone()


def keep_the_worker_away(db):
    """It would remove the expired row that a test needs; without the outbox it skips its turns."""
    with db.connect().cursor() as cursor:
        cursor.execute("LOCK TABLE acemq.outbox IN SHARE MODE")


# -- one key -----------------------------------------------------------------


def answers_of_fifty(db, connections, key):
    start = threading.Barrier(len(connections))

    def claim(number):
        start.wait()
        return ask(connections[number], "SELECT acemq.idempotency_claim(%s)::text", (key,))[0]

    return collections.Counter(run_all(len(connections), claim))


def test_fifty_sessions_race_for_one_key(db):
    connections = [db.connect(autocommit=True) for _ in range(50)]
    for key in ("first", "second", "third"):
        assert answers_of_fifty(db, connections, key) == {"claimed": 1, "in_progress": 49}
        db.sql("SELECT acemq.idempotency_confirm(%s)", (key,))
        assert answers_of_fifty(db, connections, key) == {"duplicate": 50}


def test_fifty_sessions_race_for_an_expired_key(db):
    keep_the_worker_away(db)
    connections = [db.connect(autocommit=True) for _ in range(50)]
    for state in ("CLAIMED", "CONFIRMED"):
        db.sql("INSERT INTO acemq.idempotency VALUES (%s, %s, 'dead', now(), now() - interval '1 s')", (state, state))
        assert answers_of_fifty(db, connections, state) == {"claimed": 1, "in_progress": 49}


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("first", ["SELECT acemq.idempotency_claim('k')",
                                   "INSERT INTO acemq.idempotency VALUES ('k', 'CLAIMED', 'ruby', now(), now() + interval '1 h')",
                                   "UPDATE acemq.idempotency SET claimed_by = 'ruby' WHERE message_id = 'old'",
                                   "DELETE FROM acemq.idempotency"])
def test_a_claim_does_not_wait_for_an_open_transaction(db, level, first):
    keep_the_worker_away(db)
    db.sql("INSERT INTO acemq.idempotency VALUES ('old', 'CLAIMED', 'dead', now(), now() + interval '0.2 s')")
    await_until(lambda: db.value("SELECT expires_at <= clock_timestamp() FROM acemq.idempotency"), 5)
    other, ours = db.connect(), db.connect(options="-c statement_timeout=5s")
    ours.set_session(isolation_level=level)
    key = "old" if "UPDATE" in first or "DELETE" in first else "k"
    with other.cursor() as cursor:
        cursor.execute(first)
    took = []
    for _ in range(5):
        begun = time.monotonic()
        assert ask(ours, "SELECT acemq.idempotency_claim(%s)::text", (key,)) == ("in_progress",)
        took.append(time.monotonic() - begun)
    assert min(took) < 0.1
    other.rollback()
    assert ask(ours, "SELECT acemq.idempotency_claim(%s)::text", (key,)) == ("claimed",)


def test_a_second_unique_index_on_the_key(db):
    """REINDEX CONCURRENTLY builds one beside the first: neither a wait nor an error."""
    db.sql("CREATE UNIQUE INDEX twin ON acemq.idempotency (message_id)")
    with contextlib.closing(db.connect()) as first, contextlib.closing(db.connect(autocommit=True)) as second:
        assert ask(first, "SELECT acemq.idempotency_claim('k')::text") == ("claimed",)
        ask(second, "SELECT set_config('lock_timeout', '1 s', false)")
        assert ask(second, "SELECT acemq.idempotency_claim('k')::text") == ("in_progress",)
        first.commit()
        assert ask(second, "SELECT acemq.idempotency_claim('k')::text") == ("in_progress",)


def test_an_owner_that_is_no_text_here(cluster, db):
    """A setting may come from a file, or from a database of another encoding: such a name would make a dump that cannot be restored."""
    environment = {**os.environ, **cluster.environment(db.name), "PGOPTIONS": os.fsdecode(b"-c acemq.owner=Z\xfcrich")}
    for call in ("claim", "confirm", "forget"):
        done = subprocess.run(["psql", "-X", "-c", f"SELECT acemq.idempotency_{call}('k')"], env=environment, check=False,
                              capture_output=True)
        assert b"invalid byte sequence" in done.stderr
    assert db.sql("SELECT count(*) FROM acemq.idempotency") == [(0,)]


def test_a_dead_session_leaves_its_claim_to_the_next(db):
    """Its lease has run out, nobody has purged: the claim is taken over."""
    session = db.connect(autocommit=True)
    assert ask(session, "SELECT acemq.idempotency_claim('k', '500 ms')::text") == ("claimed",)
    session.close()
    assert db.value("SELECT acemq.idempotency_claim('k')::text") == "in_progress"
    await_until(lambda: db.value("SELECT acemq.idempotency_claim('k')::text") == "claimed", 5)


def test_confirm_honours_lock_timeout(db):
    other, ours = db.connect(), db.connect(options="-c lock_timeout=50ms")
    ask(other, "SELECT acemq.idempotency_claim('k')")
    with pytest.raises(psycopg2.errors.LockNotAvailable):
        ask(ours, "SELECT acemq.idempotency_confirm('k')")
    ours.rollback()
    other.commit()
    assert ask(ours, "SELECT acemq.idempotency_confirm('k')") == (False,)


def test_a_session_keeps_its_name_and_no_other_has_it(db):
    one, two = db.connect(), db.connect()
    ask(one, "SELECT acemq.idempotency_claim('rolled back')")
    (name,) = ask(one, "SELECT claimed_by FROM acemq.idempotency")
    one.rollback()
    ask(one, "SELECT acemq.idempotency_claim('k')")
    one.commit()
    assert db.value("SELECT claimed_by FROM acemq.idempotency") == name
    assert ask(two, "SELECT acemq.idempotency_forget('k')") == (False,)
    assert ask(two, "SELECT acemq.idempotency_confirm('k')") == (False,)


def test_a_hundred_thousand_claims_in_one_transaction(db):
    """They take no place in the lock table."""
    session = db.connect()
    assert ask(session, "SELECT count(*) FROM generate_series(1, 100000) i WHERE acemq.idempotency_first_time('k' || i)") == (100000,)
    assert ask(session, "SELECT count(*) < 100 FROM pg_locks WHERE pid = pg_backend_pid()") == (True,)
    session.commit()
    assert db.value("SELECT acemq.idempotency_claim('k1')::text") == "in_progress"


def test_on_a_standby(cluster, db):
    db.sql("SELECT acemq.idempotency_confirm('done')")
    standby = Cluster()
    try:
        standby.copy_of(cluster)
        with contextlib.closing(standby.connect(db.name)) as session:
            assert ask(session, "SELECT acemq.idempotency_confirmed('done'), acemq.idempotency_confirmed('other')") == (True, False)
            for call in ("claim('k')", "first_time('k')", "confirm('k')", "forget('k')", "purge()"):
                with pytest.raises(psycopg2.errors.ReadOnlySqlTransaction):
                    ask(session, f"SELECT acemq.idempotency_{call}")
    finally:
        standby.destroy()


# -- the soak ----------------------------------------------------------------

KEYS = [f"key {number}" for number in range(10)]
SESSIONS = 32
# At REPEATABLE READ the table shows a version from before the snapshot beside the one we have just written.
NEWEST = " ORDER BY recorded_at DESC LIMIT 1"

Claim = collections.namedtuple("Claim", "key recorded expires learned")
Confirm = collections.namedtuple("Confirm", "key begun ended expires")
Forget = collections.namedtuple("Forget", "key begun ended")


class Session:
    """One owner who claims keys and confirms, forgets or abandons them; remembers what was committed."""

    def __init__(self, db, level, number):
        # A session that fails must not leave the others waiting for it.
        self.connection = db.connect(options="-c statement_timeout=60s -c idle_in_transaction_session_timeout=60s")
        self.connection.set_session(isolation_level=level)
        self.owner = f"owner {number}"
        self.random = random.Random(f"{level} {number}")
        self.claims, self.confirms, self.forgets = [], [], []
        self.errors = collections.Counter()
        self.late = 0

    def run_until(self, end):
        while time.time() < end:
            held = self.attempt(self.claim_some) or []
            for claim in held:
                self.attempt(lambda claim=claim: self.finish(claim))

    def attempt(self, work):
        try:
            return work()
        except psycopg2.Error as error:
            self.errors[error.pgcode] += 1
            self.connection.rollback()
            return None

    def ask(self, query, *params):
        return ask(self.connection, query, params)

    def claim_some(self):
        """A transaction that claims one to three keys, some of it undone; the claims that were committed."""
        claimed = []
        for key in self.random.sample(KEYS, self.random.choice((1, 1, 2, 3))):
            undo = self.random.random() < 0.15
            if undo:
                self.execute("SAVEPOINT s")
            claim = self.claim(key)
            if undo:
                self.execute("ROLLBACK TO SAVEPOINT s")
            elif claim:
                claimed.append(claim)
        if claimed and self.random.random() < 0.3:
            time.sleep(self.random.uniform(0, 0.02))
        if self.random.random() < 0.15:
            self.connection.rollback()
            return []
        self.connection.commit()
        self.claims += claimed
        return claimed

    def claim(self, key):
        (answer,) = self.ask("SELECT acemq.idempotency_claim(%s, make_interval(secs => %s), %s)::text",
                             key, self.random.uniform(0.002, 0.04), self.owner)
        learned = time.time()
        if answer != "claimed":
            return None
        recorded, expires, owner = self.ask("SELECT extract(epoch FROM recorded_at)::float8, extract(epoch FROM expires_at)::float8,"
                                            " claimed_by FROM acemq.idempotency WHERE message_id = %s" + NEWEST, key)
        assert owner == self.owner
        return Claim(key, recorded, expires, learned)

    def execute(self, statement):
        with self.connection.cursor() as cursor:
            cursor.execute(statement)

    def finish(self, claim):
        what = self.random.random()
        if what < 0.3:
            return  # the lease runs out
        if what < 0.6:
            self.forget(claim.key)
        else:
            if what > 0.85:
                time.sleep(max(0, claim.expires - time.time()) + 0.005)
            self.confirm(claim.key)
        if self.random.random() < 0.02:
            self.ask("SELECT acemq.idempotency_purge()")
            self.connection.commit()

    def forget(self, key):
        begun = time.time()
        (forgotten,) = self.ask("SELECT acemq.idempotency_forget(%s, %s)", key, self.owner)
        self.connection.commit()
        if forgotten:
            self.forgets.append(Forget(key, begun, time.time()))

    def confirm(self, key):
        begun = time.time()
        (held,) = self.ask("SELECT acemq.idempotency_confirm(%s, make_interval(secs => %s), %s)",
                           key, self.random.uniform(0.001, 0.02), self.owner)
        (expires,) = self.ask("SELECT extract(epoch FROM expires_at)::float8 FROM acemq.idempotency WHERE message_id = %s" + NEWEST, key)
        if self.random.random() < 0.1:
            self.connection.rollback()
            return
        self.connection.commit()
        self.late += not held
        self.confirms.append(Confirm(key, begun, time.time(), expires))


def of_key(sessions, kind, key):
    return [event for session in sessions for event in getattr(session, kind) if event.key == key]


class Between:
    """Is there an event that overlaps a span of time?  Events are sorted once: a long run has a million of them."""

    def __init__(self, events):
        self.events = sorted(events, key=lambda event: event.begun)
        self.longest = max((event.ended - event.begun for event in events), default=0)
        self.begins = [event.begun for event in self.events]

    def other_than(self, excluded, begin, end):
        first = bisect.bisect_left(self.begins, begin - self.longest)
        last = bisect.bisect_right(self.begins, end)
        return any(event is not excluded and event.ended >= begin for event in self.events[first:last])


def two_owners(sessions, key):
    """Pairs of a claim and the next one that was answered while it held, though nobody had forgotten or confirmed it.

    In the order of the answers: a session that was kept from running between
    taking the time and writing the row has recorded a time that is too early.
    """
    claims = sorted(of_key(sessions, "claims", key), key=lambda claim: claim.learned)
    excuses = Between(of_key(sessions, "confirms", key) + of_key(sessions, "forgets", key))
    return [(one, two) for one, two in zip(claims, claims[1:])
            if two.learned < one.expires and not excuses.other_than(None, one.recorded, two.learned)]


def claimed_though_confirmed(sessions, key):
    """Pairs of a confirmation and a claim while it held, though no other confirmation had replaced it by a shorter one."""
    claims = sorted(of_key(sessions, "claims", key), key=lambda claim: claim.recorded)
    recorded = [claim.recorded for claim in claims]
    confirms = of_key(sessions, "confirms", key)
    excuses = Between(confirms)
    found = []
    for confirm in confirms:
        inside = claims[bisect.bisect_right(recorded, confirm.ended):bisect.bisect_left(recorded, confirm.expires)]
        found += [(confirm, claim) for claim in inside if claim.learned < confirm.expires
                  and not excuses.other_than(confirm, confirm.begun, claim.learned)]
    return found


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_never_two_owners(db, level, long_run, capsys):
    """32 owners, ten keys, short leases, rollbacks and late confirms; at each isolation level, 5 s or, with --long, 10 minutes."""
    sessions = [Session(db, level, number) for number in range(SESSIONS)]
    end = time.time() + (600 if long_run else 5)
    run_all(SESSIONS, lambda number: sessions[number].run_until(end))

    errors = sum((session.errors for session in sessions), collections.Counter())
    claims = [claim for session in sessions for claim in session.claims]
    confirms = sum(len(session.confirms) for session in sessions)
    late = sum(session.late for session in sessions)
    with capsys.disabled():
        print(f"\n  {level}: {len(claims)} claims, {confirms} confirmed, {late} of them too late; errors: {dict(errors)}")
    assert set(errors) <= (set() if level == "READ COMMITTED" else {"40001"})
    for key in KEYS:
        assert two_owners(sessions, key) == []
        assert claimed_though_confirmed(sessions, key) == []
    assert len(claims) > 100
    assert late > 0 or level == "SERIALIZABLE"  # where most are refused before it comes to that


# -- the worker --------------------------------------------------------------

PUT = ("INSERT INTO acemq.idempotency SELECT %s || i, CASE WHEN i %% 2 = 0 THEN 'CLAIMED' ELSE 'CONFIRMED' END, 'x', now(),"
       " clock_timestamp() + make_interval(secs => %s) FROM generate_series(1, %s) i")
LEFT = "SELECT count(*) FROM acemq.idempotency WHERE message_id LIKE %s"


@pytest.mark.parametrize("state", ["no URL", "relay off", "paused"])
def test_the_worker_removes_what_has_expired(cluster, db, state):
    if state == "relay off":
        db.sql(f'ALTER DATABASE "{db.name}" SET acemq.relay = off')
    elif state == "paused":
        db.sql("SELECT acemq.relay_pause()")
    db.sql(PUT, ("old ", -1, 1200))
    db.sql(PUT, ("live ", 3600, 20))
    db.sql("SELECT acemq.worker_restart()")
    await_until(lambda: db.value(LEFT, ("old %",)) == 0, 30, "expired rows are gone")
    assert db.value(LEFT, ("live %",)) == 20


def test_a_hundred_thousand_expired_rows_go_in_batches(cluster, db):
    """And meanwhile keys are claimed, expired ones among them."""
    db.sql(PUT, ("old ", -1, 100000))
    db.sql("SELECT acemq.worker_restart()")
    left, slowest, number = set(), 0, 100000
    while 0 not in left:
        begun = time.monotonic()
        assert db.value("SELECT acemq.idempotency_claim(%s)::text", (f"new {number}",)) == "claimed"
        assert db.value("SELECT acemq.idempotency_claim(%s)::text", (f"old {number}",)) in ("claimed", "in_progress")
        slowest = max(slowest, time.monotonic() - begun)
        assert number > 0, "expired rows are not going"
        number -= 1
        left.add(db.value(LEFT + " AND expires_at <= clock_timestamp()", ("old %",)))
    assert len(left) > 10
    assert slowest < 2
    assert db.value(LEFT, ("new %",)) == 100000 - number


def test_a_row_that_cannot_be_deleted_does_not_end_the_worker(cluster, db):
    db.sql("CREATE TABLE public.kept (key varchar(255) REFERENCES acemq.idempotency)")
    db.sql(PUT, ("old ", -1, 1))
    db.sql("INSERT INTO public.kept SELECT message_id FROM acemq.idempotency")
    (before,) = await_until(lambda: cluster.backends("acemq worker", db.name), 10)
    mark = cluster.log_mark()
    db.sql("SELECT acemq.worker_restart()")
    await_until(lambda: "expired rows of the idempotency store are not removed" in cluster.log_since(mark), 30)
    (pid,) = cluster.backends("acemq worker", db.name)
    assert pid != before
    db.sql("DROP TABLE public.kept")
    db.sql("SELECT acemq.relay_pause()")  # has the worker take a turn
    assert cluster.backends("acemq worker", db.name) == [pid]
    assert cluster.log_since(mark).count("ERROR") == 0
