"""The schema registry under many sessions, in other encodings, on a standby, beside a library, and over a dump."""

import collections
import contextlib
import hashlib
import os
import random
import threading

import psycopg2
import pytest

from cluster import Cluster, fetch
from processes import new_dir

SESSIONS = 64
ROOMY = {"max_connections": SESSIONS + 20, "max_prepared_transactions": SESSIONS}
SUBJECTS = ["orders", "customers", "invoices", "parcels"]

REGISTER = "SELECT id, schema_version FROM acemq.schema_register(%s, 'avro', %s)"
# What the AceMQ library for Ruby runs, with its table named schema_registry and its search_path acemq.
LIBRARY = """
UPDATE schema_registry_seq SET last_id = last_id + 1 WHERE only_row = 1;
INSERT INTO schema_registry (id, subject, schema_version, format, definition, fingerprint, registered_at)
SELECT last_id, %(subject)s, (SELECT count(*) + 1 FROM schema_registry WHERE subject = %(subject)s), 'avro', %(definition)s,
       %(fingerprint)s, now() FROM schema_registry_seq WHERE only_row = 1 RETURNING id;
"""


def fingerprint(definition):
    return hashlib.sha256(definition.encode("utf-8")).hexdigest()


@pytest.fixture(scope="module")
def roomy():
    """A cluster that takes all the sessions."""
    with Cluster(ROOMY) as cluster:
        yield cluster


class Session(threading.Thread):
    """Registers its definitions, some of them after rollbacks, and notes the answers that were committed."""

    def __init__(self, connection, number, wanted):
        super().__init__(daemon=True)
        self.connection, self.number, self.wanted = connection, number, wanted
        self.random = random.Random(number)
        self.answers = {}
        self.error = None

    def run(self):
        try:
            with contextlib.closing(self.connection):
                if self.number % 2 == 0:
                    self._run("PREPARE register (text, text) AS " + REGISTER.replace("%s", "$%d") % (1, 2))
                while self.wanted:
                    self._transaction([self.wanted.pop() for _ in range(min(len(self.wanted), self.random.randint(1, 3)))])
        except BaseException as error:  # pylint: disable=broad-except
            self.error = error

    def _run(self, statement, parameters=None):
        return fetch(self.connection, statement, parameters)

    def _register(self, schema):
        statement = "EXECUTE register (%s, %s)" if self.number % 2 == 0 else REGISTER
        ((id, version),) = self._run(statement, schema)
        return id, version

    def _transaction(self, schemas):
        ending = self.random.choice(["COMMIT", "COMMIT", "ROLLBACK", "PREPARE TRANSACTION"])
        answers = {}
        self._run("BEGIN")
        for schema in schemas:
            if self.random.random() < 0.3:
                self._run("SAVEPOINT s")
                self._register(schema)
                self._run(self.random.choice(["ROLLBACK TO s", "RELEASE s"]))
            answers[schema] = self._register(schema)
        if ending == "PREPARE TRANSACTION":
            self._run(f"PREPARE TRANSACTION 'session {self.number}'")
            self._run(f"COMMIT PREPARED 'session {self.number}'")
        else:
            self._run(ending)
        if ending == "ROLLBACK":
            self.wanted.extend(schemas)
        else:
            self.answers.update(answers)


