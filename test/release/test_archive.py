"""The archive that `make dist` makes: all that PGXN wants, and enough to build, install and check from."""

import copy
import json
import os
import subprocess
import sys
import zipfile

import pytest

import processes
from pgxn_meta import faults_of

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
# A repository of a nobody, whatever git is told on this machine.
GIT = {f"GIT_{who}_{what}": "test@localhost" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
GIT |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}


def run(*command, cwd, code=0, **environment):
    done = subprocess.run(command, cwd=cwd, env=dict(os.environ, **environment), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True)
    assert done.returncode == code, f"{' '.join(command)}:\n{done.stdout[-6000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def meta():
    with open(os.path.join(TOP, "META.json"), encoding="utf-8") as given:
        return json.load(given)


@pytest.fixture(scope="module")
def repository():
    """The tree that these tests lie in, committed."""
    work = processes.new_dir("dist")
    run("cp", "-a", f"{TOP}/.", work, cwd="/")
    run("rm", "-rf", ".git", cwd=work)
    run("git", "init", "-q", cwd=work, **GIT)
    run("git", "add", ".", cwd=work, **GIT)
    run("git", "commit", "-q", "-m", "all", cwd=work, **GIT)
    return work


@pytest.fixture(scope="module")
def archive(server, meta, repository):
    run("make", "dist", f"PG_CONFIG={server.pg_config}", cwd=repository, **GIT)
    return f"{repository}/acemq-{meta['version']}.zip"


def test_meta_follows_the_spec(meta):
    assert faults_of(meta) == []


@pytest.mark.parametrize("path, value", [
    (["name"], None), (["name"], "a/b"), (["version"], "0.1"), (["abstract"], ""), (["maintainer"], []),
    (["license"], "mine"), (["provides"], {}), (["provides", "acemq", "file"], None),
    (["provides", "acemq", "version"], "1"), (["prereqs", "runtime", "requires", "PostgreSQL"], "fifteen"),
    (["prereqs", "sometimes"], {}), (["meta-spec", "version"], "2.0.0"), (["tags"], ["a/b"]), (["colour"], "green")])
def test_the_check_of_the_spec_sees_faults(meta, path, value):
    broken = copy.deepcopy(meta)
    place = broken
    for key in path[:-1]:
        place = place[key]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    assert faults_of(broken) != []


def test_what_is_in_the_archive(archive, meta, repository):
    """One directory with the name that PGXN wants, every committed file, and those that META.json names."""
    top = f"{meta['name']}-{meta['version']}/"
    with zipfile.ZipFile(archive) as opened:
        assert opened.testzip() is None
        names = {name for name in opened.namelist() if not name.endswith("/")}
    assert all(name.startswith(top) for name in names)
    committed = {top + name for name in run("git", "ls-files", cwd=repository, **GIT).splitlines()}
    provided = meta["provides"]["acemq"]
    assert names == committed | {top + provided["file"]}
    assert {top + "META.json", top + "README.md", top + "LICENSE", top + provided["docfile"]} <= names


def test_only_what_is_committed(server, archive, repository):
    """A change that is not committed would be missing, so there is no archive then."""
    before = os.stat(archive).st_mtime_ns
    with open(f"{repository}/README.md", "a", encoding="utf-8") as readme:
        readme.write("\n")
    try:
        assert "commit first" in run("make", "dist", f"PG_CONFIG={server.pg_config}", cwd=repository, code=2, **GIT)
    finally:
        run("git", "checkout", "-q", "README.md", cwd=repository, **GIT)
    assert os.stat(archive).st_mtime_ns == before


def test_builds_installs_and_checks_from_itself(server, archive, meta):
    """With nothing of this tree: no object files, no installed library."""
    work = processes.new_dir("unpacked", mode=0o755)
    run("unzip", "-q", archive, cwd=work)
    source = f"{work}/{meta['name']}-{meta['version']}"
    server.remove_acemq()
    run("make", "-s", "-j2", "with_llvm=no", f"PG_CONFIG={server.pg_config}", cwd=source)
    run("make", "-s", "install", "with_llvm=no", f"PG_CONFIG={server.pg_config}", cwd=source)
    assert os.path.exists(server.library) and os.path.exists(f"{server.extensions}/acemq--{meta['version']}.sql")
    said = run(sys.executable, f"{source}/test/lib/serve.py", "make", "-C", source, "installcheck",
               f"PG_CONFIG={server.pg_config}", cwd=source, PG_CONFIG=server.pg_config)
    assert "outbox_add" in said
