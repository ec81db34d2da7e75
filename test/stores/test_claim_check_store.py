"""The claim-check store where one session of a database in UTF-8 is not enough: other encodings, two-phase commit, a standby, bulk."""

import contextlib
import hashlib
import os

import psycopg2
import pytest

from checks import await_until
from cluster import Cluster

UUID = r"^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"


@pytest.fixture
def store(cluster):
    with cluster.database("claim_check") as database:
        yield database


def answer(cursor, query, params=None):
    cursor.execute(query, params)
    ((value,),) = cursor.fetchall()
    return bytes(value) if isinstance(value, memoryview) else value


@pytest.mark.parametrize("encoding", ["LATIN1", "EUC_JP", "SQL_ASCII"])
def test_other_encodings(cluster, encoding):
    """Bytes come back as they are; a body counts, and is stored, in UTF-8."""
    with cluster.encoded_database("in_encoding", encoding) as cursor:
        key = answer(cursor, "SELECT acemq.claim_check_put(%s)", (bytes(range(256)),))
        body = b"\xac\x01\x01" + key.encode("ascii")
        assert answer(cursor, "SELECT acemq.claim_check_decode(%s)", (body,)) == bytes(range(256))
        assert answer(cursor, "SELECT acemq.claim_check_key(%s)", (body,)) == key
        assert answer(cursor, "SELECT acemq.claim_check_get('not-held')") is None
        with pytest.raises(psycopg2.errors.InvalidParameterValue):
            answer(cursor, "SELECT acemq.claim_check_get('\u00e9')")

        cursor.execute("SET acemq.claim_check_threshold = 100")
        for count in (49, 50):
            text = "\u00e9" * count
            cursor.execute("SELECT acemq.outbox_add('e', %s, %s, content_type => 'text/plain')", (str(count), text))
            sent = answer(cursor, "SELECT body FROM acemq.outbox WHERE routing_key = %s", (str(count),))
            assert (sent == text.encode()) == (count == 49)
            assert answer(cursor, "SELECT acemq.claim_check_decode(%s)", (sent,)) == text.encode()
        assert answer(cursor, "SELECT acemq.claim_check_purge('0')") == 1, "the message's payload is kept"


@pytest.mark.parametrize("end, held", [("COMMIT PREPARED", b"payload"), ("ROLLBACK PREPARED", None)])
def test_two_phases(store, end, held):
    """Message and payload come, or do not come, together, also after a restart."""
    writer = store.connect(autocommit=True)
    with contextlib.closing(writer), writer.cursor() as cursor:
        cursor.execute("SET acemq.claim_check_threshold = 0")
        cursor.execute("BEGIN")
        key = answer(cursor, "SELECT acemq.claim_check_put('payload')")
        cursor.execute("SELECT acemq.outbox_add('e', 'k', '1')")
        cursor.execute("PREPARE TRANSACTION 'claim_check'")
    assert store.value("SELECT acemq.claim_check_get(%s)", (key,)) is None
    assert store.value("SELECT acemq.claim_check_purge('0')") == 0
    store.cluster.restart()
    store.sql(f"{end} 'claim_check'")
    payload = store.value("SELECT acemq.claim_check_get(%s)", (key,))
    assert (payload and bytes(payload)) == held
    bodies = [bytes(body) for (body,) in store.sql("SELECT acemq.claim_check_decode(body) FROM acemq.outbox")]
    assert bodies == ([b"1"] if held else [])
    assert store.value("SELECT count(*) FROM acemq.claim_check") == (2 if held else 0)


def test_standby(store):
    """A standby reads what has arrived there, and writes nothing."""
    large = os.urandom(300_000)
    key = store.value("SELECT acemq.claim_check_put(%s)", (large,))
    body = b"\xac\x01\x01" + key.encode("ascii")
    standby = Cluster()
    try:
        standby.copy_of(store.cluster)
        with contextlib.closing(standby.connect(store.name)) as connection, connection.cursor() as cursor:
            await_until(lambda: answer(cursor, "SELECT acemq.claim_check_get(%s)", (key,)), what="the payload is there")
            assert answer(cursor, "SELECT acemq.claim_check_decode(%s)", (body,)) == large
            assert answer(cursor, "SELECT acemq.claim_check_key(%s)", (body,)) == key
            assert answer(cursor, "SELECT acemq.claim_check_encode('x')") == b"\xac\x01\x00x"
            for call in ("put('')", "encode('', 0)", f"delete('{key}')", "purge('0')"):
                with pytest.raises(psycopg2.errors.ReadOnlySqlTransaction):
                    answer(cursor, f"SELECT acemq.claim_check_{call}")
    finally:
        standby.destroy()