def wanted_by(number, count):
    """Half of them are wanted by every session, in an order of its own."""
    shared = [(SUBJECTS[n % len(SUBJECTS)], f"shared {n}") for n in range(count // 2)]
    own = [(SUBJECTS[(number + n) % len(SUBJECTS)], f"own {number} {n}") for n in range(count - len(shared))]
    wanted = shared + own
    random.Random(-number).shuffle(wanted)
    return wanted


def test_many_sessions(roomy, long_run):
    """One id for one definition, whoever asks; no version is left out, no id is given twice, not even a deleted one."""
    count = 200 if long_run else 16
    with roomy.database("many", {"synchronous_commit": "off"}) as db:
        sessions = [Session(db.connect(autocommit=True), number, wanted_by(number, count)) for number in range(SESSIONS)]
        for session in sessions:
            session.start()
        for session in sessions:
            session.join()
        assert [session.error for session in sessions if session.error] == []

        answers = collections.defaultdict(set)
        for session in sessions:
            assert len(session.answers) == count
            for schema, answer in session.answers.items():
                answers[schema].add(answer)
        rows = db.sql("SELECT subject, definition, id, schema_version, fingerprint FROM acemq.schema_registry")
        assert {(subject, definition): {(id, version)} for subject, definition, id, version, _ in rows} == answers
        assert all(fingerprint(definition) == found for _, definition, _, _, found in rows)

        # Only what was committed has an id: there are no gaps either.
        total = count // 2 + SESSIONS * (count - count // 2)
        assert sorted(id for _, _, id, _, _ in rows) == list(range(1, total + 1))
        for subject in SUBJECTS:
            versions = [row[3] for row in sorted(rows, key=lambda row: row[2]) if row[0] == subject]
            assert versions == list(range(1, len(versions) + 1)), "versions follow ids"
        assert db.value("SELECT last_id FROM acemq.schema_registry_seq") == total

        ((subject, definition),) = db.sql("DELETE FROM acemq.schema_registry WHERE id = %s RETURNING subject, definition", (total,))
        assert db.sql(REGISTER, (subject, definition))[0][0] == total + 1


def test_library_beside(roomy):
    """An AceMQ library that writes the tables and the functions agree on ids, one after the other and at once."""
    roomy.sql("CREATE ROLE library LOGIN")
    try:
        with roomy.database("beside") as db:
            db.sql("SELECT acemq.grant_access('library', 'tables')")
            library = db.connect(autocommit=True, user="library", options="-c search_path=acemq")

            def by_library(subject, definition):
                return fetch(library, LIBRARY, {"subject": subject, "definition": definition,
                                                "fingerprint": fingerprint(definition)})[0][0]

            assert by_library("s", "a") == 1
            assert db.sql(REGISTER, ("s", "a")) == [(1, 1)]
            assert db.sql(REGISTER, ("s", "b")) == [(2, 2)]
            assert by_library("s", "c") == 3
            assert fetch(library, "SELECT id FROM schema_registry WHERE subject = 's' AND fingerprint = %s",
                         (fingerprint("b"),)) == [(2,)]

            ids = []
            thread = threading.Thread(target=lambda: ids.extend(by_library("s", f"library {n}") for n in range(100)))
            thread.start()
            ours = [db.sql(REGISTER, ("s", f"function {n}"))[0][0] for n in range(100)]
            thread.join()
            assert sorted(ids + ours) == list(range(4, 204))
            assert db.sql("SELECT array_agg(schema_version ORDER BY id) FROM acemq.schema_registry") == [([*range(1, 204)],)]
            db.sql("SELECT acemq.revoke_access('library', 'tables')")
    finally:
        roomy.sql("DROP ROLE library")


def other_encoding(cluster, name, encoding):
    cluster.sql(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'")
    cluster.sql("CREATE EXTENSION acemq", dbname=name)


@pytest.mark.parametrize("encoding", ["UTF8", "LATIN1", "EUC_JP", "SQL_ASCII"])
def test_encodings(roomy, encoding):
    """The fingerprint is that of the UTF-8 form, whatever the encoding of the database."""
    name = f"in_{encoding.lower()}"
    other_encoding(roomy, name, encoding)
    try:
        definition = '{"doc": "é 日本"}' if encoding != "LATIN1" else '{"doc": "für é"}'
        ((id, found, kept),) = roomy.sql("SELECT id, fingerprint, convert_to(definition, 'UTF8') FROM"
                                         " acemq.schema_register('s', 'f', convert_from(%s, 'UTF8'))",
                                         (definition.encode(),), dbname=name)
        assert found == fingerprint(definition)
        assert bytes(kept).decode() == definition
        assert roomy.sql("SELECT id FROM acemq.schema_latest('s')", dbname=name) == [(id,)]
    finally:
        roomy.sql(f"DROP DATABASE {name} WITH (FORCE)")


def test_not_utf8(roomy):
    """Where bytes have no meaning they have to be UTF-8 for there to be a fingerprint."""
    other_encoding(roomy, "bytes", "SQL_ASCII")
    try:
        with pytest.raises(psycopg2.errors.CharacterNotInRepertoire):
            roomy.sql(r"SELECT acemq.schema_register('s', 'f', E'\xe9')", dbname="bytes")
    finally:
        roomy.sql("DROP DATABASE bytes WITH (FORCE)")


def test_standby(roomy):
    """A standby answers for what is known, and takes nothing new."""
    with roomy.database("primary") as db:
        db.sql(REGISTER, ("s", "known"))
        standby = Cluster(ROOMY)
        try:
            standby.copy_of(roomy)
            assert standby.sql(REGISTER, ("s", "known"), dbname="primary") == [(1, 1)]
            assert standby.sql("SELECT id FROM acemq.schema_latest('s')", dbname="primary") == [(1,)]
            with pytest.raises(psycopg2.errors.ReadOnlySqlTransaction):
                standby.sql(REGISTER, ("s", "new"), dbname="primary")
        finally:
            standby.destroy()


def test_raced_from_outside(roomy):
    """Whoever always puts a row in the way is told about, not waited for without end."""
    with roomy.database("in_the_way") as db:
        db.sql("CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
        db.sql("CREATE TRIGGER swallow BEFORE INSERT ON acemq.schema_registry FOR EACH ROW EXECUTE FUNCTION swallow()")
        with pytest.raises(psycopg2.errors.SerializationFailure, match="could not add a schema of subject"):
            db.sql(REGISTER, ("s", "x"))
        with pytest.raises(psycopg2.errors.SerializationFailure, match="could not add a schema of subject"):
            db.sql("SELECT acemq.schema_import(1, 's', 'avro', 'x')")


# -- dump and restore of the registry -----------------------------------------


def where(cluster, dbname):
    return ["-h", cluster.sockets, "-p", str(cluster.port), "-U", "postgres", "-d", dbname]


@pytest.fixture(scope="module")
def dumped(roomy):
    """Four schemas, of which the last was deleted: the counter is above all ids."""
    with roomy.database("dumped") as db:
        for definition in ["a", "b", "c" * 10_000, "gone"]:
            db.sql(REGISTER, ("s", definition))
        db.sql("DELETE FROM acemq.schema_registry WHERE definition = 'gone'")
        yield db


TABLES = ["-t", "acemq.schema_registry", "-t", "acemq.schema_registry_seq"]


# `later`: how many ids were given out where the dump is restored; a whole dump goes into a database without the extension.
@pytest.mark.parametrize("options, later", [("-Fp", 0), ("-Fc", 0), ("-Fp --inserts", 0), ("-Fp --data-only", 0),
                                            ("-Fp --data-only", 10), ("-Fc --data-only", 0), ("-Fc --data-only", 10)])
def test_dump_and_restore(roomy, dumped, options, later):
    """Ids and versions come back, and the next id is above every one that was ever given out, there or here."""
    options = options.split()
    whole = "--data-only" not in options
    options += [] if whole else TABLES
    file = os.path.join(new_dir("dump", roomy.user), "registry")
    assert roomy.run("pg_dump", *where(roomy, dumped.name), "-f", file, *options) == ""
    with roomy.database("restored", extensions=[] if whole else ["acemq"]) as db:
        if later:
            db.sql("UPDATE acemq.schema_registry_seq SET last_id = %s", (later,))
        if "-Fc" in options:
            said = roomy.run("pg_restore", *where(roomy, db.name), "--exit-on-error", file)
        else:
            said = roomy.run("psql", *where(roomy, db.name), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", file)
        assert "ERROR" not in said and "error" not in said, said
        rows = "SELECT * FROM acemq.schema_registry ORDER BY id"
        assert db.sql(rows) == dumped.sql(rows)
        assert db.value("SELECT tgenabled FROM pg_trigger WHERE tgname = 'schema_registry_seq_insert'") == "A"
        assert db.sql(REGISTER, ("s", "b")) == [(2, 2)]
        assert db.sql(REGISTER, ("s", "gone")) == [(max(4, later) + 1, 4)]
        assert db.sql("SELECT count(*), max(last_id) FROM acemq.schema_registry_seq") == [(1, max(4, later) + 1)]


def test_export_and_import(roomy, dumped):
    """What schema_import() is for: the same ids in a registry that was set up again."""
    with roomy.database("imported") as db:
        for row in dumped.sql("SELECT id, subject, format, definition, schema_version, registered_at"
                              " FROM acemq.schema_registry ORDER BY id DESC"):
            assert db.sql("SELECT id, schema_version FROM acemq.schema_import(%s, %s, %s, %s, %s, %s)", row) == [(row[0], row[4])]
        rows = "SELECT * FROM acemq.schema_registry ORDER BY id"
        assert db.sql(rows) == dumped.sql(rows)
        assert db.sql(REGISTER, ("s", "new")) == [(4, 4)]
