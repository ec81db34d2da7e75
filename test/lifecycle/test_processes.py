"""Launcher and workers: who is started, who makes room for whom, what happens when they die.

No broker is needed: a worker without a URL runs and waits.
"""

import contextlib
import os
import re
import signal
import socket
import time

import psycopg2
import pytest

from checks import await_until
from cluster import Cluster
from processes import children_of, make_dir

RELAYING_AGAIN = 2.0
STOPPED = 10.0


def workers(cluster, dbname=None):
    return set(cluster.backends("acemq worker", dbname))


def await_worker(cluster, dbname, other_than=(), timeout=15):
    """The one worker that serves the database, once its slot says so."""

    def served():
        pids = workers(cluster, dbname)
        state = cluster.sql("SELECT state FROM acemq.status", dbname=dbname)
        return list(pids)[0] if len(pids) == 1 and not pids & set(other_than) and state != [("starting",)] else None

    return await_until(served, timeout, f"a worker serves {dbname}", ignoring=(psycopg2.OperationalError,))


def await_no_worker(cluster, dbname, timeout=5):
    await_until(lambda: not workers(cluster, dbname), timeout, f"no worker in {dbname}")


@contextlib.contextmanager
def throwaway(cluster, *names):
    """Databases without the extension that are gone afterwards."""
    for name in names:
        cluster.sql(f"CREATE DATABASE {name} TEMPLATE template0")
    try:
        yield
    finally:
        cluster.ensure_running()
        for name in names:
            cluster.sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture
def shop(cluster):
    """A database with the extension and a worker."""
    cluster.ensure_running()
    with throwaway(cluster, "shop"):
        cluster.sql("CREATE EXTENSION acemq", dbname="shop")
        await_worker(cluster, "shop")
        yield "shop"


# -- extension ---------------------------------------------------------------


def test_each_database_with_the_extension_has_a_worker(cluster):
    with throwaway(cluster, "one", "two", "three"):
        for name in ("one", "two"):
            cluster.sql("CREATE EXTENSION acemq", dbname=name)
        pids = {await_worker(cluster, name) for name in ("one", "two")}
        assert len(pids) == 2
        assert not workers(cluster, "three")
        assert len(cluster.backends("acemq launcher")) == 1

        cluster.sql("DROP EXTENSION acemq", dbname="one")
        await_no_worker(cluster, "one")
        assert await_worker(cluster, "two") in pids

        cluster.sql("CREATE EXTENSION acemq", dbname="one")
        await_worker(cluster, "one")


def test_a_rolled_back_create_extension_starts_nothing(cluster):
    with throwaway(cluster, "shop"):
        with contextlib.closing(cluster.connect("shop", autocommit=False)) as session:
            session.cursor().execute("CREATE EXTENSION acemq")
            session.rollback()
        # What is committed afterwards is served, so the launcher was not waiting for anything else.
        cluster.sql("CREATE EXTENSION acemq", dbname="shop")
        await_worker(cluster, "shop")


def test_a_rolled_back_drop_extension_changes_nothing(cluster, shop):
    before = await_worker(cluster, shop)
    with contextlib.closing(cluster.connect(shop, autocommit=False)) as session:
        session.cursor().execute("DROP EXTENSION acemq")
        session.rollback()
    assert workers(cluster, shop) == {before}


def test_create_and_drop_extension_by_prepared_transactions(cluster):
    """No session's commit tells the launcher: worker_restart() does, and a worker notices by itself."""
    with throwaway(cluster, "shop"), contextlib.closing(cluster.connect("shop")) as session:
        cursor = session.cursor()
        cursor.execute("BEGIN; CREATE EXTENSION acemq; PREPARE TRANSACTION 'create'")
        cursor.execute("COMMIT PREPARED 'create'")
        cursor.execute("SELECT acemq.worker_restart()")
        assert cursor.fetchall() == [(False,)]
        await_worker(cluster, "shop")
        cursor.execute("BEGIN; DROP EXTENSION acemq; PREPARE TRANSACTION 'drop'")
        cursor.execute("COMMIT PREPARED 'drop'")
        await_no_worker(cluster, "shop", timeout=25)


