"""Fixtures: a database that relays, watched by the exporter and Prometheus, with the shipped files of monitoring/."""

import os
import re
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import ladder  # noqa: E402
from watchers import Exporter, Prometheus, impatient, read  # noqa: E402


@pytest.fixture(scope="module")
def shop(cluster, broker):
    """A database with a queue that its relay is connected to."""
    vhost = broker.vhost()
    secret = cluster.secret_file("broker-password", broker.password + "\n")
    with cluster.database("shop", {"acemq.url": vhost.url(), "acemq.password_file": secret}) as database:
        database.vhost = vhost
        database.queue = vhost.declare("events", exchange="orders", binding="order.*")
        database.await_state("idle", "relaying")
        ladder.await_consuming(database)
        yield database


@pytest.fixture(scope="module")
def source(cluster, shop):
    """The role that the page tells to make, and how the exporter connects as it."""
    for statements in re.findall(r"```sql\n(.*?)```", read("README.md"), re.S):
        shop.sql(statements)
    shop.sql("ALTER ROLE prometheus PASSWORD 'sesame'")
    return f"postgresql://prometheus:sesame@127.0.0.1:{cluster.port}/shop?sslmode=disable"


@pytest.fixture(scope="module")
def exporter(source):
    with Exporter(source) as exporter:
        yield exporter


@pytest.fixture(scope="module")
def prometheus(exporter):
    with Prometheus(exporter.port, impatient(read("alerts.yaml"))) as prometheus:
        yield prometheus
