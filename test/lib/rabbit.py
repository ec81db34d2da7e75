"""A throwaway RabbitMQ node, and a client to look into it that is not ours.

The node runs as user rabbitmq with ports, data, cookie and epmd of its own, so
that a RabbitMQ of the machine is not touched.  epmd runs in the foreground: it
is our child and is ended by its process id.

May depend on: processes.py, checks.py, wire.py, pika.
"""

import collections
import contextlib
import itertools
import json
import os
import secrets
import signal
import socket
import subprocess
import threading
import time
import urllib.parse

import pika
import pika.exceptions

import processes
import wire  # noqa: F401  (makes pika keep exact headers)
from checks import await_until

_SCRIPTS = "/usr/lib/rabbitmq/bin"
_USER = "acemq"
_VHOSTS_AT_ONCE = 12

# headers: exact values; kinds: their AMQP kind letters; at: time.monotonic() when it came.
Message = collections.namedtuple("Message", "body headers kinds properties exchange routing_key redelivered at")


class Broker:
    """One node; use it as a context manager, or call create() and destroy()."""

    def __init__(self, config=None):
        self.user = processes.server_user("rabbitmq")
        self.directory = processes.new_dir("rabbit", self.user, 0o750)
        self.log = os.path.join(self.directory, "out")
        self.config = dict(config or {})
        self.password = secrets.token_hex(12)
        self.process = None
        self.epmd = None
        self._frozen = False
        self._vhosts = []
        self._numbers = itertools.count(1)

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
        """First start, with other ports if somebody took ours."""
        cookie = os.path.join(self.directory, ".erlang.cookie")
        processes.write_file(cookie, secrets.token_hex(16), self.user, 0o400)
        processes.write_file(self._path("enabled_plugins"), "[].\n", self.user)
        for attempt in range(3):
            self.port, self.tls_port, self.dist_port, self.epmd_port = processes.free_ports(4)
            try:
                self.start()
                return
            except processes.StartFailed:
                self.destroy()
                if attempt == 2:
                    raise

    def _path(self, name):
        return os.path.join(self.directory, name)

    def _environment(self):
        return {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "LANG": "C.UTF-8",
            "HOME": self.directory,
            "RABBITMQ_NODENAME": f"acemq{self.port}@localhost",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self.dist_port),
            "RABBITMQ_MNESIA_BASE": self._path("data"),
            "RABBITMQ_LOG_BASE": self._path("logs"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": self._path("enabled_plugins"),
            "RABBITMQ_CONFIG_FILE": self._path("rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": self._path("no-environment-file"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self.epmd_port),
            # The script replaces itself by the node, so that the process id we hold is the node's.
            "RUNNING_UNDER_SYSTEMD": "true",
        }

    def _write_config(self):
        config = {
            "listeners.tcp.local": f"127.0.0.1:{self.port}",
            "default_user": _USER,
            "default_pass": self.password,
            "default_user_tags.administrator": "true",
            **self.config,
        }
        text = "".join(f"{name} = {value}\n" for name, value in config.items())
        processes.write_file(self._path("rabbitmq.conf"), text, self.user, 0o600)

    def start(self, timeout=90):
        """Start the node and wait until its port answers."""
        self._write_config()
        if self.epmd is None or self.epmd.poll() is not None:
            self.epmd = processes.spawn(["epmd", "-port", str(self.epmd_port), "-address", "127.0.0.1"], self.user,
                                        self.directory, self.log, self._environment())
        self.process = processes.spawn([f"{_SCRIPTS}/rabbitmq-server"], self.user, self.directory, self.log,
                                       self._environment())
        deadline = time.monotonic() + timeout
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise processes.StartFailed(f"rabbitmq-server did not start:\n{processes.tail(self.log)}")
            time.sleep(0.05)

    def _answers(self):
        """A full login, since the listener opens a little before the node accepts users."""
        try:
            self.connection("/").close()
            return True
        except (pika.exceptions.AMQPError, OSError):
            return False

    def stop(self, timeout=30):
        """Orderly stop of the node; epmd stays for the next start."""
        self._signal(signal.SIGTERM)
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
        self.process = None

    def kill(self):
        """SIGKILL: what the node had not written is lost."""
        self._signal(signal.SIGKILL)
        self.process.wait()
        self.process = None

    def _signal(self, number):
        # The session, not the process: a release whose script stays as the node's parent is covered too.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def restart(self):
        self.stop()
        self.start()

    def destroy(self):
        """End node and epmd; the directory goes with the run directory."""
        if self.process is not None:
            self.thaw()
            self.stop()
        if self.epmd is not None:
            self.epmd.terminate()
            self.epmd.wait()
            self.epmd = None

    @property
    def running(self):
        return self.process is not None and self.process.poll() is None

    def ensure_running(self):
        """Back to a healthy node, whatever the last test did to it."""
        if self._frozen:
            self.thaw()
        if not self.running:
            self.start()
        elif not self._answers():
            self.start_app()

    # -- troubles -----------------------------------------------------------

    def ctl(self, *arguments, timeout=60):
        """rabbitmqctl; its output.  About a second each: not in loops."""
        return processes.run_as(self.user, [f"{_SCRIPTS}/rabbitmqctl", "-q", *arguments], self.directory,
                                self._environment(), timeout)

    def stop_app(self):
        """Broker gone, Erlang node alive: the quickest way down and up."""
        self.ctl("stop_app")

    def start_app(self):
        self.ctl("start_app")

    def freeze(self):
        """SIGSTOP: connections stay open and nobody answers."""
        self._frozen = True
        self._signal(signal.SIGSTOP)

    def thaw(self):
        self._frozen = False
        self._signal(signal.SIGCONT)

    @contextlib.contextmanager
    def memory_alarm(self):
        """Publishers are blocked while it lasts."""
        self.ctl("set_vm_memory_high_watermark", "absolute", "1")
        try:
            yield
        finally:
            self.ctl("set_vm_memory_high_watermark", "0.4")

    @contextlib.contextmanager
    def suspended_queue(self, vhost, queue):
        """The process of a classic queue takes messages in and does nothing with them: no confirm comes."""
        lookup = (f'{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"{vhost.name}">>, queue, <<"{queue}">>)), '
                  "Pid = amqqueue:get_pid(Q), ")
        self.ctl("eval", lookup + "ok = sys:suspend(Pid).")
        try:
            yield
        finally:
            self.ctl("eval", lookup + "ok = sys:resume(Pid).")

    def close_connections(self, reason="closed by the test"):
        self.ctl("close_all_connections", "--global", reason)

    def set_max_message_size(self, size):
        """Also for a running node; RabbitMQ 4 keeps it elsewhere than 3."""
        self.config["max_message_size"] = size
        self.ctl("eval", f"application:set_env(rabbit, max_message_size, {int(size)}), persistent_term:put(max_message_size, {int(size)}).")

    def log_text(self):
        return processes.tail(self.log, 10_000)

    # -- virtual hosts and connections ---------------------------------------

    def connection(self, vhost):
        """A pika connection without heartbeats: the test decides when it is looked after."""
        return pika.BlockingConnection(pika.ConnectionParameters(
            "127.0.0.1", self.port, vhost, pika.PlainCredentials(_USER, self.password), heartbeat=0,
            socket_timeout=10, stack_timeout=15, blocked_connection_timeout=30))

    def vhost(self):
        """A virtual host nobody has used."""
        if not self._vhosts:
            self._make_vhosts([f"v{next(self._numbers)}" for _ in range(_VHOSTS_AT_ONCE)])
        return Vhost(self, self._vhosts.pop(0))

    def _make_vhosts(self, names):
        """Several with one call, since it is the call that takes the time."""
        allowed = {"configure": ".*", "write": ".*", "read": ".*"}
        definitions = {"vhosts": [{"name": name} for name in names],
                       "permissions": [dict(allowed, user=_USER, vhost=name) for name in names]}
        path = processes.write_file(self._path("definitions.json"), json.dumps(definitions), self.user)
        self.ctl("import_definitions", path)
        await_until(lambda: self.connection(names[-1]), 20, "the new virtual hosts are there",
                    ignoring=(pika.exceptions.AMQPError, OSError)).close()
        self._vhosts.extend(names)


class Vhost:
    """One virtual host, seen through short connections, so that a broker restart does not matter."""

    def __init__(self, broker, name):
        self.broker = broker
        self.name = name

    def url(self, user=_USER, password=None, scheme="amqp", host="127.0.0.1", port=None):
        """What acemq.url wants; without the password unless one is given."""
        login = user if password is None else f"{user}:{urllib.parse.quote(password, safe='')}"
        return f"{scheme}://{login}@{host}:{port or self.broker.port}/{urllib.parse.quote(self.name, safe='')}"

    @contextlib.contextmanager
    def channel(self):
        connection = self.broker.connection(self.name)
        try:
            yield connection.channel()
        finally:
            with contextlib.suppress(pika.exceptions.AMQPError):
                connection.close()

    def declare_exchange(self, name, kind="topic", **more):
        with self.channel() as channel:
            channel.exchange_declare(name, kind, durable=True, **more)

    def declare(self, queue, exchange="", binding="#", kind="topic", **arguments):
        """A durable queue; bound to the exchange (made too) if one is named."""
        arguments = {name.replace("_", "-"): value for name, value in arguments.items()}
        with self.channel() as channel:
            channel.queue_declare(queue, durable=True, arguments=arguments)
            if exchange:
                channel.exchange_declare(exchange, kind, durable=True)
                channel.queue_bind(queue, exchange, binding)
        return queue

    def delete(self, queue):
        with self.channel() as channel:
            channel.queue_delete(queue)

    def count(self, queue):
        """Messages that wait in the queue."""
        with self.channel() as channel:
            return channel.queue_declare(queue, passive=True).method.message_count

    def get(self, queue, timeout=10):
        """The next message, taken off the queue."""
        return self.drain(queue, 1, timeout)[0]

    def drain(self, queue, count=None, timeout=10):
        """Take `count` messages as they come in, or (without) all that are there now."""
        found = []
        deadline = time.monotonic() + timeout
        with self.channel() as channel:
            while count is None or len(found) < count:
                method, properties, body = channel.basic_get(queue, auto_ack=True)
                if method is not None:
                    found.append(_message(method, properties, body))
                elif count is None:
                    break
                elif time.monotonic() > deadline:
                    raise AssertionError(f"{len(found)} of {count} messages in queue {queue} after {timeout} s")
                else:
                    time.sleep(0.01)
        return found

    def collect(self, queue):
        return Collector(self, queue)


class Collector:
    """Consumes a queue in a thread of its own and notes when each message came; comes back after a lost broker."""

    def __init__(self, vhost, queue):
        self._vhost = vhost
        self._queue = queue
        self._messages = []
        self._news = threading.Condition()
        self._stopping = threading.Event()
        self._consuming = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        if not self._consuming.wait(20):
            raise AssertionError(f"cannot consume queue {self._queue}")
        return self

    def __exit__(self, *_):
        self._stopping.set()
        self._thread.join(20)

    def _run(self):
        while not self._stopping.is_set():
            try:
                self._consume()
            except (pika.exceptions.AMQPError, OSError, socket.gaierror):
                self._stopping.wait(0.1)

    def _consume(self):
        with self._vhost.channel() as channel:
            channel.basic_qos(prefetch_count=500)
            self._consuming.set()
            for method, properties, body in channel.consume(self._queue, inactivity_timeout=0.2):
                if method is not None:
                    with self._news:
                        self._messages.append(_message(method, properties, body))
                        self._news.notify_all()
                    channel.basic_ack(method.delivery_tag)
                if self._stopping.is_set():
                    channel.cancel()
                    return

    @property
    def messages(self):
        with self._news:
            return list(self._messages)

    @property
    def ids(self):
        return [message.properties.message_id for message in self.messages]

    def wait(self, count, timeout=10):
        """The first `count` messages or more, once they have come."""
        with self._news:
            if not self._news.wait_for(lambda: len(self._messages) >= count, timeout):
                raise AssertionError(f"{len(self._messages)} of {count} messages from {self._queue} in {timeout} s")
            return list(self._messages)


def _message(method, properties, body):
    return Message(body, properties.exact, properties.kinds, properties, method.exchange, method.routing_key,
                   method.redelivered, time.monotonic())
