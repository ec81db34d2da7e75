"""A server of its own whose library has kill points (bgworker/kill_points.h).

The library is built with -DACEMQ_KILL_POINTS and installed beside links to the
files of the chosen server; the programs themselves are copies, because a
server finds its files relative to where its program really is.  Nothing that is
installed is touched.

May depend on: test/lib/cluster.py, test/lib/processes.py.
"""

import os
import re
import shutil
import subprocess

import processes
from cluster import Cluster

_TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
_PG_CONFIG = os.environ.get("PG_CONFIG", "pg_config")
_PROGRAMS = ("initdb", "postgres")
REACHED = "acemq_kill_point.reached"


def names():
    """Of all kill points."""
    with open(os.path.join(_TOP, "bgworker", "kill_points.h"), encoding="ascii") as header:
        return re.findall(r"^\tX\(\w+, \"(\w+)\"\)", header.read(), re.M)


def _pg_config(what):
    return subprocess.run([_PG_CONFIG, what], check=True, capture_output=True, text=True).stdout.strip()


def _link_all(source, target):
    """What is in the directory, linked, except for what we install ourselves."""
    os.makedirs(target, exist_ok=True)
    for name in os.listdir(source):
        if name.startswith("acemq"):
            continue
        if name == "extension":
            _link_all(os.path.join(source, name), os.path.join(target, name))
        elif name != "bitcode":
            os.symlink(os.path.join(source, name), os.path.join(target, name))


def _build(directory):
    """The library, without what takes time and is of no use here."""
    for name in ("src", "bgworker", "sql", "Makefile", "acemq.control"):
        source = os.path.join(_TOP, name)
        if os.path.isdir(source):
            shutil.copytree(source, os.path.join(directory, name), ignore=shutil.ignore_patterns("*.o", "*.bc"))
        else:
            shutil.copy(source, directory)
    subprocess.run(["make", "-s", "-j2", "-C", directory, f"PG_CONFIG={_PG_CONFIG}", "with_llvm=no",
                    "COPT=-DACEMQ_KILL_POINTS -O1 -g0"], check=True)


def make_server():
    """The directory of its programs."""
    root, tree = processes.new_dir("killable"), processes.new_dir("killable-build")
    _build(tree)
    bin_dir, library_dir, share_dir = (_pg_config(what) for what in ("--bindir", "--pkglibdir", "--sharedir"))
    os.makedirs(root + bin_dir)
    for program in _PROGRAMS:
        shutil.copy2(os.path.join(bin_dir, program), root + bin_dir)
    _link_all(library_dir, root + library_dir)
    _link_all(share_dir, root + share_dir)
    subprocess.run(["make", "-s", "-C", tree, "install", f"PG_CONFIG={_PG_CONFIG}", "with_llvm=no",
                    f"DESTDIR={root}"], check=True)
    return root + bin_dir


class KillableCluster(Cluster):
    """A cluster of such a server."""

    def __init__(self, settings=None):
        super().__init__(settings)
        self.bin = make_server()

    @property
    def reached_file(self):
        return os.path.join(self.data, REACHED)

    def arm(self, point):
        """The next worker that comes to it is gone: name[:n[:error]]."""
        self.configure(acemq__kill_point=point)
        if os.path.exists(self.reached_file):
            os.unlink(self.reached_file)

    def disarm(self):
        self.configure(acemq__kill_point=None)

    def reached(self):
        return os.path.exists(self.reached_file)
