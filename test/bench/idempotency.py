#!/usr/bin/python3
"""What idempotency_claim() and idempotency_confirm() cost, against statements written by hand.

A message that is handled once: one transaction claims its key, a second one
confirms it.  By hand that is INSERT ... ON CONFLICT DO NOTHING and UPDATE ...
SET state = 'CONFIRMED', on a table with the same columns and indexes.  Every figure is
a ratio of two medians from the same run, the runs of the two sides alternating: below 1 is
faster or cheaper.  Time is what the client waits; cpu is what the backends burn.

    test/bench/idempotency.py [--seconds 2] [--rounds 5] [--clients 1,8] [--commit on,off]

May depend on: test/lib.
"""

import argparse
import os
import re
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

from cluster import Cluster  # noqa: E402

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
        path = self.cluster.secret_file("bench.sql", script)
        burnt = -self._cpu()
        output = self.cluster.run("pgbench", "-h", self.cluster.sockets, "-p", str(self.cluster.port), "-U", "postgres",
                                  "-n", "-M", "prepared", "-c", str(clients), "-j", str(min(clients, 2)),
                                  "-T", str(self.seconds), "-f", path, self.database.name)
        time.sleep(0.1)
        burnt += self._cpu()
        rate = float(re.search(r"tps = ([0-9.]+)", output).group(1))
        count = int(re.search(r"actually processed: ([0-9]+)", output).group(1))
        return 1e6 / rate, 1e6 * burnt / count

    def _cpu(self):
        """Seconds that the backends which have ended took."""
        with open(f"/proc/{self.cluster.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def measure(bench, shape, clients, rounds):
    """For each side the medians of time and CPU time."""
    runs = {side: [] for side in SIDES}
    for number in range(rounds):
        for side in SIDES if number % 2 == 0 else reversed(SIDES):
            runs[side].append(bench.run(SHAPES[shape](side), clients))
    return {side: [statistics.median(values) for values in zip(*results)] for side, results in runs.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=2, help="length of one run")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(SHAPES))
    parser.add_argument("--clients", default="1,8")
    parser.add_argument("--commit", default="on,off", help="settings of synchronous_commit")
    options = parser.parse_args()

    settings = {"shared_buffers": "512MB", "max_wal_size": "8GB", "checkpoint_timeout": "1h", "autovacuum": "off"}
    with Cluster(settings) as cluster, cluster.database("bench") as database:
        database.sql(SCHEMA)
        bench = Bench(cluster, database, options.seconds)
        print("                            by hand, us      acemq / by hand\n"
              "sync          shape clients      time      cpu     time   cpu")
        for commit in options.commit.split(","):
            database.sql(f"ALTER DATABASE bench SET synchronous_commit = {commit}")
            for shape in options.only.split(","):
                for clients in map(int, options.clients.split(",")):
                    results = measure(bench, shape, clients, options.rounds)
                    (time_base, cpu_base), (time_ours, cpu_ours) = results["by hand"], results["acemq"]
                    print(f"{commit:>4} {shape:>14} {clients:>7} {time_base:>9.1f} {cpu_base:>8.1f}     {time_ours / time_base:4.2f}  "
                          f"{cpu_ours / cpu_base:4.2f}", flush=True)


if __name__ == "__main__":
    main()
