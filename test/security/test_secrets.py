"""G9: a secret is in no view, no setting a plain role can see, no activity row, no error, and in no line that we log."""

import contextlib
import os
import secrets

import psycopg2
import pytest

from checks import await_until
from cluster import Cluster

@pytest.fixture(scope="module")
def server(broker):
    """A cluster that logs all it can, and a plain role, an operator, one that reads settings and statistics."""
    broker.ensure_running()
    with Cluster({"log_min_messages": "debug1", "log_error_verbosity": "verbose"}) as own:
        own.sql("CREATE ROLE plain LOGIN; CREATE ROLE operator LOGIN;"
                " CREATE ROLE monitor LOGIN; GRANT pg_monitor, pg_read_all_settings, pg_read_all_stats TO monitor")
        with own.database("shop") as db:
            db.sql("SELECT acemq.grant_access('operator', 'operator')")
            yield db


def everything_shown(db, user):
    """All that the role can read in the views of the server and of ours, and in settings, as one text."""
    shown = []
    with contextlib.closing(db.connect(autocommit=True, user=user)) as session, session.cursor() as cursor:
        cursor.execute("""
            SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE c.relkind IN ('v', 'r') AND n.nspname IN ('acemq', 'pg_catalog')
            AND c.relname NOT IN ('pg_largeobject', 'pg_proc', 'pg_description', 'pg_attribute', 'pg_depend', 'pg_collation',
                                  'pg_operator', 'pg_statistic', 'pg_rewrite')""")
        relations = [row[0] for row in cursor.fetchall()]
        for query in [f"SELECT t::text FROM {name} t" for name in relations] + ["SHOW ALL", "SELECT d::text FROM acemq.doctor() d",
                                                                              "SHOW acemq.url", "SHOW acemq.password_file",
                                                                              "SHOW acemq.tls_key_file"]:
            try:
                cursor.execute(query)
                shown += [str(row) for row in cursor.fetchall()]
            except psycopg2.Error as error:
                shown.append(str(error))
    text = "\n".join(shown)
    assert "max_connections" in text  # that it looks at all
    return text


def in_url(db, broker, secret):
    """In the configuration file, where a password in the URL is at least read by the server only."""
    vhost = broker.vhost()
    return {"acemq.url": f"amqp://shop:{secret}@127.0.0.1:{broker.port}/{vhost.name},amqps://shop:{secret}@nowhere.invalid"}


def in_password_file(db, broker, secret):
    vhost = broker.vhost()
    return {"acemq.url": vhost.url(user="shop"), "acemq.password_file": db.cluster.secret_file("password", secret + "\nrest\n")}


def in_key_file(db, broker, secret):
    """Not a key at all, so that OpenSSL has something to say about it."""
    key = db.cluster.secret_file("client.key", f"-----BEGIN PRIVATE KEY-----\n{secret}\n-----END PRIVATE KEY-----\n")
    certificate = os.path.join(db.cluster.directory, "client.pem")
    os.system(f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=me -keyout {certificate}.key -out {certificate}"
              " 2>/dev/null")
    os.chmod(certificate, 0o644)
    return {"acemq.url": f"amqps://shop@127.0.0.1:{broker.port}", "acemq.tls_key_file": key,
            "acemq.tls_cert_file": certificate}


