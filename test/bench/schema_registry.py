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

    def measure(self, shape, clients, rounds):
        """For each way the rounds' times and CPU times; prepare() comes first."""
        subject, definition = self.definition()
        ways, variables = (NEW, {}) if shape == "new" else (KNOWN, {"subject": subject, "definition": definition})
        return pgbench.alternate(rounds, {
            way: lambda script=script: pgbench.pgbench(self.cluster, self.database, script, clients, self.seconds, variables)
            for way, script in ways.items()})


def measure(stage):
    """Figures for test/bench/run."""
    with stage.cluster.database("registry", {"synchronous_commit": "off"}) as database:
        database.sql(SCHEMA)
        bench = Bench(stage.cluster, database, 1 if stage.quick else 3)
        for shape in ("known-300",) if stage.quick else SHAPES:
            bench.prepare(SHAPES[shape])
            for clients in (1,) if stage.quick else (1, 8):
                runs = bench.measure(shape, clients, stage.rounds)
                yield figure("registry", f"{shape}, {in_words(clients)}, commit off", "us", [took for took, _ in runs["from"]],
                             [took for took, _ in runs["by hand"]], "lower",
                             cpu_ratio=pgbench.median_columns(runs["from"])[1] / pgbench.median_columns(runs["by hand"])[1])


def report(shape, clients, results):
    time_base, cpu_base = results["by hand"]
    ratios = "  ".join(f"{way} {time_taken / time_base:4.2f} {cpu / cpu_base:4.2f}"
                       for way, (time_taken, cpu) in results.items() if way != "by hand")
    print(f"{shape:>12} {clients:>7} {time_base:>9.1f} {cpu_base:>8.1f}   {ratios}", flush=True)


def main():
    parser = pgbench.options(__doc__, SHAPES)
    options = parser.parse_args()

    settings = dict(pgbench.QUIET_SETTINGS, synchronous_commit="off")
    with Cluster(settings) as cluster, cluster.database("bench") as database:
        database.sql(SCHEMA)
        bench = Bench(cluster, database, options.seconds)
        print("                  by hand, us per call   schema_register / by hand: time, cpu of each way\n"
              "       shape clients      time      cpu")
        for shape in options.only.split(","):
            bench.prepare(SHAPES[shape])
            for clients in map(int, options.clients.split(",")):
                runs = bench.measure(shape, clients, options.rounds)
                report(shape, clients, {way: pgbench.median_columns(results) for way, results in runs.items()})


if __name__ == "__main__":
    main()
