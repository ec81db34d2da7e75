#!/usr/bin/python3
"""What schema_register() costs, against the statements a user would write by hand.

Every figure is a ratio of two medians from the same run, the runs of the
sides alternating: schema_register / by hand, so below 1 is faster or cheaper.
Time is what the client waits; cpu is what the backends burn.  The hand-written
table has the columns and indexes of acemq.schema_registry.

"known" looks for a definition that is there, one of 1,000; by hand that is a
SELECT of the id by subject and fingerprint.  "from" and "field" are the two
ways to ask schema_register() for an id.  "new" registers one that is not there: by hand the
counter's UPDATE and the INSERT, in one statement.

    test/bench/schema_registry.py [--seconds 2] [--rounds 5] [--only known-300,new] [--clients 1,8]

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
CREATE TABLE hand_written (
    id integer PRIMARY KEY, subject varchar(255) COLLATE "C" NOT NULL, schema_version integer NOT NULL,
    format varchar(32) COLLATE "C" NOT NULL, definition text COLLATE "C" NOT NULL,
    fingerprint varchar(64) COLLATE "C" NOT NULL, registered_at timestamptz NOT NULL);
CREATE UNIQUE INDEX ON hand_written (subject, fingerprint);
CREATE UNIQUE INDEX ON hand_written (subject, schema_version);
CREATE TABLE hand_written_seq (only_row integer PRIMARY KEY, last_id integer NOT NULL);
INSERT INTO hand_written_seq VALUES (1, 0);
"""

# Ten subjects with 100 definitions each; random digits, so that large ones are stored apart from the row.
FILL = """
SELECT count(acemq.schema_register('subject-' || i % 10, 'avro', i || ':' ||
    (SELECT string_agg(md5(i || '.' || j), '') FROM generate_series(1, {size} / 32) j)))
FROM generate_series(1, 1000) i;
INSERT INTO hand_written SELECT * FROM acemq.schema_registry;
UPDATE hand_written_seq SET last_id = (SELECT max(id) FROM hand_written);
ANALYZE hand_written; ANALYZE acemq.schema_registry;
"""

# With -M prepared the client sends the definition as a parameter, each time.
FINGERPRINT = "encode(sha256(convert_to(:definition, 'UTF8')), 'hex')"
KNOWN = {
    "by hand": f"SELECT id FROM hand_written WHERE subject = :subject AND fingerprint = {FINGERPRINT};\n",
    "from": "SELECT id FROM acemq.schema_register(:subject, 'avro', :definition);\n",
    "field": "SELECT (acemq.schema_register(:subject, 'avro', :definition)).id;\n",
}
NEW_DEFINITION = "\\set a random(1, 2000000000)\n\\set b random(1, 2000000000)\n"
NEW_TEXT = "'{\"type\": \"fixed\", \"size\": ' || :a || ', \"name\": ' || :b || '}'"
NEW = {
    "by hand": NEW_DEFINITION +
    "WITH t AS (UPDATE hand_written_seq SET last_id = last_id + 1 WHERE only_row = 1 RETURNING last_id)"
    " INSERT INTO hand_written SELECT last_id, 'new', last_id, 'avro', d, encode(sha256(convert_to(d, 'UTF8')), 'hex'),"
    f" clock_timestamp() FROM t, (VALUES ({NEW_TEXT})) v (d) RETURNING id;\n",
    "from": NEW_DEFINITION + f"SELECT id FROM acemq.schema_register('new', 'avro', {NEW_TEXT});\n",
}
SHAPES = {"known-300": 300, "known-3000": 3_000, "known-30000": 30_000, "new": 300}


class Bench:
    def __init__(self, cluster, database, seconds):
        self.cluster, self.database, self.seconds = cluster, database, seconds

    def prepare(self, size):
        self.database.sql("TRUNCATE hand_written, acemq.schema_registry")
        self.database.sql(FILL.format(size=size))
        self.database.sql("VACUUM acemq.schema_registry")
        self.database.sql("VACUUM hand_written")

    def definition(self):
        return self.database.sql("SELECT subject, definition FROM acemq.schema_registry ORDER BY id LIMIT 1 OFFSET 500")[0]

    def run(self, script, clients, variables):
        """Time and backends' CPU time per transaction in microseconds."""
        path = self.cluster.secret_file("bench.sql", script)
        options = [f"-D{name}={value}" for name, value in variables.items()]
        burnt = -self._cpu()
        output = self.cluster.run("pgbench", "-h", self.cluster.sockets, "-p", str(self.cluster.port), "-U", "postgres",
                                  "-n", "-M", "prepared", "-c", str(clients), "-j", str(min(clients, 2)),
                                  "-T", str(self.seconds), "-f", path, *options, self.database.name)
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


def measure(bench, ways, clients, rounds, variables):
    """For each way the medians of time and CPU time."""
    runs = {way: [] for way in ways}
    for number in range(rounds):
        for way in list(ways) if number % 2 == 0 else list(reversed(ways)):
            runs[way].append(bench.run(ways[way], clients, variables))
    return {way: tuple(statistics.median(column) for column in zip(*results)) for way, results in runs.items()}


def report(shape, clients, results):
    time_base, cpu_base = results["by hand"]
    ratios = "  ".join(f"{way} {time_taken / time_base:4.2f} {cpu / cpu_base:4.2f}"
                       for way, (time_taken, cpu) in results.items() if way != "by hand")
    print(f"{shape:>12} {clients:>7} {time_base:>9.1f} {cpu_base:>8.1f}   {ratios}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=2, help="length of one run")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(SHAPES))
    parser.add_argument("--clients", default="1,8")
    options = parser.parse_args()

    settings = {"shared_buffers": "512MB", "max_wal_size": "8GB", "checkpoint_timeout": "1h", "autovacuum": "off",
                "synchronous_commit": "off"}
    with Cluster(settings) as cluster, cluster.database("bench") as database:
        database.sql(SCHEMA)
        bench = Bench(cluster, database, options.seconds)
        print("                  by hand, us per call   schema_register / by hand: time, cpu of each way\n"
              "       shape clients      time      cpu")
        for shape in options.only.split(","):
            bench.prepare(SHAPES[shape])
            subject, definition = bench.definition()
            ways, variables = (NEW, {}) if shape == "new" else (KNOWN, {"subject": subject, "definition": definition})
            for clients in map(int, options.clients.split(",")):
                report(shape, clients, measure(bench, ways, clients, options.rounds, variables))


if __name__ == "__main__":
    main()