def test_drop_and_create_in_one_transaction(cluster, shop):
    before = await_worker(cluster, shop)
    with contextlib.closing(cluster.connect(shop, autocommit=False)) as session:
        session.cursor().execute("DROP EXTENSION acemq; CREATE EXTENSION acemq")
        session.commit()
    await_worker(cluster, shop, other_than={before})


def test_another_version_of_the_sql_objects(cluster, shop):
    """The worker of a version it does not know relays nothing, and says so once."""
    before = await_worker(cluster, shop)
    mark = cluster.log_mark()
    cluster.sql("UPDATE pg_extension SET extversion = '0.0.1' WHERE extname = 'acemq'", dbname=shop)
    cluster.sql("SELECT acemq.worker_restart()", dbname=shop)
    await_worker(cluster, shop, other_than={before})
    await_until(lambda: cluster.sql("SELECT state FROM acemq.status", dbname=shop) == [("needs restart",)])
    assert cluster.log_since(mark).count("do not fit the library") == 1
    cluster.sql("UPDATE pg_extension SET extversion = '0.1.0' WHERE extname = 'acemq'", dbname=shop)
    await_until(lambda: cluster.sql("SELECT state FROM acemq.status", dbname=shop) == [("disconnected",)])


# -- DDL on databases --------------------------------------------------------


def test_drop_database_does_not_wait(cluster, shop):
    begun = time.monotonic()
    cluster.sql("DROP DATABASE shop")
    assert time.monotonic() - begun < 3
    assert not workers(cluster, shop)


def test_drop_database_force(cluster):
    for _ in range(3):
        with throwaway(cluster, "shop"):
            cluster.sql("CREATE EXTENSION acemq", dbname="shop")
            await_worker(cluster, "shop")
            cluster.sql("DROP DATABASE shop WITH (FORCE)")


def test_drop_database_right_after_create_extension(cluster):
    """The worker is somewhere between asked for and attached."""
    for _ in range(5):
        with throwaway(cluster, "shop"):
            cluster.sql("CREATE EXTENSION acemq", dbname="shop")
            cluster.sql("DROP DATABASE shop")


def test_rename(cluster, shop):
    before = await_worker(cluster, shop)
    cluster.sql("ALTER DATABASE shop RENAME TO store")
    try:
        await_worker(cluster, "store", other_than={before})
    finally:
        cluster.sql("ALTER DATABASE store RENAME TO shop")
    await_worker(cluster, shop)


def test_a_hold_ends_with_its_savepoint(cluster, shop):
    before = await_worker(cluster, shop)
    with contextlib.closing(cluster.connect(autocommit=False)) as session:
        cursor = session.cursor()
        cursor.execute("SAVEPOINT a; ALTER DATABASE shop RENAME TO store")
        assert not workers(cluster, shop)
        cursor.execute("ROLLBACK TO a")
        await_worker(cluster, shop, other_than={before})
        session.rollback()


def test_set_tablespace(cluster, shop):
    before = await_worker(cluster, shop)
    place = make_dir(os.path.join(cluster.directory, "space"), cluster.user, 0o700)
    cluster.sql(f"CREATE TABLESPACE space LOCATION '{place}'")
    try:
        cluster.sql("ALTER DATABASE shop SET TABLESPACE space")
        await_worker(cluster, shop, other_than={before})
        cluster.sql("ALTER DATABASE shop SET TABLESPACE pg_default")
    finally:
        cluster.sql("DROP TABLESPACE space")


@pytest.mark.parametrize("session", ["postgres", "shop"])
def test_copy_by_template(cluster, shop, session):
    """The original is served again afterwards, and the copy is looked after too; also from within the original."""
    before = await_worker(cluster, shop)
    cluster.sql("CREATE DATABASE copy TEMPLATE shop", dbname=session)
    try:
        await_worker(cluster, shop, other_than={before})
        await_worker(cluster, "copy")
    finally:
        cluster.sql("DROP DATABASE copy")


def test_what_a_session_may_not_do_to_its_own_database(cluster, shop):
    """The server refuses, so the worker need not go."""
    before = await_worker(cluster, shop)
    for statement in ("DROP DATABASE shop", "ALTER DATABASE shop RENAME TO store",
                      "ALTER DATABASE shop SET TABLESPACE pg_default"):
        with pytest.raises(psycopg2.Error, match="current"):
            cluster.sql(statement, dbname=shop)
    assert workers(cluster, shop) == {before}