@pytest.mark.parametrize("place", [in_url, in_password_file, in_key_file], ids=lambda place: place.__name__)
def test_a_secret_that_does_not_work(server, broker, place):
    """Refused by the broker or of no use: the attempt is told of, with everything but the secret."""
    secret = secrets.token_hex(16)
    settings = place(server, broker, secret)
    conf = os.path.join(server.cluster.data, "throwaway.conf")
    with open(conf, encoding="utf-8") as file:
        before = file.read()
    try:
        with open(conf, "a", encoding="utf-8") as file:
            file.write("".join(f"{name} = '{value}'\n" for name, value in settings.items()))
        mark = server.cluster.log_mark()
        if place is in_url:
            # (A reload would have the server itself log the setting that changed.)
            server.close()
            server.cluster.stop("fast")
            mark = server.cluster.log_mark()
            server.cluster.start()
        else:
            server.sql("SELECT pg_reload_conf()")
        await_until(lambda: server.cluster.log_since(mark).count("acemq: could not") > 0, 20, lambda: server.status())
        problem = await_until(lambda: server.status()["last_error"], 20, lambda: server.status())
        await_until(lambda: server.status()["scheduler_problem"], 20, lambda: server.status())
        server.sql("SELECT acemq.outbox_add('orders', 'k', '1')")
        with pytest.raises(psycopg2.Error) as swept:
            server.sql("SELECT acemq.outbox_sweep('1 s')")
        for user in ("plain", "operator", "monitor"):
            assert secret not in everything_shown(server, user), f"shown to {user}"
        assert secret not in str(swept.value) and secret not in problem
        assert secret not in server.cluster.log_since(mark)
        # Nor do our own views tell a superuser.
        for query in ("SELECT s::text FROM acemq.status s", "SELECT string_agg(d::text, '') FROM acemq.doctor() d", "SHOW acemq.url",
                      "SELECT string_agg(s::text, '') FROM pg_settings s", "SELECT string_agg(a::text, '') FROM pg_stat_activity a"):
            assert secret not in server.value(query), query
        for pid in server.cluster.backends("acemq worker") + server.cluster.backends("acemq launcher"):
            with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as line:
                assert secret not in line.read()
    finally:
        with open(conf, "w", encoding="utf-8") as file:
            file.write(before)
        if place is in_url:
            server.close()
            server.cluster.stop("fast")
        server.cluster.ensure_running()
        server.sql("SELECT pg_reload_conf()")


def test_a_refused_url_is_not_repeated(server):
    """By SET, ALTER SYSTEM, in the catalogs: the error does not say the password.  (The client that sent it knows it.)"""
    for statement in ("SET acemq.url = 'amqp://u:sesame@'", "SET acemq.url = 'http://u:sesame@host'",
                      "ALTER SYSTEM SET acemq.url = 'amqp://u:sesame@host:99999'", "SET acemq.url = 'amqp://u:se%zzsame@host'",
                      f"ALTER DATABASE \"{server.name}\" SET acemq.url = 'amqp://u:sesame@host'",
                      "ALTER ROLE plain SET acemq.url = 'amqp://u:sesame@host'",
                      "CREATE FUNCTION public.f() RETURNS int LANGUAGE sql SET acemq.url = 'amqp://u:sesame@host' AS 'SELECT 1'"):
        try:
            server.sql(statement)
            kept = server.sql("SELECT setconfig::text FROM pg_db_role_setting UNION ALL SELECT proconfig::text FROM pg_proc"
                              " WHERE proconfig IS NOT NULL")
            assert "sesame" not in str(kept), statement
        except psycopg2.Error as error:
            words = "\n".join(str(word) for word in (error.diag.message_primary, error.diag.message_detail,
                                                     error.diag.message_hint, error.diag.context))
            assert "sesame" not in words, statement


def test_files_that_others_can_read_or_change(server, broker):
    """A password file that is readable by group or others, or is no regular file, is not used."""
    vhost = broker.vhost()
    path = server.cluster.secret_file("readable", broker.password + "\n")
    server.sql(f"ALTER DATABASE \"{server.name}\" SET acemq.url = '{vhost.url()}'")
    server.sql(f"ALTER DATABASE \"{server.name}\" SET acemq.password_file = '{path}'")
    for mode in (0o640, 0o604, 0o620, 0o602):
        os.chmod(path, mode)
        server.sql("SELECT acemq.worker_restart()")
        await_until(lambda: "mode 0600" in (server.status()["last_error"] or ""), 15, lambda: server.status())
        server.await_state("disconnected")
    os.chmod(path, 0o600)
    server.sql("SELECT acemq.worker_restart()")
    server.await_state("idle")
    for user in ("plain", "operator", "monitor"):
        assert broker.password not in everything_shown(server, user), f"shown to {user}"
    assert broker.password not in server.cluster.log_since()