def test_large_payload(store, long_run):
    """Over every limit of a message; more of it with --long."""
    size = 200_000_000 if long_run else 40_000_000
    digest = store.value("SELECT sha256(convert_to(repeat('0123456789', %s), 'UTF8'))", (size // 10,))
    store.sql("SET acemq.claim_check_threshold = '1MB'")
    for payload in ("convert_to({}, 'UTF8')", "to_json({})"):
        store.sql(f"SELECT acemq.outbox_add('e', 'k', {payload.format('repeat(%s, %s)')})", ("0123456789", size // 10))
    assert store.sql("SELECT length(body), sha256(acemq.claim_check_decode(body)) = %s FROM acemq.outbox ORDER BY id",
                     (digest,)) == [(39, True), (39, False)]
    assert store.sql("SELECT length(payload) - %s FROM acemq.claim_check ORDER BY created_at", (size,)) == [(0,), (2,)]
    assert store.value("SELECT sha256(substr(acemq.claim_check_decode(body), 2, %s)) = %s FROM acemq.outbox"
                       " ORDER BY id DESC LIMIT 1", (size, digest))


def test_many(store):
    """Keys of many sessions are all different, and a purge in bulk leaves what waiting messages refer to."""
    # Plans made while the tables are empty, and known to be, must not be used for what comes later: that takes minutes.
    for table in ("outbox", "claim_check"):
        store.sql(f"VACUUM ANALYZE acemq.{table}")
    store.sql("SELECT acemq.claim_check_purge('0') FROM generate_series(1, 10)")
    store.sql("SET statement_timeout = '60 s'")
    sessions = [store.connect(autocommit=True) for _ in range(4)]
    for number, session in enumerate(sessions):
        with session.cursor() as cursor:
            cursor.execute("SET acemq.claim_check_threshold = 10")
            cursor.execute("SELECT acemq.outbox_add('e', n::text, to_json(repeat('x', n))), acemq.claim_check_put(%s)"
                           " FROM generate_series(10, 5009) n", (str(number).encode(),))
    assert store.value("SELECT count(DISTINCT acemq.claim_check_key(body)) FROM acemq.outbox") == 20000
    assert store.value(f"SELECT bool_and(key ~ '{UUID}') FROM acemq.claim_check")
    assert store.value("SELECT acemq.claim_check_purge('0')") == 20000
    assert store.value("SELECT bool_and(acemq.claim_check_decode(body) = convert_to('\"' || repeat('x', routing_key::int)"
                       " || '\"', 'UTF8')) FROM acemq.outbox")
    store.sql("DELETE FROM acemq.outbox WHERE id % 2 = 0")
    assert store.value("SELECT acemq.claim_check_purge('0')") == 10000
    assert store.value("SELECT count(acemq.claim_check_decode(body)) FROM acemq.outbox") == 10000


def test_same_rules_as_a_reader_of_ours(store):
    """Random bodies, framed or not, are read as the rules say by a reader written from them."""
    rules = {b"\xac\x01\x00": lambda rest: rest, b"\xac\x01\x01": lambda rest: None}
    bodies = [prefix + os.urandom(length) for prefix in (b"", b"\xac", b"\xac\x01", *rules) for length in range(0, 200, 7)]
    for body in bodies:
        expected = rules[body[:3]](body[3:]) if body[:3] in rules else body
        try:
            found = bytes(store.value("SELECT acemq.claim_check_decode(%s)", (body,)))
        except psycopg2.Error as error:
            assert error.pgcode == "AQ002"
            found = None
        assert found == expected, body.hex()


def test_digest_of_a_compressed_payload(store):
    """What lies compressed in a table of the application's is stored without a detour, and is the same."""
    store.sql("CREATE TABLE reports (report bytea)")
    store.sql("INSERT INTO reports VALUES (convert_to(repeat('report ', 1000000), 'UTF8'))")
    body = store.value("SELECT acemq.claim_check_encode(report) FROM reports")
    assert len(body) == 39
    store.sql("DROP TABLE reports")
    payload = bytes(store.value("SELECT acemq.claim_check_decode(%s)", (body,)))
    assert hashlib.sha256(payload).digest() == hashlib.sha256(b"report " * 1000000).digest()
