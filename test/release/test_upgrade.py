"""However a database came to this version, its catalogs are those of a fresh one.

released/ keeps the install scripts of versions that were released, as they
were.  Each is installed and updated to this version.  That the comparison sees
a difference is shown with a pair of versions that is made up here.
"""

import os
import re
import shutil

import pytest

from catalog import differences, facts

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.join(HERE, "../..")
RELEASED = os.path.join(HERE, "released")
MADE_UP = "9999.0.0"

ADDITIONS = """
CREATE FUNCTION acemq.made_up(number integer DEFAULT 1) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT number';
COMMENT ON FUNCTION acemq.made_up(integer) IS 'a function';
REVOKE ALL ON FUNCTION acemq.made_up(integer) FROM PUBLIC;
CREATE TABLE acemq.made_up_table (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL CHECK (name <> ''), made_at timestamptz DEFAULT now());
COMMENT ON COLUMN acemq.made_up_table.name IS 'a column';
GRANT SELECT ON acemq.made_up_table TO pg_monitor;
CREATE INDEX made_up_index ON acemq.made_up_table (name) WHERE made_at IS NOT NULL;
CREATE VIEW acemq.made_up_view AS SELECT id FROM acemq.made_up_table;
SELECT pg_catalog.pg_extension_config_dump('acemq.made_up_table', '');
ALTER TABLE acemq.outbox ADD COLUMN made_up integer NOT NULL DEFAULT 0;
ALTER FUNCTION acemq.version() COST 7;
"""

# What somebody might forget or write otherwise in the upgrade script: text, what stands there instead.
FAULTS = [
    ("REVOKE ALL ON FUNCTION acemq.made_up(integer) FROM PUBLIC;", ""),
    ("COMMENT ON FUNCTION acemq.made_up(integer) IS 'a function';", ""),
    ("COMMENT ON COLUMN acemq.made_up_table.name IS 'a column';", ""),
    ("GRANT SELECT ON acemq.made_up_table TO pg_monitor;", ""),
    ("SELECT pg_catalog.pg_extension_config_dump('acemq.made_up_table', '');", ""),
    ("'acemq.made_up_table', ''", "'acemq.made_up_table', 'WHERE id > 1'"),
    ("ALTER FUNCTION acemq.version() COST 7;", ""),
    ("number integer DEFAULT 1", "number integer DEFAULT 2"),
    ("IMMUTABLE PARALLEL SAFE", "STABLE PARALLEL SAFE"),
    ("'SELECT number'", "'SELECT number + 0'"),
    ("name text NOT NULL CHECK (name <> ''), made_at timestamptz", "made_at timestamptz DEFAULT now(), name text NOT NULL CHECK (name <> ''), other timestamptz"),
    (" CHECK (name <> '')", ""),
    ("GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "PRIMARY KEY"),
    (" WHERE made_at IS NOT NULL", ""),
    ("AS SELECT id FROM acemq.made_up_table", "AS SELECT id FROM acemq.made_up_table WHERE true"),
    ("made_up integer NOT NULL DEFAULT 0", "made_up integer DEFAULT 0"),
    ("made_up integer NOT NULL DEFAULT 0", "made_up bigint NOT NULL DEFAULT 0"),
]


def this_version():
    with open(os.path.join(TOP, "acemq.control"), encoding="utf-8") as control:
        return re.search(r"default_version *= *'(.*)'", control.read()).group(1)


def released_versions():
    if not os.path.isdir(RELEASED):
        return []
    return sorted(re.fullmatch(r"acemq--(.*)\.sql", name).group(1) for name in os.listdir(RELEASED))


class Installation:
    """Databases of one cluster, the extension put there in this way or that."""

    def __init__(self, server, cluster):
        self.server = server
        self.cluster = cluster
        self.made = 0

    def script(self, versions, text):
        with open(f"{self.server.extensions}/acemq--{versions}.sql", "w", encoding="utf-8") as script:
            script.write(text)

    def read(self, versions):
        with open(f"{self.server.extensions}/acemq--{versions}.sql", encoding="utf-8") as script:
            return script.read()

    def facts(self, first, then=None):
        """Of a database where `first` was installed and updated to `then`."""
        self.made += 1
        with self.cluster.database(f"upgrade{self.made}", extensions=()) as db:
            db.sql(f"CREATE EXTENSION acemq VERSION '{first}'")
            if then:
                db.sql(f"ALTER EXTENSION acemq UPDATE TO '{then}'")
            return facts(db)


@pytest.fixture(scope="module")
def installation(server):
    with server.cluster(preload=None) as cluster:
        yield Installation(server, cluster)


@pytest.fixture(scope="module")
def made_up(installation):
    """A next version, and the facts of a fresh installation of it."""
    installation.script(MADE_UP, installation.read(this_version()) + ADDITIONS)
    return installation.facts(MADE_UP)


def test_equal_and_complete(installation, made_up):
    """The right upgrade script leads to the same, and what was looked at is not little."""
    installation.script(f"{this_version()}--{MADE_UP}", ADDITIONS)
    assert differences(made_up, installation.facts(this_version(), MADE_UP)) == []
    kinds = {fact[0] for fact in made_up}
    assert kinds >= {"extension", "member", "comment", "dumped table", "function", "relation", "column", "constraint",
                     "index", "sequence", "schema", "rights at first", "dependency"}


@pytest.mark.parametrize("right, wrong", FAULTS, ids=range(len(FAULTS)))
def test_a_fault_is_seen(installation, made_up, right, wrong):
    assert right in ADDITIONS
    installation.script(f"{this_version()}--{MADE_UP}", ADDITIONS.replace(right, wrong))
    assert differences(made_up, installation.facts(this_version(), MADE_UP)) != []


def test_every_release_is_kept():
    """A version that CHANGELOG.md lists below the present one was released, so its install script is here and a way from it."""
    with open(os.path.join(TOP, "CHANGELOG.md"), encoding="utf-8") as changes:
        versions = re.findall(r"^## (\S+)", changes.read(), re.M)
    assert versions[0] == this_version()
    assert sorted(versions[1:]) == released_versions()


def test_from_every_release(installation):
    """There is a way from each, and it ends where a fresh installation begins."""
    fresh = installation.facts(this_version())
    assert ("extension", "acemq", this_version()) in {fact[:3] for fact in fresh}
    for version in released_versions():
        shutil.copy(f"{RELEASED}/acemq--{version}.sql", installation.server.extensions)
        assert differences(fresh, installation.facts(version, this_version())) == [], f"from {version}"
