#!/usr/bin/python3
"""Run a command against a throwaway cluster and, if asked for, a throwaway broker.

    test/lib/serve.py [--broker] [--no-preload] [--database NAME [--extension NAME]] [COMMAND [ARGUMENT...]]

The command (default: a shell) finds the cluster through the PG* variables and
the broker through ACEMQ_BROKER_URL.  Both end with it, also when this program
is interrupted.  Exits with the command's exit code.

May depend on: cluster.py, rabbit.py.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys

from cluster import Cluster
from rabbit import Broker, Vhost


def interrupted(number, _frame):
    sys.exit(128 + number)


def run(command, environment):
    """Run it in front; end it when we are told to end."""
    with subprocess.Popen(command, env=environment) as process:
        try:
            return process.wait()
        except BaseException:
            process.terminate()
            raise


def main():
    parser = argparse.ArgumentParser(description="Run a command against throwaway servers.")
    parser.add_argument("--broker", action="store_true", help="start a RabbitMQ node too")
    parser.add_argument("--no-preload", action="store_true", help="leave shared_preload_libraries empty")
    parser.add_argument("--database", help="make this database, with the extension")
    parser.add_argument("--extension", action="append", default=[], help="and with this extension too")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, interrupted)
    environment = dict(os.environ)
    with contextlib.ExitStack() as servers:
        cluster = servers.enter_context(Cluster(preload=None if options.no_preload else "acemq"))
        environment.update(cluster.environment())
        if options.broker:
            broker = servers.enter_context(Broker())
            environment["ACEMQ_BROKER_URL"] = Vhost(broker, "/").url(password=broker.password)
        if options.database:
            servers.enter_context(cluster.database(options.database, extensions=["acemq", *options.extension]))
            environment["PGDATABASE"] = options.database
        code = run(command or [os.environ.get("SHELL", "/bin/sh")], environment)
        if code != 0:
            print(f"--- end of the server log ---\n{cluster.log_since()[-4000:]}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
