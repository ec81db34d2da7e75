"""Fixtures of the security tests."""

import pytest


@pytest.fixture
def queue(db):
    return db.vhost.declare("events", exchange="orders", binding="#")
