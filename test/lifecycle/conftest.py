"""Fixtures of the life-cycle tests."""

import pytest


@pytest.fixture
def queue(db):
    return db.vhost.declare("events", exchange="orders", binding="#", x_queue_type="quorum")
