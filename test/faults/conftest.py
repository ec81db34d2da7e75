"""Fixtures of the fault tests.

    unharmed   of every test: the postmaster that was there before is there afterwards, and no process has crashed
    faked      a database that relays to a scripted broker (db.fake)
    proxied    a database that relays to the real broker through a proxy (db.proxy, db.vhost, db.queue)

Both relay with short timeouts and without the scheduler, and are shared by the
tests of a file: each test finds an empty outbox, a new worker and a broker that
behaves.  A test that changes settings of the database makes its own with
make_database.

A test marked thin(n) is run with every n-th of its parameters only, unless
--long asks for all.
"""

import collections
import itertools

import psycopg2
import pytest

from checks import await_until
from fake_broker import FakeBroker
from load import restart_worker
from proxy import Proxy

_numbers = itertools.count(1)

# What a test can wait for.  The window is small, so that the bound on duplicates means something.
SETTINGS = {"acemq.scheduler": "off", "acemq.io_timeout": "1s", "acemq.connect_timeout": "1s",
            "acemq.confirm_timeout": "2s", "acemq.max_in_flight": "100", "acemq.retry_delay": "200ms",
            "acemq.retry_delay_max": "400ms"}


def pytest_configure(config):
    config.addinivalue_line("markers", "thin(n): every n-th of the parameters, all with --long")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--long"):
        return
    seen = collections.Counter()
    left_out = []
    for item in items:
        marker = item.get_closest_marker("thin")
        if marker is None:
            continue
        if seen[item.function] % marker.args[0] != 0:
            left_out.append(item)
        seen[item.function] += 1
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


@pytest.fixture(autouse=True)
def unharmed(request):
    """Whatever is done to the worker's connections: the server does not restart because of us."""
    if "cluster" not in request.fixturenames:
        yield
        return
    server = request.getfixturevalue("cluster")
    server.ensure_running()
    started, mark = server.sql("SELECT pg_postmaster_start_time()"), server.log_mark()
    process = server.process
    yield
    await_until(lambda: server.sql("SELECT 1"), 30, "the server takes connections",
                ignoring=(psycopg2.OperationalError,))
    said = server.log_since(mark)
    assert "terminated by signal" not in said and "PANIC" not in said and "TRAP" not in said
    if server.process is process:  # else the test itself has stopped it
        assert server.sql("SELECT pg_postmaster_start_time()") == started
        assert "reinitializing" not in said


@pytest.fixture(scope="session")
def make_database(cluster):
    """Function of settings: a context manager of a fresh database with those of above, and these."""

    def make(settings):
        cluster.ensure_running()
        return cluster.database(f"fault{next(_numbers)}", {**SETTINGS, **settings})

    return make


@pytest.fixture(scope="module")
def shared_fake(make_database):
    with FakeBroker() as fake, make_database({"acemq.url": fake.url()}) as database:
        database.fake = fake
        yield database


@pytest.fixture
def faked(shared_fake):
    database = shared_fake
    database.cluster.ensure_running()
    database.fake.begin_again()
    restart_worker(database)
    database.fake.conn()
    database.fake.accepted = 1
    yield database
    database.fake.behave()
    database.sql("DELETE FROM acemq.outbox")


@pytest.fixture(scope="module")
def shared_proxy(cluster, broker, make_database):
    broker.ensure_running()
    vhost = broker.vhost()
    with Proxy(broker.port) as proxy:
        secret = cluster.secret_file("broker-password", broker.password + "\n")
        settings = {"acemq.url": vhost.url(port=proxy.port), "acemq.password_file": secret}
        with make_database(settings) as database:
            database.vhost, database.proxy = vhost, proxy
            yield database


@pytest.fixture
def proxied(shared_proxy):
    database = shared_proxy
    database.cluster.ensure_running()
    database.vhost.broker.ensure_running()
    database.proxy.begin_again()
    database.queue = database.vhost.declare(f"events{next(_numbers)}", exchange="orders", binding="#")
    restart_worker(database)
    await_until(lambda: database.proxy.link().seen("to_worker", "confirm.select-ok"), 15, "the worker is connected")
    yield database
    database.proxy.begin_again()
    database.vhost.delete(database.queue)
    database.sql("DELETE FROM acemq.outbox")