def test_a_broker_that_says_nothing(cluster, shop):
    """The worker sits in the handshake: its own database can be dropped at once, another one within the guard's time."""
    before = await_worker(cluster, shop)
    with throwaway(cluster, "other"), socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(10)
        cluster.sql(f"ALTER DATABASE shop SET acemq.url = 'amqp://user:@127.0.0.1:{silent.getsockname()[1]}'")
        cluster.sql("SELECT acemq.worker_restart()", dbname=shop)
        await_until(lambda: workers(cluster, shop) - {before})
        with silent.accept()[0]:
            for name, limit in (("other", 7), ("shop", 3)):
                begun = time.monotonic()
                cluster.sql(f"DROP DATABASE {name}")
                assert time.monotonic() - begun < limit


def test_a_failed_drop_brings_the_worker_back(cluster, shop):
    before = await_worker(cluster, shop)
    with contextlib.closing(cluster.connect(shop)), contextlib.closing(cluster.connect()) as session:
        cursor = session.cursor()
        cursor.execute("SET statement_timeout = '1s'")
        with pytest.raises(psycopg2.Error):
            cursor.execute("DROP DATABASE shop")
        await_worker(cluster, shop, other_than={before})


def test_who_may_not_drop_does_not_stop_the_worker(cluster, shop):
    before = await_worker(cluster, shop)
    cluster.sql("CREATE ROLE nobody_special LOGIN CREATEDB")
    try:
        for statement in ("DROP DATABASE shop", "ALTER DATABASE shop RENAME TO mine",
                          "CREATE DATABASE mine TEMPLATE shop", "ALTER DATABASE shop SET TABLESPACE pg_default"):
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                cluster.sql(statement, user="nobody_special")
        assert workers(cluster, shop) == {before}
    finally:
        cluster.sql("DROP ROLE nobody_special")


def test_a_database_that_is_closed_to_connections(cluster, shop):
    cluster.sql("ALTER DATABASE shop ALLOW_CONNECTIONS false")
    await_no_worker(cluster, shop)
    cluster.sql("ALTER DATABASE shop ALLOW_CONNECTIONS true")
    await_worker(cluster, shop)


# -- death -------------------------------------------------------------------


def test_a_terminated_worker_is_back_at_once(cluster, shop):
    pid = await_worker(cluster, shop)
    for _ in range(5):
        begun = time.monotonic()
        cluster.sql("SELECT pg_terminate_backend(%s)", (pid,))
        pid = await_worker(cluster, shop, other_than={pid})
        assert time.monotonic() - begun < RELAYING_AGAIN


def test_worker_restart_reads_database_settings(cluster, shop):
    before = await_worker(cluster, shop)
    cluster.sql("ALTER DATABASE shop SET acemq.relay = off")
    assert cluster.sql("SELECT acemq.worker_restart()", dbname=shop) == [(True,)]
    await_worker(cluster, shop, other_than={before})
    await_until(lambda: cluster.sql("SELECT state FROM acemq.status", dbname=shop) == [("paused",)])


def test_a_reload_while_the_worker_starts(cluster, shop):
    """Its signal finds no handler yet, so what it changed has to be read all the same."""
    before = await_worker(cluster, shop)

    def title(pid):
        with open(f"/proc/{pid}/cmdline", encoding="utf-8") as line:
            return line.read()

    def new_worker():
        return [pid for pid in children_of(cluster.pid) if pid != before and "acemq worker" in title(pid)]

    with contextlib.closing(cluster.connect(shop)) as session, session.cursor() as cursor:
        try:
            cursor.execute("ALTER SYSTEM SET post_auth_delay = 2")  # a process sleeps before it sets up its signals
            cursor.execute("SELECT pg_reload_conf(), pg_sleep(0.2)")
            cursor.execute("SELECT acemq.worker_restart()")
            await_until(new_worker, what="a process was started", ignoring=(OSError,))
            cursor.execute("ALTER SYSTEM SET acemq.relay = off")
            cursor.execute("ALTER SYSTEM RESET post_auth_delay")
            cursor.execute("SELECT pg_reload_conf()")
            await_worker(cluster, shop, other_than={before})
            await_until(lambda: cluster.sql("SELECT state FROM acemq.status", dbname=shop) == [("paused",)])
        finally:
            cluster.configure(acemq__relay=None, post_auth_delay=None)


