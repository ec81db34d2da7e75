"""Fixtures of the release tests."""

import pytest

from private_server import PrivateServer


def pytest_configure(config):
    config.addinivalue_line("markers", "long_only: with --long")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--long"):
        return
    left_out = [item for item in items if item.get_closest_marker("long_only")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


@pytest.fixture(scope="module")
def server():
    return PrivateServer()
