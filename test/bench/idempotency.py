#!/usr/bin/python3
"""What idempotency_claim() and idempotency_confirm() cost, against statements written by hand.

A message that is handled once: one transaction claims its key, a second one
confirms it.  By hand that is INSERT ... ON CONFLICT DO NOTHING and UPDATE ...
SET state = 'CONFIRMED', on a table with the same columns and indexes.  Every figure is
a ratio of two medians from the same run, the runs of the two sides alternating: below 1 is
faster or cheaper.  Time is what the client waits; cpu is what the backends burn.

    test/bench/idempotency.py [--seconds 2] [--rounds 5] [--clients 1,8] [--commit on,off]

test/bench/run makes figures of it.

May depend on: figures.py, test/lib.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import pgbench  # noqa: E402
from cluster import Cluster  # noqa: E402
from figures import clients as in_words, figure  # noqa: E402

SCHEMA = """
CREATE TABLE hand_written (LIKE acemq.idempotency INCLUDING ALL);
"""

# A key as messages have it, of 36 characters; the owner a UUID too.
KEY = "\\set a random(1, 2000000000)\n\\set b random(1, 2000000000)\n"
NAME = "'0f4a5c1e-77aa-' || lpad((:a::bigint)::text, 10, '0') || '-' || lpad((:b::bigint)::text, 10, '0')"
OWNER = "'5d1f0c64-6f8e-4c0b-9a43-0b1c7a0d8a11'"

CLAIM = {
    "by hand": f"INSERT INTO hand_written VALUES ({NAME}, 'CLAIMED', {OWNER}, clock_timestamp(), clock_timestamp() + interval '5 min')"
               " ON CONFLICT (message_id) DO NOTHING;\n",
    "acemq": f"SELECT acemq.idempotency_claim({NAME});\n",
}
CONFIRM = {
    "by hand": "UPDATE hand_written SET state = 'CONFIRMED', claimed_by = NULL, recorded_at = clock_timestamp(),"
               f" expires_at = clock_timestamp() + interval '24 h' WHERE message_id = {NAME};\n",
    "acemq": f"SELECT acemq.idempotency_confirm({NAME});\n",
}
SIDES = list(CLAIM)
SHAPES = {
    "claim": lambda side: KEY + CLAIM[side],
    "claim+confirm": lambda side: KEY + CLAIM[side] + CONFIRM[side],
}


class Bench:
    def __init__(self, cluster, database, seconds):
        self.cluster, self.database, self.seconds = cluster, database, seconds

    def run(self, script, clients):
        """Time and backends' CPU time per script in microseconds."""
        self.database.sql("TRUNCATE acemq.idempotency, hand_written")
        self.database.sql("CHECKPOINT")
        return pgbench.pgbench(self.cluster, self.database, script, clients, self.seconds)

    def measure(self, shape, clients, rounds):
        """For each side the rounds' times and CPU times."""
        return pgbench.alternate(rounds, {side: lambda side=side: self.run(SHAPES[shape](side), clients) for side in SIDES})


def measure(stage):
    """Figures for test/bench/run."""
    with stage.cluster.database("idempotency", {"synchronous_commit": "off"}) as database:
        database.sql(SCHEMA)
        bench = Bench(stage.cluster, database, 1 if stage.quick else 3)
        for shape in ("claim+confirm",) if stage.quick else SHAPES:
            for clients in (1,) if stage.quick else (1, 8):
                runs = bench.measure(shape, clients, stage.rounds)
                yield figure("idempotency", f"{shape}, {in_words(clients)}, commit off", "us", [took for took, _ in runs["acemq"]],
                             [took for took, _ in runs["by hand"]], "lower",
                             cpu_ratio=pgbench.median_columns(runs["acemq"])[1] / pgbench.median_columns(runs["by hand"])[1])


def main():
    parser = pgbench.options(__doc__, SHAPES)
    parser.add_argument("--commit", default="on,off", help="settings of synchronous_commit")
    options = parser.parse_args()

    with Cluster(pgbench.QUIET_SETTINGS) as cluster, cluster.database("bench") as database:
        database.sql(SCHEMA)
        bench = Bench(cluster, database, options.seconds)
        print("                            by hand, us      acemq / by hand\n"
              "sync          shape clients      time      cpu     time   cpu")
        for commit in options.commit.split(","):
            database.sql(f"ALTER DATABASE bench SET synchronous_commit = {commit}")
            for shape in options.only.split(","):
                for clients in map(int, options.clients.split(",")):
                    runs = bench.measure(shape, clients, options.rounds)
                    results = {side: pgbench.median_columns(runs[side]) for side in SIDES}
                    (time_base, cpu_base), (time_ours, cpu_ours) = results["by hand"], results["acemq"]
                    print(f"{commit:>4} {shape:>14} {clients:>7} {time_base:>9.1f} {cpu_base:>8.1f}     {time_ours / time_base:4.2f}  "
                          f"{cpu_ours / cpu_base:4.2f}", flush=True)


if __name__ == "__main__":
    main()