def test_crash_of_a_backend(cluster, shop):
    launcher, = cluster.backends("acemq launcher")
    before = await_worker(cluster, shop)
    with contextlib.closing(cluster.connect(shop)) as session:
        os.kill(session.info.backend_pid, signal.SIGKILL)
    await_until(lambda: cluster.backends("acemq launcher") not in ([], [launcher]), 20, "a new launcher",
                ignoring=(psycopg2.OperationalError,))
    await_worker(cluster, shop, other_than={before})


def test_a_worker_outlives_its_launcher(cluster, shop):
    """Meanwhile a database can still be dropped; the next launcher knows the worker that went on."""
    launcher, = cluster.backends("acemq launcher")
    before = await_worker(cluster, shop)
    with throwaway(cluster, "other"):
        cluster.sql("CREATE EXTENSION acemq", dbname="other")
        await_worker(cluster, "other")
        cluster.sql("SELECT pg_terminate_backend(%s)", (launcher,))
        await_until(lambda: cluster.backends("acemq launcher") != [launcher])
        cluster.sql("DROP DATABASE other")

    await_until(lambda: cluster.backends("acemq launcher") not in ([], [launcher]), 20, "a new launcher")
    assert workers(cluster, shop) == {before}
    cluster.sql("SELECT pg_terminate_backend(%s)", (before,))
    await_worker(cluster, shop, other_than={before})
    cluster.sql("DROP DATABASE shop")


@pytest.mark.parametrize("mode", ["fast", "smart", "immediate"])
def test_shutdown(mode):
    with Cluster() as own, throwaway(own, "one", "two"):
        for name in ("one", "two"):
            own.sql("CREATE EXTENSION acemq", dbname=name)
            await_worker(own, name)
        assert own.stop(mode, STOPPED) < STOPPED
        own.start()
        for name in ("one", "two"):
            await_worker(own, name)


# -- what the log says -------------------------------------------------------


def last_error(cluster, dbname, setting, value):
    """What the worker says with this setting."""
    cluster.sql(f"ALTER DATABASE {dbname} SET {setting} = '{value}'")
    cluster.sql("SELECT acemq.worker_restart()", dbname=dbname)
    return lambda: cluster.sql("SELECT last_error FROM acemq.status", dbname=dbname)[0][0] or ""


def test_a_password_file_that_cannot_be_read_is_named(cluster, shop):
    cluster.sql("ALTER DATABASE shop SET acemq.url = 'amqp://user@127.0.0.1:1'")
    path = cluster.secret_file("no-password", "")
    for name, words in (("/nowhere/at/all", "No such file"), (path, "is empty"), (cluster.log, "mode 0600")):
        said = last_error(cluster, shop, "acemq.password_file", name)
        await_until(lambda: words in said() and f'"{name}"' in said(), 10, said)


def test_tls_on_a_port_without(cluster, shop, broker):
    said = last_error(cluster, shop, "acemq.url", f"amqps://user:@127.0.0.1:{broker.port}")
    await_until(lambda: "does not speak TLS on this port" in said(), 10, said)


def test_a_worker_names_its_database(cluster, shop):
    """Under its present name."""
    mark = cluster.log_mark()
    cluster.sql("ALTER DATABASE shop RENAME TO store")
    try:
        pid = await_worker(cluster, "store")
        cluster.sql("SELECT pg_terminate_backend(%s)", (pid,))
        await_worker(cluster, "store", other_than={pid})
    finally:
        cluster.sql("ALTER DATABASE store RENAME TO shop")
    said = re.search(rf"\[{pid}\] acemq worker  FATAL: .*\n.*CONTEXT:  (.*)", cluster.log_since(mark))
    assert said.group(1) == 'acemq worker of database "store"'


