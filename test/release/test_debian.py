"""The Debian package: its control file is as pg_buildext makes it; with --long it is built, installed and checked."""

import os
import subprocess

import pytest

import processes

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))


def test_control_is_made_of_its_template():
    with open(f"{TOP}/debian/control.in", encoding="utf-8") as template, open(f"{TOP}/debian/control", encoding="utf-8") as control:
        # The oldest release that we support has one PostgreSQL; the others' are filled in where they are built.
        assert template.read().replace("PGVERSION", "15") == control.read()


@pytest.mark.long_only
def test_package():
    """A clean bookworm builds it, installs it and passes the tier regress with it."""
    directory = processes.new_dir("packages")
    environment = {name: value for name, value in os.environ.items() if name not in ("PG_CONFIG", "ACEMQ_RUN_DIR")}
    done = subprocess.run([f"{TOP}/dev/build-deb", "--on", "bookworm", "--check", directory], env=environment,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True)
    assert done.returncode == 0, done.stdout[-6000:]
    assert any(name.startswith("postgresql-15-acemq_") for name in os.listdir(directory))
