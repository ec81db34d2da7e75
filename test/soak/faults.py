"""The kinds of fault.

Each is a method of Faults named after it.  It returns when the outage is over
and everything that was stopped runs again; the only sleeps are the lengths of
outages.

May depend on: ../lib/processes.py, ../lib/checks.py, control.py, forwarder.py, load.py.
"""

import os
import random
import signal
import time

import psycopg2

from checks import await_until
from processes import process_exists, wait_gone

# What ends the worker; after the others the same process goes on, so that its memory can be watched.
ENDS_WORKER = ("worker_killed", "worker_terminated", "worker_restarted", "launcher_killed", "backend_killed", "postgres_fast",
               "postgres_immediate", "postgres_killed", "worker_terminated_broker_away")
SPARES_WORKER = ("backend_terminated", "broker_application_restarted", "broker_killed", "connections_closed",
                 "connection_cut", "connection_cut_in_a_frame", "memory_alarm", "broker_frozen", "worker_frozen",
                 "relay_paused")
# A broker that goes down may lose what expires on a rung at that moment: it is not on the disk of either queue.
BROKER_DOWN = ("broker_application_restarted", "broker_killed", "worker_terminated_broker_away")

# acemq.confirm_timeout, in seconds: longer than a busy machine takes, shorter than the longest freeze.
CONFIRM_TIMEOUT = 5


class Faults:
    """What they are done to."""

    def __init__(self, cluster, broker, control, database, forwarder, writers, seed):
        self._cluster = cluster
        self._broker = broker
        self._control = control
        self._database = database
        self._forwarder = forwarder
        self._writers = writers
        self._random = random.Random(f"{seed} faults")
        self._watermark = 0.4

    def do(self, kind):
        getattr(self, kind)()

    # -- processes of the server -----------------------------------------------

    def worker(self):
        """Its process id, once there is one."""
        def found():
            pids = self._cluster.backends("acemq worker", self._database.name)
            return pids and pids[0]

        return await_until(found, 60, "there is a worker", ignoring=(psycopg2.Error,))

    def _kill(self, pid, number):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        if number != signal.SIGSTOP and wait_gone([pid], 20):
            raise RuntimeError(f"process {pid} outlived signal {number} by 20 s")

    def _await_server(self):
        """The postmaster has been through its crash recovery."""
        await_until(lambda: self._cluster.sql("SELECT 1"), 60, "the server takes connections",
                    ignoring=(psycopg2.Error,))

    def worker_killed(self):
        self._kill(self.worker(), signal.SIGKILL)
        self._await_server()

    def worker_terminated(self):
        self._kill(self.worker(), signal.SIGTERM)

    def worker_restarted(self):
        self._cluster.sql("SELECT acemq.worker_restart()", dbname=self._database.name)

    def launcher_killed(self):
        (pid,) = self._cluster.backends("acemq launcher")
        self._kill(pid, signal.SIGKILL)
        self._await_server()

    def worker_frozen(self):
        pid = self.worker()
        self._kill(pid, signal.SIGSTOP)
        try:
            time.sleep(self._random.uniform(0.2, 1.0))
        finally:
            os.kill(pid, signal.SIGCONT)

    def _some_backend(self):
        return await_until(
            lambda: [writer.pid for writer in self._writers if writer.pid and process_exists(writer.pid)], 60,
            "a writer is connected")

    def backend_killed(self):
        self._kill(self._random.choice(self._some_backend()), signal.SIGKILL)
        self._await_server()

    def backend_terminated(self):
        self._kill(self._random.choice(self._some_backend()), signal.SIGTERM)

    def postgres_fast(self):
        self._cluster.restart("fast")

    def postgres_immediate(self):
        self._cluster.restart("immediate")

    def postgres_killed(self):
        self._cluster.crash()
        self._cluster.start()

    def relay_paused(self):
        self._cluster.sql("SELECT acemq.relay_pause()", dbname=self._database.name)
        try:
            time.sleep(0.3)
        finally:
            self._cluster.sql("SELECT acemq.relay_resume()", dbname=self._database.name)

    # -- broker and network ----------------------------------------------------

    def broker_application_restarted(self):
        self._control.evaluate("rabbit:stop()", "rabbit:start()")
        self._broker.ensure_running()

    def broker_killed(self):
        self._broker.kill()
        self._broker.start()

    def worker_terminated_broker_away(self):
        self._broker.kill()
        self._kill(self.worker(), signal.SIGTERM)
        self._broker.start()

    def connections_closed(self):
        self._control.evaluate(
            "[rabbit_networking:close_connection(Each, <<\"closed by the soak test\">>)"
            " || Each <- rabbit_networking:connections()]")

    def connection_cut(self):
        self._forwarder.cut()

    def connection_cut_in_a_frame(self):
        self._forwarder.cut(after=20000)

    def memory_alarm(self):
        length = self._random.randrange(300, 2000)
        self._control.evaluate("vm_memory_monitor:set_vm_memory_high_watermark({absolute, 1})", f"timer:sleep({length})",
                        f"vm_memory_monitor:set_vm_memory_high_watermark({self._watermark})")

    def broker_frozen(self):
        """Sometimes for longer than acemq.confirm_timeout, so that the worker gives the connection up."""
        self._broker.freeze()
        try:
            time.sleep(self._random.choice([0.3, 0.3, 1.0, 1.0, 2.0, CONFIRM_TIMEOUT + 1.5]))
        finally:
            self._broker.thaw()
