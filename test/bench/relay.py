"""Relay throughput from committed rows, against a plain publisher with confirms and the same window.

Rows are put in while the relay is paused.  Timed is from the first confirm to
the last, on both sides; each run has a queue of its own, fresh and without a
consumer, and begins when the broker has finished with the last one.

May depend on: stage.py, figures.py, test/lib.
"""

from figures import figure
from pgbench import alternate
from stage import EXCHANGE, KINDS, ORIGIN, QUEUE, ROUTING_KEY, MemoryWatch, json_body

WINDOWS = (1, 100, 1000)
BODIES = (300, 8000)
MUST_CASE = ("quorum", 300, 1000)
SECONDS, QUICK_SECONDS = 5, 1.5
# Enough to tell how many messages these seconds need.
PILOT = {1: 500, 100: 5_000, 1000: 10_000}


def cases(quick):
    if quick:
        return [MUST_CASE, ("classic", 300, 1000)]
    return [(kind, body, window) for kind in reversed(KINDS) for body in BODIES for window in WINDOWS]


def wire_form(stage, database, body):
    """The two sides' messages must be alike: same properties, same headers, same kinds.  The number of bytes of the body."""
    stage.fresh_queue("classic")
    stage.fill(database, 1, body)
    stage.baseline("watch", database, count=1)
    ours = stage.vhost.get(QUEUE)
    stage.baseline("publish", count=1, window=1, body=body)
    plain = stage.vhost.get(QUEUE)

    def form(message):
        properties = {name: len(str(value)) for name, value in vars(message.properties).items()
                      if value is not None and name not in ("headers", "exact", "kinds")}
        lengths = {name: len(str(value)) for name, value in message.headers.items()}
        return properties, sorted(message.kinds.items()), lengths, message.exchange, message.routing_key, len(message.body)

    if form(ours) != form(plain):
        raise AssertionError(f"the two sides send different messages:\n{form(ours)}\n{form(plain)}")


def run_ours(stage, database, kind, body, window, count):
    stage.fill(database, count, body)
    stage.fresh_queue(kind)
    with MemoryWatch(stage, database):
        return stage.baseline("watch", database, count=count)


def run_plain(stage, kind, body, window, count):
    stage.fresh_queue(kind)
    return stage.baseline("publish", count=count, window=window, body=body)


def case_name(case):
    return "%s queue, %d B, window %d" % case


def measure_case(stage, database, case):
    kind, body, window = case
    pilot = run_plain(stage, kind, body, window, PILOT[window])
    count = int(max(pilot["rate"] * (QUICK_SECONDS if stage.quick else SECONDS), 10 * window))
    stage.cluster.configure(acemq__max_in_flight=window)
    runs = alternate(stage.rounds, {"ours": lambda: run_ours(stage, database, kind, body, window, count),
                                    "plain": lambda: run_plain(stage, kind, body, window, count)})
    must, stretch = (0.80, 1.0) if case == MUST_CASE else (None, None)
    return figure("relay", case_name(case), "messages/s",
                  [run["rate"] for run in runs["ours"]], [run["rate"] for run in runs["plain"]], "higher", must, stretch,
                  messages=count, until_first_s=[run["until_first"] for run in runs["ours"]],
                  until_deleted_s=[run["until_deleted"] for run in runs["ours"]])


def measure(stage, only=None):
    """Figures, one at a time."""
    with stage.database("relay", acemq__origin=ORIGIN) as database:
        wire_form(stage, database, 300)
        for case in filter(lambda case: stage.wants(case_name(case)), cases(stage.quick)):
            yield measure_case(stage, database, case)
        stage.cluster.configure(acemq__max_in_flight=None)
