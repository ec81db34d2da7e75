"""Row security, and triggers that fail or come too late: what callers may see does not matter to us, the owner's own rules do, nothing is lost."""

import contextlib

import psycopg2
import pytest

from checks import await_until
from test_attacks import given_away  # noqa: F401  (a fixture)


def as_owner(db, statement):
    with contextlib.closing(db.connect(autocommit=True, user="table_owner")) as session:
        session.cursor().execute("SET client_min_messages = warning; " + statement)


def test_row_security_does_not_concern_callers(db, queue):
    """Policies that let nobody see or add a row are for those who come to the table themselves, not through us."""
    db.sql("CREATE ROLE fenced_in LOGIN")
    try:
        for duty in ("producer", "operator", "stores"):
            db.sql("SELECT acemq.grant_access('fenced_in', %s)", (duty,))
        for table in ("outbox", "idempotency", "schema_registry", "claim_check"):
            db.sql(f"ALTER TABLE acemq.{table} ENABLE ROW LEVEL SECURITY;"
                   f" CREATE POLICY p ON acemq.{table} USING (false) WITH CHECK (false)")
        with contextlib.closing(db.connect(autocommit=True, user="fenced_in")) as session, session.cursor() as cursor:
            cursor.execute("SELECT acemq.outbox_add('orders', 'k', '1'), acemq.schedule_in('1 h', 'orders', 'k', '1', message_id => 'm')")
            assert db.vhost.get(queue).body == b"1"
            cursor.execute("SELECT message_id FROM acemq.outbox_pending WHERE message_id = 'm'")
            assert cursor.fetchall() == [("m",)]
            cursor.execute("SELECT acemq.outbox_cancel('m'), acemq.idempotency_claim('k'), (acemq.schema_register('s', 'avro', '1')).id,"
                           " acemq.claim_check_get(acemq.claim_check_put('\\x01'))")
            cancelled, claim, schema, payload = cursor.fetchone()
            assert (cancelled, claim, schema, bytes(payload)) == (True, "claimed", 1, b"\x01")
            cursor.execute("SELECT acemq.idempotency_claim('k'), (acemq.schema_latest('s')).id")
            assert cursor.fetchone() == ("in_progress", 1)
    finally:
        db.sql("DROP OWNED BY fenced_in; DROP ROLE fenced_in")


def test_a_policy_that_the_owner_has_put_on_himself(given_away, queue):
    """The row that it refuses is refused at the call, and what it lets through is sent."""
    db = given_away
    as_owner(db, "ALTER TABLE acemq.outbox ENABLE ROW LEVEL SECURITY; ALTER TABLE acemq.outbox FORCE ROW LEVEL SECURITY;"
                 " CREATE POLICY p ON acemq.outbox USING (routing_key <> 'secret') WITH CHECK (routing_key <> 'secret')")
    with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="row-level security"):
        db.sql("SELECT acemq.outbox_add('orders', 'secret', '1')")
    db.sql("SELECT acemq.outbox_add('orders', 'k', '2')")
    assert db.vhost.get(queue).body == b"2"
    assert db.value("SELECT acemq.outbox_sweep('10 s')") in (0, 1)


def test_a_deferred_trigger_is_refused_at_the_call(given_away, queue):
    """It would run at the end of the transaction, with the rights of whoever ends it: of a superuser, say."""
    db = given_away
    db.sql("CREATE FUNCTION public.late() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    as_owner(db, "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON acemq.outbox DEFERRABLE INITIALLY DEFERRED"
                 " FOR EACH ROW EXECUTE FUNCTION public.late()")
    with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="security-restricted"):
        db.sql("SELECT acemq.outbox_add('orders', 'k', '1')")
    assert db.value("SELECT count(*) FROM acemq.outbox") == 0


@pytest.mark.parametrize("body, words", (("RAISE EXCEPTION ''no'';", "no"),
                                         ("RETURN NULL;", "a trigger has kept the published row")))
def test_a_trigger_that_fails(given_away, queue, body, words):
    """The relay cannot take the row away: it says so, waits until the owner has mended it, and sends nothing twice."""
    db = given_away
    db.sql(f"CREATE FUNCTION public.fail() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN {body} END'")
    as_owner(db, "CREATE TRIGGER fail BEFORE DELETE ON acemq.outbox FOR EACH ROW EXECUTE FUNCTION public.fail()")
    mark = db.cluster.log_mark()
    ids = {db.value("SELECT acemq.outbox_add('orders', 'k', '1')")}
    await_until(lambda: (db.status()["last_error"] or "").startswith(f"table acemq.outbox: {words}"), 20,
                "the relay has met the trigger")
    await_until(lambda: db.cluster.log_since(mark).count(f"can neither be read nor removed: {words}") >= 2, 20,
                "it has met it again")
    ids.add(db.value("SELECT acemq.outbox_add('orders', 'k', '2')"))
    as_owner(db, "DROP TRIGGER fail ON acemq.outbox")
    await_until(lambda: db.value("SELECT count(*) FROM acemq.outbox") == 0, 60, "the rows are gone")
    messages = [message.properties.message_id for message in db.vhost.drain(queue)]
    assert set(messages) == ids and len(messages) == 2
    assert "terminating any other active server processes" not in db.cluster.log_since(mark)
    assert "acemq worker  ERROR" not in db.cluster.log_since(mark)