def test_a_requested_departure_is_quiet(cluster, db):
    """Connected or not: no FATAL, which would be an alarm somewhere, and a goodbye to the broker."""
    with throwaway(cluster, "shop"):
        cluster.sql("CREATE EXTENSION acemq", dbname="shop")
        for name in ("shop", db.name):
            pid = await_worker(cluster, name)
            mark = cluster.log_mark()
            for statement in ("SELECT acemq.worker_restart()", "CREATE DATABASE copy TEMPLATE {}",
                              "ALTER DATABASE {} ALLOW_CONNECTIONS false"):
                db.close()
                cluster.sql(statement.format(name), dbname="postgres" if "false" in statement else name)
                if "false" in statement:
                    await_no_worker(cluster, name)
                    cluster.sql(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
                pid = await_worker(cluster, name, other_than={pid})
            cluster.sql("DROP DATABASE copy")
            cluster.sql("DROP EXTENSION acemq", dbname=name)
            await_no_worker(cluster, name)
            assert not re.search("acemq worker.*(FATAL|exit code)", cluster.log_since(mark))


def test_a_departure_while_the_broker_does_not_answer(db, broker):
    """The goodbye takes a second at most, and cutting it short is no FATAL either."""
    pid = await_worker(db.cluster, db.name)
    db.await_state("idle")
    # In the middle of a request to the broker the worker has to be cut short, which is one FATAL.
    await_until(lambda: db.status()["scheduler"] == "consuming", what="the scheduler has asked for all it wants")
    mark = db.cluster.log_mark()
    broker.freeze()
    try:
        db.sql("SELECT acemq.worker_restart()")
        await_until(lambda: pid not in workers(db.cluster, db.name), 2, "the worker is gone")
    finally:
        broker.thaw()
    assert "FATAL" not in db.cluster.log_since(mark)


def test_why_the_broker_closed_the_connection(db, broker):
    """Its own words, with their code, whether the worker is idle or in the middle of sending."""
    db.vhost.declare("events", exchange="orders", binding="#")
    for backlog in (0, 20000):
        broker.ensure_running()
        db.await_state("idle")
        mark = db.cluster.log_mark()
        db.sql("SELECT count(acemq.outbox_add('orders', 'k', n::text)) FROM generate_series(1, %s) n", (backlog,))
        broker.stop()
        db.await_state("disconnected")
        reasons = re.findall(r"(?:given up|connection to the broker lost): (.*)", db.cluster.log_since(mark))
        assert reasons and "320 CONNECTION_FORCED" in reasons[0]
        assert "could not answer" not in db.cluster.log_since(mark)


# -- limits ------------------------------------------------------------------


def test_background_workers_used_up():
    """Logical replication has one, our launcher one: one is left for two databases."""
    with Cluster({"max_worker_processes": 3}) as own, throwaway(own, "one", "two"):
        own.sql("CREATE EXTENSION acemq", dbname="one")
        await_worker(own, "one")
        own.sql("CREATE EXTENSION acemq", dbname="two")

        def said():
            log = own.log_since()
            return log.count("no background worker is free"), log.count("are free again")

        # Also while the databases were looked into one may have had to wait for another.
        await_until(lambda: said()[0] > said()[1], 10, "the log says so")
        begun = said()[0]
        # Two more looks at it, and still one line.
        for name in ("postgres", "one"):
            own.sql("CREATE DATABASE three TEMPLATE template0", dbname=name)
            own.sql("DROP DATABASE three", dbname=name)
        assert said() == (begun, begun - 1)
        own.sql("DROP EXTENSION acemq", dbname="one")
        await_worker(own, "two")
        assert said() == (begun, begun)


def test_more_databases_than_max_databases():
    with Cluster({"acemq.max_databases": 1}) as own, throwaway(own, "one", "two", "empty"):
        own.sql("CREATE EXTENSION acemq", dbname="one")
        await_worker(own, "one")
        own.sql("CREATE EXTENSION acemq", dbname="two")
        await_until(lambda: 'Messages in database "two" wait' in own.log_since())
        own.sql("SELECT acemq.worker_restart()", dbname="two")
        await_no_worker(own, "two")
        own.sql("DROP DATABASE one")
        await_worker(own, "two")
        assert own.log_since().count("acemq.max_databases") == 2    # message and hint


def test_many_databases_are_looked_through():
    """A start with more databases than slots: those without the extension keep none."""
    names = [f"empty{i}" for i in range(6)]
    with Cluster({"acemq.max_databases": 1}) as own, throwaway(own, *names, "last"):
        own.sql("CREATE EXTENSION acemq", dbname="last")
        own.restart()
        await_worker(own, "last")


# -- settings ----------------------------------------------------------------


def test_settings_of_others_do_not_reach_the_worker(cluster, db):
    """Every one of them would stop a worker that took it over, or make it wrong."""
    queue = db.vhost.declare("events", exchange="orders", binding="#")
    before = await_worker(cluster, db.name)
    session = db.connect(autocommit=True)
    for name, value in {"default_transaction_read_only": "on", "statement_timeout": "1ms", "lock_timeout": "1ms",
                        "search_path": "nowhere", "TimeZone": "Asia/Kolkata", "enable_indexscan": "off",
                        "default_transaction_isolation": "serializable", "session_replication_role": "replica",
                        "plan_cache_mode": "force_custom_plan", "idle_in_transaction_session_timeout": "1ms"}.items():
        cluster.sql(f"ALTER DATABASE {db.name} SET {name} = '{value}'")
    mark = cluster.log_mark()
    session.cursor().execute("SELECT acemq.worker_restart()")
    pid = await_until(lambda: workers(cluster, db.name) - {before}).pop()

    session.cursor().execute("SELECT acemq.outbox_add('orders', 'a.b', '{}')")
    assert db.vhost.get(queue).body == b"{}"
    assert workers(cluster, db.name) == {pid}
    assert not re.search(rf"\[{pid}\] .*(ERROR|FATAL|WARNING)", cluster.log_since(mark))


def test_a_bad_setting_does_not_keep_the_server_down():
    with Cluster({"acemq.url": "http://user:sesame@host", "acemq.tls_ca_file": "/nowhere"}) as own, \
            throwaway(own, "shop"):
        own.sql("CREATE EXTENSION acemq", dbname="shop")
        await_worker(own, "shop")
        assert 'invalid value for parameter "acemq.url"' in own.log_since()
        assert "sesame" not in own.log_since()


def test_url_is_for_superusers_and_never_shows_a_password(cluster):
    cluster.sql("CREATE ROLE reader LOGIN; GRANT pg_read_all_settings TO reader")
    try:
        with contextlib.closing(cluster.connect(user="reader")) as session:
            cursor = session.cursor()
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                cursor.execute("SET acemq.url = 'amqp://me@mine'")
        with contextlib.closing(cluster.connect()) as session:
            cursor = session.cursor()
            cursor.execute("SET acemq.url = 'amqp://user:sesame@host/v, amqps://user:sesame@other'")
            cursor.execute("SHOW acemq.url")
            assert cursor.fetchall() == [("amqp://host:5672/v,amqps://other:5671/",)]
            cursor.execute("SET SESSION AUTHORIZATION reader")
            cursor.execute("SELECT current_setting('acemq.url')")
            assert "sesame" not in cursor.fetchone()[0]
            cursor.execute("SELECT count(*) FROM pg_settings s WHERE s::text LIKE '%sesame%'")
            assert cursor.fetchall() == [(0,)]
    finally:
        cluster.sql("DROP ROLE reader")


def test_a_password_is_refused_where_everybody_reads(cluster):
    for statement in ("ALTER DATABASE postgres SET acemq.url = 'amqp://user:sesame@host'",
                      "ALTER ROLE postgres SET acemq.url = 'amqp://user:sesame@host'",
                      "ALTER ROLE ALL SET acemq.url = 'amqp://user:sesame@host'"):
        with pytest.raises(psycopg2.errors.InvalidParameterValue) as refused:
            cluster.sql(statement)
        assert "sesame" not in str(refused.value)
        assert "acemq.password_file" in refused.value.diag.message_hint
    cluster.sql("ALTER DATABASE postgres SET acemq.url = 'amqp://user@host'")
    cluster.sql("ALTER DATABASE postgres RESET acemq.url")


def test_version(cluster, shop):
    assert re.fullmatch(r"library (\S+), SQL \1", cluster.sql("SELECT acemq.version()", dbname=shop)[0][0])


def test_without_preloading():
    """Functions work, and what needs the processes says what is missing."""
    with Cluster(preload="") as own:
        own.sql("CREATE EXTENSION acemq")
        with pytest.raises(psycopg2.Error) as refused:
            own.sql("SELECT acemq.worker_restart()")
        assert refused.value.pgcode == "AQ003"
        assert own.backends("acemq launcher") == []
