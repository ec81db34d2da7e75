"""Dump and restore of everything: no error line, every store answers as before, no id is given out twice."""

import itertools
import os

import pytest

from cluster import Cluster
from processes import new_dir

_numbers = itertools.count(1)

FILL = """
SELECT acemq.outbox_add('orders', 'placed', '{"n": 1}', headers => '{"a": 1}', message_id => 'waits-1');
SELECT acemq.outbox_add('orders', 'placed', '\\x00ff'::bytea, message_id => 'waits-2', ordering_key => 'o');
SELECT acemq.schedule_in('1 year', 'orders', 'reminder', '{}', message_id => 'later');
SELECT acemq.schedule_in('90 s', 'orders', 'reminder', '{}', message_id => 'ladder', via => 'ladder');
SELECT acemq.outbox_add('orders', 'placed', acemq.claim_check_encode('\\x01020304', 0), message_id => 'checked');
SELECT acemq.outbox_add('orders', 'lost', 'null', message_id => 'retired-' || n) FROM generate_series(1, 2) n;
UPDATE acemq.outbox SET retired_at = clock_timestamp(), attempts = 10, last_error = 'no route' WHERE message_id LIKE 'retired-%';
SELECT acemq.idempotency_claim('claimed-' || n, owner => 'me', lease => '1 day') FROM generate_series(1, 2) n;
SELECT acemq.idempotency_claim('confirmed-' || n, owner => 'me') FROM generate_series(1, 2) n;
SELECT acemq.idempotency_confirm('confirmed-' || n, owner => 'me', retention => '1 day') FROM generate_series(1, 2) n;
SELECT acemq.schema_register('s' || n % 2, 'avro', '{"type": "v' || n || '"}') FROM generate_series(1, 5) n;
DELETE FROM acemq.schema_registry WHERE id = 5;
"""

# What has to be the same.  Ids of the outbox are internal, but their order is the order of sending.
ANSWERS = {
    "outbox": "SELECT message_id, exchange, routing_key, body, headers, ordering_key, not_before, retired_at, attempts,"
              " last_error, content_type, ladder_due_at, correlation_id FROM acemq.outbox ORDER BY id",
    "claims": "SELECT k, acemq.idempotency_claim(k, owner => 'another'), acemq.idempotency_confirmed(k)"
              " FROM unnest(ARRAY['claimed-1', 'claimed-2', 'confirmed-1', 'confirmed-2']) k",
    "idempotency": "SELECT * FROM acemq.idempotency ORDER BY 1",
    "schemas": "SELECT s.* FROM unnest(ARRAY['s0', 's1']) n, acemq.schema_versions(n) s ORDER BY s.id",
    "counter": "SELECT * FROM acemq.schema_registry_seq",
    "known schema": "SELECT id, schema_version FROM acemq.schema_register('s1', 'avro', '{\"type\": \"v3\"}')",
    "payloads": "SELECT acemq.claim_check_decode(body) FROM acemq.outbox WHERE message_id = 'checked'",
    "stored": "SELECT * FROM acemq.claim_check",
}


def answers(cluster, dbname):
    def comparable(value):
        return bytes(value) if isinstance(value, memoryview) else repr(value)

    return {name: [[comparable(value) for value in row] for row in cluster.sql(query, dbname=dbname)]
            for name, query in ANSWERS.items()}


@pytest.fixture(scope="module")
def source(cluster):
    with cluster.database("dump_source") as database:
        for statement in FILL.strip().split(";\n"):
            database.sql(statement)
        yield database


@pytest.fixture
def target(cluster):
    """The name of an empty database."""
    name = f"restored{next(_numbers)}"
    cluster.sql(f'CREATE DATABASE "{name}" TEMPLATE template0')
    yield name
    cluster.sql(f'DROP DATABASE "{name}" WITH (FORCE)')


def dump(cluster, database, *options, suffix="dump"):
    file = os.path.join(new_dir("dump", cluster.user), f"{database}.{suffix}")
    said = cluster.run("pg_dump", *cluster_options(cluster), "-d", database, "-f", file, *options)
    assert said == ""
    return file


def cluster_options(cluster):
    return ["-h", cluster.sockets, "-p", str(cluster.port), "-U", "postgres"]


def restore_plain(cluster, target, file):
    said = cluster.run("psql", *cluster_options(cluster), "-d", target, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", file)
    assert "ERROR" not in said and "WARNING" not in said, said


def restore(cluster, target, file, *options):
    said = cluster.run("pg_restore", *cluster_options(cluster), "-d", target, "--exit-on-error", *options, file)
    assert said == ""


def check_same(cluster, source, target):
    assert answers(cluster, target) == answers(cluster, source.name)
    highest, = cluster.sql("SELECT max(id), (SELECT last_id FROM acemq.schema_registry_seq) FROM acemq.outbox",
                           dbname=source.name)
    cluster.sql("SELECT acemq.outbox_add('orders', 'placed', '{}', message_id => 'new')", dbname=target)
    assert cluster.sql("SELECT id > %s FROM acemq.outbox WHERE message_id = 'new'", (highest[0],), dbname=target) == [(True,)]
    new_schema = cluster.sql("SELECT id FROM acemq.schema_register('s1', 'avro', '\"new\"')", dbname=target)
    assert new_schema == [(highest[1] + 1,)]


def test_plain(cluster, source, target):
    restore_plain(cluster, target, dump(cluster, source.name))
    check_same(cluster, source, target)


def test_plain_with_inserts(cluster, source, target):
    restore_plain(cluster, target, dump(cluster, source.name, "--inserts"))
    check_same(cluster, source, target)


def test_custom(cluster, source, target):
    restore(cluster, target, dump(cluster, source.name, "-Fc"))
    check_same(cluster, source, target)


def test_directory_by_four_jobs(cluster, source, target):
    restore(cluster, target, dump(cluster, source.name, "-Fd", "-j", "4", suffix="dir"), "-j", "4")
    check_same(cluster, source, target)


def test_data_only_into_a_new_extension(cluster, source, target):
    cluster.sql("CREATE EXTENSION acemq", dbname=target)
    restore_plain(cluster, target, dump(cluster, source.name, "--data-only"))
    check_same(cluster, source, target)


def test_schema_only_is_an_empty_extension(cluster, source, target):
    restore_plain(cluster, target, dump(cluster, source.name, "--schema-only"))
    assert cluster.sql("SELECT (SELECT count(*) FROM acemq.outbox), (SELECT last_id FROM acemq.schema_registry_seq)",
                       dbname=target) == [(0, 0)]


def test_of_a_restored_database(cluster, source, target):
    """And once more: what came by a restore is dumped like anything else."""
    restore(cluster, target, dump(cluster, source.name, "-Fc"))
    name = f"again{next(_numbers)}"
    cluster.sql(f'CREATE DATABASE "{name}" TEMPLATE template0')
    try:
        restore_plain(cluster, name, dump(cluster, target))
        check_same(cluster, source, name)
    finally:
        cluster.sql(f'DROP DATABASE "{name}" WITH (FORCE)')


def test_into_another_server(cluster, source):
    with Cluster() as other:
        other.sql("CREATE DATABASE target TEMPLATE template0")
        restore_plain(other, "target", dump(cluster, source.name))
        assert answers(other, "target") == answers(cluster, source.name)
        assert other.sql("SELECT count(*) FROM acemq.identity", dbname="target") == [(2,)]  # fenced
