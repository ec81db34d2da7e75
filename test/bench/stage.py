"""What the measurements are made on: a cluster, a broker, the baseline program.

May depend on: test/lib.
"""

import contextlib
import os
import signal
import subprocess
import threading
import time

import processes
from checks import await_until
from cluster import Cluster
from pgbench import QUIET_SETTINGS, cpu_seconds
from rabbit import _USER, Broker

EXCHANGE = "orders"
ROUTING_KEY = "order.placed"
QUEUE = "bench"
ORIGIN = "acemq@bench"
KINDS = ("classic", "quorum")


def json_body(size):
    """A JSON string of that many bytes."""
    return '"' + "x" * (size - 2) + '"'


class Stage:
    """Use it as a context manager; everything it started ends with it."""

    def __init__(self, quick=False, rounds=5, match=""):
        self.quick = quick
        self.rounds = rounds
        self.match = match
        self.worker_memory = {}  # by database: the most that was seen, bytes
        self._servers = contextlib.ExitStack()

    def __enter__(self):
        try:
            self.program = self._build()
            self.cluster = self._servers.enter_context(Cluster(dict(QUIET_SETTINGS, max_connections=120)))
            self.broker = self._servers.enter_context(Broker())
            self.vhost = self.broker.vhost()
            self.password_file = self.cluster.secret_file("broker-password", self.broker.password + "\n")
        except BaseException:
            self._servers.close()
            raise
        return self

    def __exit__(self, *_):
        self._servers.close()

    def _build(self):
        out = processes.new_dir("bench")
        subprocess.run(["make", "-s", "-C", os.path.join(os.path.dirname(os.path.abspath(__file__)), "baseline"),
                        f"OUT={out}"], check=True)
        return os.path.join(out, "baseline")

    def wants(self, name):
        """Whether a figure of this name was asked for."""
        return self.match in name

    # -- databases -------------------------------------------------------------

    @contextlib.contextmanager
    def database(self, name, **settings):
        """A database whose worker relays to the stage's virtual host; dots in setting names are two underscores."""
        own = {"acemq.url": self.vhost.url(), "acemq.password_file": self.password_file}
        own.update((setting.replace("__", "."), value) for setting, value in settings.items())
        with self.cluster.database(name, own) as database:
            database.await_state("idle", timeout=60)
            yield database

    def fill(self, database, count, body, **more):
        """Pause the relay and put messages in, committed."""
        self.pause(database)
        database.sql("VACUUM acemq.outbox")
        database.sql("CHECKPOINT")
        options = "".join(f", {name} => {value}" for name, value in more.items())
        database.sql(f"SELECT count(acemq.outbox_add('{EXCHANGE}', '{ROUTING_KEY}', %s{options}))"
                     " FROM generate_series(1, %s) n", (json_body(body), count))

    def pause(self, database):
        database.sql("SELECT acemq.relay_pause()")
        database.await_state("paused", timeout=60)

    def await_status(self, database, condition, timeout=60):
        """Wait until the row of acemq.status is as it should be."""
        return await_until(lambda: condition(database.status()), timeout, lambda: f"status is {database.status()}")

    def kill(self, pid):
        """SIGKILL for a process of the cluster."""
        if pid not in processes.children_of(self.cluster.pid):
            raise AssertionError(f"process {pid} is not of our cluster")
        os.kill(pid, signal.SIGKILL)

    # -- the broker --------------------------------------------------------------

    def fresh_queue(self, kind, **arguments):
        """An empty durable queue, the only one bound to the exchange."""
        self.vhost.delete(QUEUE)
        self.vhost.declare(QUEUE, exchange=EXCHANGE, x_queue_type=kind, **arguments)
        self.await_quiet()

    def await_quiet(self, timeout=20):
        """Until the broker has nothing left to do of what came before: it may use a tenth of a core."""
        last = [time.monotonic(), cpu_seconds(self.broker.process.pid)]

        def quiet():
            now, burnt = time.monotonic(), cpu_seconds(self.broker.process.pid)
            share = (burnt - last[1]) / (now - last[0])
            last[:] = [now, burnt]
            return share < 0.1

        time.sleep(0.2)
        with contextlib.suppress(AssertionError):  # a broker that is never quiet is measured all the same
            await_until(quiet, timeout, interval=0.2)

    # -- the baseline program ------------------------------------------------------

    def baseline(self, program, database=None, **options):
        """Run it; its figures by name."""
        settings = dict(port=self.broker.port, vhost=self.vhost.name, user=_USER, exchange=EXCHANGE,
                        routing_key=ROUTING_KEY, origin=ORIGIN, **options)
        if database is not None:
            settings["database"] = f"host={self.cluster.sockets} port={self.cluster.port} user=postgres dbname={database.name}"
        done = subprocess.run([self.program, program, *(f"{name}={value}" for name, value in settings.items())],
                              stdout=subprocess.PIPE, check=True, text=True,
                              env=dict(os.environ, BENCH_PASSWORD=self.broker.password))
        return {name: float(value) for name, _, value in (pair.partition("=") for pair in done.stdout.split())}


def private_memory(pid):
    """Bytes of a process that are its own: anonymous pages.

    Pages of shared memory that no other process has touched yet count as
    "private" in smaps, but are not.
    """
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as rollup:
        return next(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Anonymous:"))


class MemoryWatch:
    """Looks at the memory of a database's worker while something runs."""

    def __init__(self, stage, database):
        self._stage, self._name = stage, database.name
        self._pid = database.status()["worker_pid"]
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._done.set()
        self._thread.join()

    def _run(self):
        seen = self._stage.worker_memory
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            while True:
                seen[self._name] = max(seen.get(self._name, 0), private_memory(self._pid))
                if self._done.wait(0.2):
                    return
