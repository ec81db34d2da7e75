"""A copy does not talk to production: what was restored, or upgraded, starts fenced, and one call lets it send."""

import contextlib
import os

import pytest

import processes
from checks import await_until
from cluster import Cluster

FILL = """
SELECT acemq.outbox_add('orders', 'k', '1', message_id => 'waits-' || n) FROM generate_series(1, 3) n;
SELECT acemq.outbox_add('orders', 'k', '1', message_id => 'retired');
UPDATE acemq.outbox SET retired_at = clock_timestamp(), attempts = 10 WHERE message_id = 'retired';
SELECT acemq.schedule_in('1 d', 'orders', 'k', '1', message_id => 'later');
SELECT acemq.idempotency_claim('claimed', '1 d', 'me'), acemq.idempotency_claim('done'), acemq.idempotency_confirm('done');
SELECT acemq.schema_register('s', 'avro', '"' || n || '"') FROM generate_series(1, 3) n;
SELECT acemq.claim_check_put('\\x01');
SELECT acemq.grant_access('shop_app', 'producer'), acemq.grant_access('shop_ops', 'operator');
"""

KEPT = {
    "messages": "SELECT id, message_id, body, retired_at, attempts, not_before FROM acemq.outbox ORDER BY id",
    "next id": "SELECT last_value, is_called FROM acemq.outbox_id_seq",
    "idempotency": "SELECT * FROM acemq.idempotency ORDER BY 1",
    "schemas": "SELECT s.*, c.last_id FROM acemq.schema_registry s, acemq.schema_registry_seq c ORDER BY s.id",
    "payloads": "SELECT key, payload FROM acemq.claim_check",
    "functions": "SELECT oid::regprocedure::text, COALESCE(proacl, acldefault('f', proowner))::text FROM pg_proc WHERE pronamespace = 'acemq'::regnamespace ORDER BY 1",
    "relations": "SELECT oid::regclass::text, COALESCE(relacl, acldefault(CASE relkind WHEN 'S' THEN 's' ELSE 'r' END::\"char\", relowner))::text"
                 " FROM pg_class WHERE relnamespace = 'acemq'::regnamespace AND relkind IN ('r', 'v', 'S') ORDER BY 1",
    "extension": "SELECT extversion, extconfig::regclass[]::text[], extcondition FROM pg_extension WHERE extname = 'acemq'",
}


def kept(cluster, dbname):
    """Everything that must be the same; array orders aside."""
    return {name: [tuple(sorted(map(str, value)) if isinstance(value, list) else str(value) if value is None else
                         bytes(value) if isinstance(value, memoryview) else str(value) for value in row)
                   for row in cluster.sql(query, dbname=dbname)] for name, query in KEPT.items()}


def fill(cluster, dbname):
    for role in ("shop_app", "shop_ops"):
        cluster.sql(f"DO $$BEGIN CREATE ROLE {role}; EXCEPTION WHEN duplicate_object THEN NULL; END$$")
    for statement in FILL.strip().split(";\n"):
        cluster.sql(statement, dbname=dbname)


def status(cluster, dbname):
    ((row,),) = cluster.sql("SELECT to_jsonb(s) FROM acemq.status s", dbname=dbname)
    return row


def is_fenced_and_silent(cluster, dbname, vhost, mark):
    """The state, the warning, the doctor; and nothing was sent, nor the broker asked for a connection."""
    await_until(lambda: status(cluster, dbname)["state"] == "fenced", 30, lambda: status(cluster, dbname))
    said = status(cluster, dbname)
    assert said["reconnects"] == 0 and said["scheduler"] == "off" and said["published"] == 0
    assert "WARNING:  acemq: this database is a copy of another one" in cluster.log_since(mark)
    ok, hint = cluster.sql("SELECT ok, hint FROM acemq.doctor() WHERE \"check\" = 'identity'", dbname=dbname)[0]
    assert not ok and "relay_resume" in hint
    assert vhost.drain("events") == []


