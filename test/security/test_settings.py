"""Who may see and change which setting: read from the server, compared with the README, and tried."""

import contextlib
import pathlib
import re

import psycopg2
import pytest

from cluster import Cluster

README = pathlib.Path(__file__).parents[2] / "README.md"
# What tells where the broker is and whom we trust.
HIDDEN = {"acemq.url", "acemq.password_file", "acemq.tls_ca_file", "acemq.tls_cert_file", "acemq.tls_key_file",
          "acemq.tls_verify"}
WHO = {"superuser": "superuser", "user": "any session", "postmaster": "configuration file"}


@pytest.fixture(scope="module")
def roles(cluster):
    """A plain role, one that owns a database and roles, one that reads all settings."""
    cluster.ensure_running()
    cluster.sql("CREATE ROLE plain LOGIN; CREATE ROLE shopkeeper LOGIN CREATEROLE CREATEDB;"
                " CREATE ROLE reader LOGIN; GRANT pg_read_all_settings TO reader")
    cluster.sql("CREATE DATABASE keeper OWNER shopkeeper TEMPLATE template0")
    yield
    cluster.sql("DROP DATABASE keeper WITH (FORCE)")
    cluster.sql("DROP ROLE plain, shopkeeper, reader")


def settings(cluster):
    """(name, context) of ours; acemq.url is listed for nobody."""
    found = dict(cluster.sql("SELECT name, context FROM pg_settings WHERE name LIKE 'acemq.%'"))
    assert "acemq.url" not in found
    return {**found, "acemq.url": "superuser"}


def documented():
    """(who, marked as hidden) by name, of the table in README."""
    rows = re.findall(r"^\| `(acemq\.\w+)`( \*)? \|(?:[^|]*\|){4} ([^|]*) \|", README.read_text(encoding="utf-8"), re.M)
    return {name: (who, bool(star)) for name, star, who in rows}


def test_as_documented(cluster):
    found = settings(cluster)
    assert {name: WHO[context] for name, context in found.items()} == {name: who for name, (who, _) in documented().items()}
    assert {name for name, (_, star) in documented().items() if star} == HIDDEN


@pytest.mark.parametrize("who", ["plain", "shopkeeper", "reader"])
def test_what_only_a_superuser_changes(cluster, roles, who):
    """Not by SET, nor for a role, nor for a database of one's own, nor for all, nor by a function's own settings."""
    with contextlib.closing(cluster.connect("keeper", user=who)) as session, session.cursor() as cursor:
        for name, context in settings(cluster).items():
            if context == "user":
                continue
            cursor.execute("SELECT setting FROM pg_settings WHERE name = %s", (name,))
            value = {"acemq.url": "amqp://me@mine.example"}.get(name) or (cursor.fetchone() or ("/x",))[0] or "/x"
            for statement in ("SET {} = %s", "ALTER DATABASE keeper SET {} = %s", f"ALTER ROLE {who} SET {{}} = %s",
                              "ALTER ROLE ALL SET {} = %s", "ALTER SYSTEM SET {} = %s", "SELECT set_config('{}', %s, false)",
                              "CREATE FUNCTION public.f() RETURNS int LANGUAGE sql SET {} = %s AS 'SELECT 1'"):
                with pytest.raises(psycopg2.Error) as refused:
                    cursor.execute(statement.format(name), (value,))
                assert refused.value.pgcode in ("42501", "55P02"), f"{statement} of {name} as {who}: {refused.value}"


def test_placed_before_the_library_is_loaded():
    """In a server that does not preload the library a name is anybody's, until the library comes and looks who set it."""
    with Cluster(preload="") as own:
        own.sql("CREATE EXTENSION acemq")
        own.sql("CREATE ROLE plain LOGIN; SELECT acemq.grant_access('plain', 'producer')")
        with contextlib.closing(own.connect(user="plain")) as session, session.cursor() as cursor:
            cursor.execute("SET acemq.url = 'amqp://me:sesame@mine.example'; SET acemq.max_body_size = '128MB'")
            cursor.execute("SELECT acemq.outbox_add('orders', 'k', '1')")
            cursor.execute("SHOW acemq.max_body_size")
            assert cursor.fetchone()[0] == "15MB"
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                cursor.execute("SHOW acemq.url")
        with contextlib.closing(own.connect()) as session, session.cursor() as cursor:
            cursor.execute("SELECT acemq.version()")
            cursor.execute("SHOW acemq.url")
            assert cursor.fetchone() == ("",)


@pytest.mark.parametrize("who", ["plain", "shopkeeper"])
def test_what_a_plain_role_sees(cluster, roles, who):
    with contextlib.closing(cluster.connect("keeper", user=who)) as session, session.cursor() as cursor:
        for name in HIDDEN:
            for statement in (f"SHOW {name}", f"SELECT current_setting('{name}')"):
                with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                    cursor.execute(statement)
        cursor.execute("SELECT name FROM pg_settings WHERE name = ANY (%s)", (sorted(HIDDEN),))
        assert cursor.fetchall() == []
        for view in ("pg_file_settings", "pg_hba_file_rules"):
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                cursor.execute(f"SELECT * FROM {view}")
