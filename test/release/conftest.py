"""Fixtures of the release tests."""

import pytest

from private_server import PrivateServer


@pytest.fixture(scope="module")
def server():
    return PrivateServer()