def resumed_sends(cluster, dbname, vhost):
    cluster.sql("SELECT acemq.relay_resume()", dbname=dbname)
    ids = [message.properties.message_id for message in vhost.drain("events", 3, 30)]
    assert ids == ["waits-1", "waits-2", "waits-3"]
    await_until(lambda: cluster.sql("SELECT message_id FROM acemq.outbox ORDER BY 1", dbname=dbname)
                == [("later",), ("retired",)], 20, "what was sent is gone, the rest is there")
    assert vhost.drain("events") == []


def test_pg_upgrade(broker):
    """From this version to the same one, which goes the whole way: dump and restore of the schema, files handed over.

    Nothing hangs, nothing is lost, the new cluster is fenced until it is told to send.
    """
    broker.ensure_running()
    vhost = broker.vhost()
    vhost.declare("events", exchange="orders", binding="#")
    new = Cluster()
    with Cluster() as old:
        try:
            settings = {"acemq__password_file": old.secret_file("broker-password", broker.password + "\n")}
            old.configure(acemq__relay="off", **settings)
            old.sql("CREATE DATABASE shop TEMPLATE template0")
            old.sql(f"ALTER DATABASE shop SET acemq.url = '{vhost.url()}'")
            old.sql("CREATE EXTENSION acemq", dbname="shop")
            fill(old, "shop")
            before = kept(old, "shop")
            old.stop("fast")

            new.create()
            new.configure(**settings)
            new.stop("fast")
            place = processes.new_dir("upgrade", new.user, 0o700)
            said = processes.run_as(new.user, [
                os.path.join(new.bin, "pg_upgrade"), "-b", old.bin, "-B", new.bin, "-d", old.data, "-D", new.data,
                "-p", str(processes.free_ports(1)[0]), "-P", str(processes.free_ports(1)[0]), "-s", place,
                "-U", "postgres"], place, timeout=240)
            assert "Upgrade Complete" in said

            mark = new.log_mark()
            new.start()
            is_fenced_and_silent(new, "shop", vhost, mark)
            assert kept(new, "shop") == before
            assert "acemq worker" not in said and "WARNING" not in said
            new.restart()
            is_fenced_and_silent(new, "shop", vhost, mark)
            resumed_sends(new, "shop", vhost)
        finally:
            new.destroy()


def restored(cluster, source, name):
    """A copy made by dump and restore."""
    options = ["-h", cluster.sockets, "-p", str(cluster.port), "-U", "postgres"]
    file = os.path.join(processes.new_dir("dump", cluster.user), "shop.dump")
    cluster.run("pg_dump", *options, "-Fc", "-d", source, "-f", file)
    cluster.run("pg_restore", *options, "--exit-on-error", "-d", name, file)


def from_template(cluster, source, name):
    cluster.sql(f'DROP DATABASE "{name}"')
    cluster.sql(f'CREATE DATABASE "{name}" TEMPLATE "{source}"')


@pytest.mark.parametrize("copy", [restored, from_template], ids=lambda copy: copy.__name__)
def test_a_copy_in_the_same_cluster(db, cluster, relay_settings, copy):
    """Fenced over restarts of its worker and when paused; the original goes on."""
    db.vhost.declare("events", exchange="orders", binding="#")
    db.sql("SELECT acemq.relay_pause()")
    fill(cluster, db.name)
    with contextlib.ExitStack() as stack:
        name = f"{db.name}_copy"
        cluster.sql(f'CREATE DATABASE "{name}" TEMPLATE template0')
        stack.callback(lambda: cluster.sql(f'DROP DATABASE "{name}" WITH (FORCE)'))
        mark = cluster.log_mark()
        db.close()
        copy(cluster, db.name, name)
        for setting, value in relay_settings(db.vhost).items():
            cluster.sql(f'ALTER DATABASE "{name}" SET {setting} = \'{value}\'')
        cluster.sql("SELECT acemq.worker_restart()", dbname=name)
        is_fenced_and_silent(cluster, name, db.vhost, mark)
        cluster.sql("SELECT acemq.relay_pause()", dbname=name)
        cluster.sql("SELECT acemq.worker_restart()", dbname=name)
        is_fenced_and_silent(cluster, name, db.vhost, mark)
        assert db.status()["state"] == "paused"
        resumed_sends(cluster, name, db.vhost)
    resumed_sends(cluster, db.name, db.vhost)
