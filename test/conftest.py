"""Fixtures for every test that needs servers.

    cluster   one PostgreSQL cluster for the session, extension preloaded
    broker    one RabbitMQ node for the session
    db        a fresh database with the extension, relaying to a virtual host
              of its own (db.vhost); both servers are healthy when it is handed out

A test that needs servers with other settings makes its own with the context
managers Cluster(...) and Broker(...).
"""

import itertools
import os
import signal
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

from cluster import Cluster  # noqa: E402
from rabbit import Broker  # noqa: E402

_numbers = itertools.count(1)
_sessions_servers = []


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="full size for what runs small by default")


def pytest_configure(config):
    """A termination request must run the fixtures' ends, as Ctrl-C does."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    config.addinivalue_line("markers", "long_only: with --long")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--long"):
        return
    left_out = [item for item in items if item.get_closest_marker("long_only")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


@pytest.fixture(scope="session")
def long_run(request):
    """True with --long: same code, bigger numbers."""
    return request.config.getoption("--long")


@pytest.fixture(scope="session")
def cluster():
    with Cluster() as server:
        _sessions_servers.append(server)
        yield server


@pytest.fixture(scope="session")
def broker():
    with Broker() as server:
        _sessions_servers.append(server)
        yield server


@pytest.fixture
def relay_settings(cluster, broker):
    """Function of a virtual host: the settings that make a database relay to it."""

    def settings(vhost):
        secret = cluster.secret_file("broker-password", broker.password + "\n")
        return {"acemq.url": vhost.url(), "acemq.password_file": secret}

    return settings


@pytest.fixture
def db(cluster, broker, relay_settings):
    cluster.ensure_running()
    broker.ensure_running()
    vhost = broker.vhost()
    with cluster.database(f"test{next(_numbers)}", relay_settings(vhost)) as database:
        database.vhost = vhost
        yield database


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item, nextitem):
    """Remember where the logs stood when the test began."""
    item.log_marks = [(server, os.path.getsize(server.log)) for server in _sessions_servers]
    yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failure shows what the servers logged meanwhile."""
    report = (yield).get_result()
    if not report.failed:
        return
    marks = dict(item.log_marks)
    for server in _sessions_servers:
        with open(server.log, encoding="utf-8", errors="replace") as log:
            log.seek(marks.get(server, 0))
            report.sections.append((f"log of {type(server).__name__.lower()}", log.read()[-6000:]))
