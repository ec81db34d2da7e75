"""The relay's rate in a hard state of the table, against the rate of an empty one in the same run.

Two databases of one cluster, each with its own worker; the runs alternate, and
the worker whose turn it is not is paused.  In the full form each side relays
for two minutes.

May depend on: stage.py, figures.py, test/lib.
"""

import contextlib

from figures import figure
from pgbench import alternate
from stage import EXCHANGE, ORIGIN, ROUTING_KEY, MemoryWatch, json_body

BODY = 300
SECONDS, QUICK_SECONDS = 120, 1
PILOT = 20_000
FILL_STEP = 1_000_000
NOWHERE = "nowhere"  # an exchange without a queue: its messages come back

MILLION = 1_000_000


def fill_more(database, count, arguments):
    """Rows beside those of the runs, in transactions of a size that a server can bear."""
    for first in range(0, count, FILL_STEP):
        database.sql(f"SELECT count(acemq.outbox_add({arguments})) FROM generate_series(%s, %s) n",
                     (first + 1, min(first + FILL_STEP, count)))
    database.sql("VACUUM ANALYZE acemq.outbox")


@contextlib.contextmanager
def waiting(stage, database, count):
    """The runs take from this backlog, which is due."""
    stage.pause(database)
    fill_more(database, count, f"'{EXCHANGE}', '{ROUTING_KEY}', '{json_body(BODY)}'::text")
    yield


@contextlib.contextmanager
def not_due(stage, database, count):
    fill_more(database, count, f"'{EXCHANGE}', '{ROUTING_KEY}', '{json_body(BODY)}'::text,"
                               " not_before => now() + interval '1 day' + n * interval '1 ms'")
    yield


@contextlib.contextmanager
def held_lane(stage, database, count):
    stage.vhost.declare_exchange(NOWHERE)
    fill_more(database, count, f"'{NOWHERE}', 'k', '{json_body(BODY)}'::text")
    stage.await_status(database, lambda status: status["held_by"])
    yield


@contextlib.contextmanager
def failed_keys(stage, database, count):
    """At the longest back-off, to which the default settings come after nine attempts."""
    stage.vhost.declare_exchange(NOWHERE)
    fill_more(database, count, f"'{NOWHERE}', 'k', '{json_body(BODY)}'::text, ordering_key => 'key-' || n")
    stage.await_status(database, lambda status: status["failed"] >= count, 1800)
    yield


@contextlib.contextmanager
def held_snapshot(stage, database, count):
    """And so many dead rows, sent since the snapshot was taken, which nobody may remove."""
    with contextlib.closing(database.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute("SELECT count(*) FROM acemq.outbox")
        stage.fill(database, count, BODY)
        stage.fresh_queue("quorum")
        stage.baseline("watch", database, count=count)
        yield


@contextlib.contextmanager
def open_writer(stage, database, count):
    with contextlib.closing(database.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT acemq.outbox_add('{EXCHANGE}', '{ROUTING_KEY}', '1')")
        yield
        connection.rollback()


RETRY_LATE = {"acemq__retry_delay": "5min", "acemq__max_attempts": "1000000"}

# name, state, rows, rows with --quick, settings of the database, stretch
STATES = [
    ("%s rows waiting", waiting, 10 * MILLION, 100_000, {}, 0.97),
    ("%s rows not yet due", not_due, MILLION, None, {}, None),
    ("%s rows not yet due", not_due, 10 * MILLION, 50_000, {}, None),
    ("%s rows behind a failed one", held_lane, MILLION, 20_000, {}, None),
    ("%s failed keys", failed_keys, 100_000, 1_000, RETRY_LATE, None),
    ("snapshot held, %s dead rows", held_snapshot, MILLION, 20_000, {}, 0.97),
    ("writing transaction open", open_writer, None, 0, {}, 0.97),
]


def one_run(stage, database, count, add=True):
    """Rate of one run; the worker is paused before and after."""
    if add:
        stage.fill(database, count, BODY)
    waiting_before = database.status()["pending"]
    stage.fresh_queue("quorum")
    with MemoryWatch(stage, database):
        result = stage.baseline("watch", database, count=count)
    stage.pause(database)
    return dict(result, waiting=waiting_before)


def rounds_of(stage):
    return max(1, stage.rounds // 2) if stage.quick else stage.rounds


def rows_of_a_run(stage, database):
    pilot = PILOT // 2 if stage.quick else PILOT
    stage.fill(database, pilot, BODY)
    stage.fresh_queue("quorum")
    rate = stage.baseline("watch", database, count=pilot)["rate"]
    return max(pilot, int(rate * (QUICK_SECONDS if stage.quick else SECONDS) / rounds_of(stage)))


def measure_state(stage, empty, count, name, state, rows, settings, stretch):
    with stage.database("loaded", acemq__origin=ORIGIN, **settings) as loaded, state(stage, loaded, rows):
        stage.pause(loaded)
        drains = state is waiting
        if drains:
            count = min(count, rows // rounds_of(stage))
        runs = alternate(rounds_of(stage), {"empty": lambda: one_run(stage, empty, count),
                                        "loaded": lambda: one_run(stage, loaded, count, add=not drains)})
    return figure("flatness", name, "messages/s", [run["rate"] for run in runs["loaded"]],
                  [run["rate"] for run in runs["empty"]], "higher", 0.9, stretch, messages=count,
                  waiting=[run["waiting"] for run in runs["loaded"]],
                  seconds={side: sum(run["seconds"] for run in runs[side]) for side in runs})


def measure(stage):
    with stage.database("empty", acemq__origin=ORIGIN) as empty:
        count = rows_of_a_run(stage, empty)
        for name, state, full, quick, settings, stretch in STATES:
            rows = quick if stage.quick else full
            if rows is None and state is not open_writer:
                continue
            name = name % f"{rows:,}" if "%s" in name else name
            if stage.wants(name):
                yield measure_state(stage, empty, count, name, state, rows, settings, stretch)
