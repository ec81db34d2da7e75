"""Commit to delivery, against publish to delivery by a plain publisher.

Idle: one message every few milliseconds, each in a transaction of its own.
Counted from the moment COMMIT returned, because the wait for the WAL is the
application's with any table; a second line counts from before COMMIT was sent.
Half load: bursts every 10 ms that add up to half of what the relay can do while
the queue is consumed; a burst is one transaction, or as many publishes in a row.

May depend on: stage.py, figures.py, test/lib.
"""

from figures import figure
from pgbench import alternate
from stage import ORIGIN, QUEUE

BODY = 300
WINDOW = 1000
IDLE_GAP_US = 5000
BURST_GAP_US = 10_000
STRETCH_MS = 0.1
PERCENTILES = ("1", "10", "25", "50", "75", "90", "95", "99", "99.9", "100")


def run(stage, database, kind, shape):
    """One run of one side; without a database the plain publisher's."""
    stage.fresh_queue(kind)
    return stage.baseline("outbox_latency" if database else "publish_latency", database, queue=QUEUE, body=BODY,
                          window=WINDOW, timeout_s=60, **shape)


def half_load(stage, database, kind):
    """Bursts of half the rate that the relay reaches while somebody consumes."""
    count = 10_000 if stage.quick else 100_000
    stage.fill(database, count, BODY)
    stage.fresh_queue(kind)
    peak = stage.baseline("watch", database, count=count, queue=QUEUE)["rate"]
    burst = max(1, int(peak / 2 * BURST_GAP_US / 1e6))
    return {"count": burst * (100 if stage.quick else 1000), "burst": burst, "gap_us": BURST_GAP_US}


def compare(stage, database, kind, name, shape, musts):
    runs = alternate(stage.rounds, {"ours": lambda: run(stage, database, kind, shape),
                                    "plain": lambda: run(stage, None, kind, shape)})
    if shape["burst"] > 1:
        yield figure("latency", f"{kind} queue, {name}, rate kept up", "messages/s", [one["rate"] for one in runs["ours"]],
                     [one["rate"] for one in runs["plain"]], "higher", asked=shape["burst"] * 1e6 / shape["gap_us"])
    for share, must in zip(("50", "99"), musts):
        ours, plain = ([one[f"from_commit_p{share}"] for one in runs[side]] for side in ("ours", "plain"))
        result = figure("latency", f"{kind} queue, {name}, p{share}", "ms", ours, plain, "lower", must, **shape,
                        curve={side: {p: [one[f"from_commit_p{p}"] for one in runs[side]] for p in PERCENTILES}
                               for side in runs})
        if must is not None:
            result["stretch"] = 1 + STRETCH_MS / result["baseline"]
            result["stretch_text"] = "+0.1 ms"
        yield result
        yield figure("latency", f"{kind} queue, {name}, from the call of COMMIT, p{share}", "ms",
                     [one[f"from_call_p{share}"] for one in runs["ours"]], plain, "lower")


def measure(stage):
    with stage.database("latency", acemq__origin=ORIGIN) as database:
        for kind in ("quorum",) if stage.quick else ("quorum", "classic"):
            idle = {"count": 200 if stage.quick else 2000, "burst": 1, "gap_us": IDLE_GAP_US}
            if stage.wants(f"{kind} queue, idle"):
                yield from compare(stage, database, kind, "idle", idle, (1.5, 2.0))
            if stage.wants(f"{kind} queue, half load"):
                yield from compare(stage, database, kind, "half load", half_load(stage, database, kind), (None, None))
