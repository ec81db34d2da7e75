"""A copy of the chosen server's files, so that what is installed into it meets nobody else.

May depend on: processes.py, cluster.py.
"""

import contextlib
import os
import shutil
import subprocess

import processes
from cluster import Cluster, bin_dir

# Programs and the build system find all of them relative to their own place.
_COPIED = ("--bindir", "--pkglibdir", "--sharedir", "--includedir-server")


def _pg_config(what, program=None):
    program = program or os.path.join(bin_dir(), "pg_config")
    return subprocess.run([program, what], check=True, capture_output=True, text=True).stdout.strip()


class PrivateServer:
    """The server of PG_CONFIG below a directory of the run."""

    def __init__(self):
        self.prefix = processes.new_dir("server")
        for what in _COPIED:
            source = _pg_config(what)
            if not os.path.exists(self.prefix + source):
                shutil.copytree(source, self.prefix + source, symlinks=True,
                                ignore=shutil.ignore_patterns("bitcode", "locale", "man"))
        self.bin = self.prefix + _pg_config("--bindir")
        self.pg_config = os.path.join(self.bin, "pg_config")
        self.library = _pg_config("--pkglibdir", self.pg_config) + "/acemq.so"
        self.extensions = _pg_config("--sharedir", self.pg_config) + "/extension"

    def remove_acemq(self):
        """What was installed into the original came along."""
        for name in os.listdir(self.extensions):
            if name.startswith("acemq"):
                os.remove(os.path.join(self.extensions, name))
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.library)

    def cluster(self, **arguments):
        """A cluster of this server, to be used as a context manager."""
        cluster = Cluster(**arguments)
        cluster.bin = self.bin
        return cluster
