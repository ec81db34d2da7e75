"""A throwaway PostgreSQL cluster.

Made by initdb as user postgres, with a socket directory that only that user
and root can enter (the socket trusts whoever reaches it) and one loopback
port that wants a password.  fsync stays on: what we promise is about commits.

May depend on: processes.py, checks.py.
"""

import contextlib
import os
import signal
import subprocess
import time

import psycopg2

import processes
from checks import await_until

DEFAULTS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": 60,
    "max_worker_processes": 24,
    "max_prepared_transactions": 20,
    "log_line_prefix": "%m [%p] %b %d ",
    "log_checkpoints": "off",
}

_STOP_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}


def bin_dir():
    """Where the programs of the chosen server are: PG_CONFIG decides."""
    pg_config = os.environ.get("PG_CONFIG", "pg_config")
    return subprocess.run([pg_config, "--bindir"], check=True, capture_output=True, text=True).stdout.strip()


class Cluster:
    """One cluster; use it as a context manager, or call start() and destroy()."""

    def __init__(self, settings=None, preload="acemq"):
        self.user = processes.server_user("postgres")
        self.bin = bin_dir()
        self.directory = processes.new_dir("pg")
        self.data = os.path.join(self.directory, "data")
        self.log = os.path.join(self.directory, "log")
        self.sockets = processes.make_dir(os.path.join(self.directory, "s"), self.user, 0o700)
        self.port = None
        self.process = None
        self.settings = dict(DEFAULTS, shared_preload_libraries=preload or "", **(settings or {}))
        self.settings["unix_socket_directories"] = self.sockets

    # -- life ---------------------------------------------------------------

    def __enter__(self):
        try:
            self.create()
        except BaseException:
            self.destroy()
            raise
        return self

    def __exit__(self, *_):
        self.destroy()

    def create(self):
        """initdb and first start, with another port if somebody took ours."""
        processes.make_dir(self.data, self.user, 0o700)
        self.run("initdb", "-D", self.data, "--encoding=UTF8", "--locale=C.UTF-8", "--username=postgres",
                 "--auth-local=trust", "--auth-host=scram-sha-256", "--no-sync")
        self._first_start()

    def copy_of(self, primary):
        """Base backup of a running cluster as a streaming standby, started."""
        processes.make_dir(self.data, self.user, 0o700)
        self.run("pg_basebackup", "-D", self.data, "-R", "-X", "stream", "-c", "fast", "-h", primary.sockets,
                 "-p", str(primary.port), "-U", "postgres")
        self._first_start()

    def _first_start(self):
        for attempt in range(3):
            self.port = processes.free_ports(1)[0]
            self._write_settings()
            try:
                self.start()
                return
            except processes.StartFailed:
                if attempt == 2:
                    raise

    def _write_settings(self):
        lines = [f"{name} = '{value}'\n" for name, value in dict(self.settings, port=self.port).items()]
        path = os.path.join(self.data, "throwaway.conf")
        processes.write_file(path, "".join(lines), self.user, 0o600)
        main = os.path.join(self.data, "postgresql.conf")
        with open(main, "r+", encoding="utf-8") as conf:
            if "throwaway.conf" not in conf.read():
                conf.write("include 'throwaway.conf'\n")

    def start(self, timeout=60):
        """Start and wait until connections are taken."""
        argv = [os.path.join(self.bin, "postgres"), "-D", self.data]
        self.process = processes.spawn(argv, self.user, self.directory, self.log, death_signal=signal.SIGQUIT)
        deadline = time.monotonic() + timeout
        while not self._answers():
            if self.process.poll() is not None:
                self.process = None
                raise processes.StartFailed(f"postgres ended at start:\n{processes.tail(self.log)}")
            if time.monotonic() > deadline:
                self.kill()
                raise processes.StartFailed(f"postgres not ready in {timeout} s:\n{processes.tail(self.log)}")
            time.sleep(0.05)

    def _answers(self):
        # The server says in its pid file when it takes connections; asking it earlier would only fill its log.
        try:
            with open(os.path.join(self.data, "postmaster.pid"), encoding="ascii") as pid_file:
                lines = pid_file.read().splitlines()
        except FileNotFoundError:
            return False
        if len(lines) < 8 or lines[0] != str(self.process.pid) or lines[7].strip() not in ("ready", "standby"):
            return False
        try:
            self.connect().close()
            return True
        except psycopg2.OperationalError:
            return False

    def stop(self, mode="fast", timeout=60):
        """Stop; the seconds it took.  TimeoutError if it does not (it runs on then)."""
        begun = time.monotonic()
        self.process.send_signal(_STOP_SIGNALS[mode])
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"postgres did not stop ({mode}) in {timeout} s:\n{processes.tail(self.log)}") from None
        self.process = None
        return time.monotonic() - begun

    def restart(self, mode="fast"):
        self.stop(mode)
        self.start()

    def crash(self):
        """SIGKILL the postmaster and wait until its children have noticed, as after a power cut."""
        pids = processes.children_of(self.process.pid)
        self.process.kill()
        self.process.wait()
        self.process = None
        left = processes.wait_gone(pids, 15)
        if left:
            raise RuntimeError(f"processes outlived their postmaster: {left}\n{processes.tail(self.log)}")

    def kill(self):
        """The end of everything that is left of this cluster, by process id."""
        if self.process is None:
            return
        pids = processes.children_of(self.process.pid)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process = None
        for pid in processes.wait_gone(pids, 5):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def destroy(self):
        """Stop by all means; the directory goes with the run directory."""
        if self.running:
            with contextlib.suppress(TimeoutError):
                self.stop("immediate", 10)
        self.kill()

    @property
    def running(self):
        return self.process is not None and self.process.poll() is None

    def ensure_running(self):
        if not self.running:
            self.start()

    @property
    def pid(self):
        return self.process.pid

    def promote(self):
        self.run("pg_ctl", "promote", "-D", self.data, "-w")

    # -- talking to it ------------------------------------------------------

    def connect(self, dbname="postgres", autocommit=True, **more):
        """A psycopg2 connection as superuser over the socket."""
        connection = psycopg2.connect(host=self.sockets, port=self.port, dbname=dbname,
                                      **dict({"user": "postgres"}, **more))
        connection.autocommit = autocommit
        return connection

    def sql(self, query, params=None, dbname="postgres", **more):
        """One statement on a connection of its own; its rows."""
        with contextlib.closing(self.connect(dbname, **more)) as connection:
            return fetch(connection, query, params)

    def environment(self, dbname="postgres"):
        """What libpq programs need to find this cluster."""
        return {"PGHOST": self.sockets, "PGPORT": str(self.port), "PGUSER": "postgres", "PGDATABASE": dbname}

    def run(self, program, *arguments, timeout=120):
        """One of the server's programs, as the server's user; its output."""
        return processes.run_as(self.user, [os.path.join(self.bin, program), *arguments], self.directory,
                                timeout=timeout)

    def configure(self, **settings):
        """ALTER SYSTEM and reload; a dot in a name is written as two underscores, None resets."""
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            for name, value in settings.items():
                name = name.replace("__", ".")
                if value is None:
                    cursor.execute(f"ALTER SYSTEM RESET {name}")
                else:
                    cursor.execute(f"ALTER SYSTEM SET {name} = %s", (str(value),))
            cursor.execute("SELECT pg_reload_conf()")

    def secret_file(self, name, text):
        """A file that only the server's user can read."""
        return processes.write_file(os.path.join(self.directory, name), text, self.user, 0o600)

    # -- looking at it ------------------------------------------------------

    def backends(self, backend_type, dbname=None):
        """Process ids by pg_stat_activity.backend_type."""
        rows = self.sql("SELECT pid FROM pg_stat_activity WHERE backend_type = %s"
                        " AND (%s::text IS NULL OR datname = %s)", (backend_type, dbname, dbname))
        return [pid for (pid,) in rows]

    def log_mark(self):
        """A position in the server log, for log_since()."""
        return os.path.getsize(self.log)

    def log_since(self, mark=0):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            log.seek(mark)
            return log.read()

    # -- databases ----------------------------------------------------------

    @contextlib.contextmanager
    def database(self, name, settings=None, extensions=("acemq",)):
        """A fresh database; `settings` are in force before the first extension is made."""
        self.sql(f'CREATE DATABASE "{name}" TEMPLATE template0')
        for setting, value in (settings or {}).items():
            self.sql(f'ALTER DATABASE "{name}" SET {setting} = %s', (str(value),))
        for extension in extensions:
            self.sql(f"CREATE EXTENSION {extension}", dbname=name)
        database = Database(self, name)
        try:
            yield database
        finally:
            database.drop()

    @contextlib.contextmanager
    def encoded_database(self, name, encoding):
        """A cursor in a fresh database of that encoding, with the extension; the client speaks UTF-8."""
        self.sql(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
        try:
            with contextlib.closing(self.connect(name)) as connection, connection.cursor() as cursor:
                connection.set_client_encoding("UTF8")
                cursor.execute("CREATE EXTENSION acemq")
                yield cursor
        finally:
            self.sql(f"DROP DATABASE {name} WITH (FORCE)")


class Database:
    """A database of a cluster, with a connection that follows restarts of the server."""

    def __init__(self, cluster, name):
        self.cluster = cluster
        self.name = name
        self._connection = None
        self._server = None
        self._lent = []

    def connect(self, autocommit=False, **more):
        """A connection that ends with the database at the latest."""
        connection = self.cluster.connect(self.name, autocommit, **more)
        self._lent.append(connection)
        return connection

    def sql(self, query, params=None):
        """One statement, committed; its rows."""
        server = self.cluster.process
        if self._connection is None or self._connection.closed or self._server is not server:
            self._connection = self.cluster.connect(self.name)
            self._server = server
        return fetch(self._connection, query, params)

    def value(self, query, params=None):
        """The one value of the one row."""
        ((value,),) = self.sql(query, params)
        return value

    def status(self):
        """The row of acemq.status as a dict."""
        ((row,),) = self.sql("SELECT to_jsonb(s) FROM acemq.status s")
        return row

    def await_state(self, *states, timeout=15):
        """Wait until the worker is in one of these states."""
        return await_until(lambda: self.status()["state"] in states, timeout,
                           lambda: f"state is one of {states}; status is {self.status()}",
                           ignoring=(psycopg2.OperationalError,))

    def close(self):
        """End the connections; the next statement makes a new one."""
        for connection in [self._connection, *self._lent]:
            if connection is not None:
                connection.close()

    def drop(self):
        self.close()
        self.cluster.ensure_running()
        for (gid,) in self.cluster.sql("SELECT gid FROM pg_prepared_xacts WHERE database = %s", (self.name,)):
            self.cluster.sql("ROLLBACK PREPARED %s", (gid,), dbname=self.name)
        self.cluster.sql(f'DROP DATABASE IF EXISTS "{self.name}" WITH (FORCE)')


def fetch(connection, query, params=None):
    with connection.cursor() as cursor:
        cursor.execute(query, params)
        return cursor.fetchall() if cursor.description else []
