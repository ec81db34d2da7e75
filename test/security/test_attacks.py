"""What others put in the way of our statements does not run, and what the owner of a table puts on it runs as the owner."""

import contextlib

import psycopg2
import pytest

from checks import await_until

# A twin of every function and operator of the server that can have one: whoever calls it writes a line and fails.
SHADOWS = """
DO $do$
DECLARE
    f record;
BEGIN
    FOR f IN SELECT p.proname, p.proargtypes::oid[] AS args, p.prorettype::regtype AS ret
             FROM pg_catalog.pg_proc p
             WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' AND NOT p.proretset
             AND NOT EXISTS (SELECT FROM pg_catalog.pg_type t WHERE t.oid = ANY (p.proargtypes::oid[] || p.prorettype)
                             AND (t.typtype = 'p' OR t.typname IN ('internal', 'cstring')))
    LOOP
        EXECUTE format('CREATE FUNCTION evil.%I(%s) RETURNS %s LANGUAGE plpgsql AS $f$BEGIN RAISE EXCEPTION ''evil %s''; END$f$',
                       f.proname, (SELECT string_agg(format_type(a, NULL), ', ' ORDER BY o) FROM unnest(f.args) WITH ORDINALITY u (a, o)),
                       f.ret, f.proname);
    END LOOP;
    FOR f IN SELECT o.oprname, format_type(o.oprleft, NULL) AS l, format_type(o.oprright, NULL) AS r, p.proname
             FROM pg_catalog.pg_operator o JOIN pg_catalog.pg_proc p ON p.oid = o.oprcode
             WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprleft <> 0
             AND EXISTS (SELECT FROM pg_catalog.pg_proc e WHERE e.pronamespace = 'evil'::regnamespace AND e.proname = p.proname
                         AND e.proargtypes = p.proargtypes)
    LOOP
        EXECUTE format('CREATE OPERATOR evil.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = evil.%I)', f.oprname, f.l, f.r, f.proname);
    END LOOP;
END$do$
"""

# Every function that reads or writes something, with arguments that make it do so.
CALLS = [
    "SELECT acemq.outbox_add('orders', 'k', '1', message_id => 'a1', headers => '{\"n\": 1}', ordering_key => 'o')",
    "SELECT acemq.outbox_add('orders', 'k', '1'::json), acemq.outbox_add('orders', 'k', '1'::jsonb),"
    " acemq.outbox_add('orders', 'k', '\\x01'::bytea)",
    "SELECT acemq.schedule_in('1 h', 'orders', 'k', '1', message_id => 'a2'), acemq.schedule_at('2026-01-01', 'orders', 'k', '1')",
    "SELECT acemq.outbox_cancel('a2'), acemq.outbox_release('x'), acemq.outbox_release_all('x'), acemq.outbox_discard('x', 'y')",
    "SELECT acemq.outbox_purge('1 day'), acemq.outbox_sweep('5 s')",
    "SELECT acemq.relay_pause()", "SELECT * FROM acemq.outbox_claim()",
    "SELECT acemq.outbox_mark_published(1), acemq.outbox_mark_failed(1, 'x')", "SELECT acemq.relay_resume()",
    "SELECT acemq.idempotency_claim('e', '1 h'), acemq.idempotency_first_time('e'), acemq.idempotency_confirm('e')",
    "SELECT acemq.idempotency_confirmed('e'), acemq.idempotency_forget('e'), acemq.idempotency_purge()",
    "SELECT acemq.schema_register('s', 'avro', '\"x\"'), acemq.schema_import(77, 's', 'avro', '\"y\"')",
    "SELECT acemq.schema_latest('s'), acemq.schema_by_id(77), acemq.schema_versions('s')",
    "SELECT acemq.claim_check_decode(acemq.claim_check_encode('\\x01', 0)), acemq.claim_check_key(acemq.claim_check_encode('\\x02', 0))",
    "SELECT acemq.claim_check_get(acemq.claim_check_put('\\x03')), acemq.claim_check_delete(acemq.claim_check_put('\\x03'))",
    "SELECT acemq.claim_check_purge('1 h'), acemq.partition('k', 3), acemq.partitioned_routing_key('b', 'k', 3), acemq.version()",
    "SELECT * FROM acemq.status", "SELECT * FROM acemq.metrics", "SELECT * FROM acemq.outbox_pending", "SELECT * FROM acemq.outbox_retired",
    "SELECT * FROM acemq.doctor()", "SELECT acemq.grant_access('attacker', 'tables'), acemq.revoke_access('attacker', 'tables')",
]


def test_shadows_of_everything(db, queue):
    """All names that our statements use exist in a schema that comes first: for callers, and for the worker by ALTER DATABASE."""
    db.sql("CREATE ROLE attacker LOGIN")
    try:
        for duty in ("producer", "stores", "operator"):
            db.sql("SELECT acemq.grant_access('attacker', %s)", (duty,))
        db.sql("CREATE SCHEMA evil AUTHORIZATION attacker")
        with contextlib.closing(db.connect(autocommit=True, user="attacker")) as session:
            session.cursor().execute(SHADOWS)
        made = db.value("SELECT count(*) FROM pg_proc WHERE pronamespace = 'evil'::regnamespace")
        assert made > 1000
        db.sql(f'ALTER DATABASE "{db.name}" SET search_path = evil, pg_catalog')
        db.sql("SELECT acemq.worker_restart()")
        mark = db.cluster.log_mark()

        for user in ("attacker", "postgres"):
            with contextlib.closing(db.connect(autocommit=True, user=user)) as session, session.cursor() as cursor:
                shadow_by_temporary_tables(cursor)
                cursor.execute("SET search_path = evil, pg_temp, pg_catalog")
                with pytest.raises(psycopg2.Error, match="evil"):
                    cursor.execute("SELECT length('x'::text)")
                for call in CALLS:
                    if user == "attacker" and "grant_access" in call:
                        continue
                    cursor.execute(call)
        with contextlib.closing(db.connect(autocommit=True, options="-c search_path=pg_catalog")) as session:
            session.cursor().execute("SELECT acemq.outbox_sweep('20 s')")
        assert len(db.vhost.drain(queue)) >= 10
        assert "evil" not in db.cluster.log_since(mark).replace("evil length", "").replace("SET search_path = evil", "")
    finally:
        with contextlib.closing(db.cluster.connect(db.name, options="-c search_path=pg_catalog")) as session:
            session.cursor().execute("DROP SCHEMA IF EXISTS evil CASCADE")
            session.cursor().execute("DROP OWNED BY attacker; DROP ROLE attacker")


def shadow_by_temporary_tables(cursor):
    """Every table of ours and of the server's, as a temporary one of the same name."""
    cursor.execute("""
        SET search_path = pg_catalog;
        DO $$DECLARE r record; BEGIN
            FOR r IN SELECT DISTINCT relname FROM pg_class WHERE relkind IN ('r', 'v') AND relnamespace IN
                     ('acemq'::regnamespace, 'pg_catalog'::regnamespace)
            LOOP EXECUTE format('CREATE TEMP TABLE %I (evil int)', r.relname); END LOOP;
        END$$""")


# -- what the owner of the table puts on it ------------------------------------

WHO_RUNS_IT = """
CREATE TABLE public.seen (what text, who text, problem text, query text);
GRANT ALL ON public.seen TO table_owner;
CREATE FUNCTION public.really_note(what text) RETURNS boolean LANGUAGE plpgsql AS $f$
DECLARE problem text := 'none';
BEGIN
    BEGIN
        EXECUTE 'ALTER ROLE table_owner SUPERUSER';
    EXCEPTION WHEN OTHERS THEN
        problem := SQLSTATE;
    END;
    INSERT INTO public.seen VALUES (what, current_user, problem, current_query());
    RETURN true;
END$f$;
-- Said to be harmless, so that an index takes it.
CREATE FUNCTION public.note(what text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS
$f$BEGIN RETURN public.really_note(what); END$f$;
CREATE FUNCTION public.note_trigger() RETURNS trigger LANGUAGE plpgsql AS $f$
BEGIN
    PERFORM public.note(TG_NAME);
    RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
END$f$;
"""

# What fires for a message that is added, refused once by the broker, and sent.
PUT_ON = {
    "before insert": "CREATE TRIGGER \"before insert\" BEFORE INSERT ON acemq.outbox FOR EACH ROW EXECUTE FUNCTION public.note_trigger()",
    "after insert": "CREATE TRIGGER \"after insert\" AFTER INSERT ON acemq.outbox FOR EACH ROW EXECUTE FUNCTION public.note_trigger()",
    "statement": "CREATE TRIGGER \"statement\" AFTER INSERT ON acemq.outbox EXECUTE FUNCTION public.note_trigger()",
    "after update": "CREATE TRIGGER \"after update\" AFTER UPDATE ON acemq.outbox FOR EACH ROW EXECUTE FUNCTION public.note_trigger()",
    "before delete": "CREATE TRIGGER \"before delete\" BEFORE DELETE ON acemq.outbox FOR EACH ROW EXECUTE FUNCTION public.note_trigger()",
    "after delete": "CREATE TRIGGER \"after delete\" AFTER DELETE ON acemq.outbox FOR EACH ROW EXECUTE FUNCTION public.note_trigger()",
    "index": "CREATE INDEX ON acemq.outbox (public.note('index'))",
    "index predicate": "CREATE INDEX ON acemq.outbox (id) WHERE public.note('index predicate')",
    "check": "ALTER TABLE acemq.outbox ADD CHECK (public.note('check'))",
    "default": "ALTER TABLE acemq.outbox ADD COLUMN extra boolean; ALTER TABLE acemq.outbox ALTER extra SET DEFAULT public.note('default')",
    "policy": "ALTER TABLE acemq.outbox ENABLE ROW LEVEL SECURITY; ALTER TABLE acemq.outbox FORCE ROW LEVEL SECURITY;"
              " CREATE POLICY p ON acemq.outbox USING (public.note('policy')) WITH CHECK (public.note('policy'))",
}


@pytest.fixture
def given_away(db, queue):
    """The outbox belongs to a role without any rights."""
    db.sql("CREATE ROLE table_owner LOGIN")
    db.sql("GRANT USAGE ON SCHEMA acemq, public TO table_owner")
    db.sql("GRANT CREATE ON SCHEMA acemq TO table_owner")  # for an index
    db.sql("ALTER TABLE acemq.outbox OWNER TO table_owner")
    yield db
    db.sql("ALTER TABLE acemq.outbox DISABLE TRIGGER ALL")
    db.sql("REASSIGN OWNED BY table_owner TO postgres")
    db.sql("DROP OWNED BY table_owner")
    db.sql("DROP ROLE table_owner")


@pytest.mark.parametrize("what", PUT_ON)
def test_runs_as_the_owner(given_away, queue, what):
    """Called by a superuser and by the worker: it is the owner all the same, and cannot make itself more."""
    db = given_away
    db.sql(WHO_RUNS_IT)
    with contextlib.closing(db.connect(autocommit=True, user="table_owner")) as session:
        session.cursor().execute("SET client_min_messages = warning; " + PUT_ON[what])
    db.sql("TRUNCATE public.seen")
    db.sql("SELECT acemq.outbox_add('orders', 'k', '1')")
    db.sql("SELECT acemq.outbox_add('missing', 'k', '1', message_id => 'fails')")
    assert db.vhost.get(queue).body == b"1"
    await_until(lambda: db.status()["failed"] > 0, 10, lambda: db.status())
    db.vhost.declare("found", exchange="missing", binding="#")
    db.sql("SELECT acemq.outbox_release('fails')")
    assert db.vhost.get("found").body == b"1"
    # (A superuser's own look at the table would run the owner's index: that is the server's way, and none of ours.)
    await_until(lambda: db.status()["pending"] == 0, 10, lambda: db.status())
    db.sql("SELECT acemq.outbox_sweep('5 s'), acemq.outbox_purge('1 s'), acemq.outbox_cancel('x'), acemq.outbox_release_all()")
    seen = db.sql("SELECT DISTINCT who, problem, query FROM public.seen")
    assert seen, "nothing ran: the test has shown nothing"
    assert {(who, problem) for who, problem, _ in seen} == {("table_owner", "42501")}, seen
    assert db.value("SELECT rolsuper FROM pg_roles WHERE rolname = 'table_owner'") is False


STORES = {"idempotency": "message_id", "schema_registry": "subject", "claim_check": "key"}


def test_the_stores_run_it_as_the_owner_too(given_away):
    """Triggers, checks, defaults and indexes on the tables of the stores, and a superuser who calls every function of theirs."""
    db = given_away
    db.sql(WHO_RUNS_IT)
    for table, column in {**STORES, "schema_registry_seq": "last_id"}.items():
        db.sql(f"ALTER TABLE acemq.{table} OWNER TO table_owner")
        with contextlib.closing(db.connect(autocommit=True, user="table_owner")) as session:
            session.cursor().execute(f"""
                CREATE INDEX ON acemq.{table} (public.note('{table} index'));
                CREATE INDEX ON acemq.{table} ({column}) WHERE public.note('{table} predicate');
                ALTER TABLE acemq.{table} ADD CHECK (public.note('{table} check'));""")
            if table != "schema_registry_seq":
                session.cursor().execute(f"""
                CREATE TRIGGER "{table} trigger" BEFORE INSERT OR UPDATE OR DELETE ON acemq.{table} FOR EACH ROW
                EXECUTE FUNCTION public.note_trigger()""")
    # So that every session reads them anew.
    db.sql("ALTER ROLE table_owner NOSUPERUSER; TRUNCATE public.seen")
    with contextlib.closing(db.connect(autocommit=True)) as session, session.cursor() as cursor:
        for call in CALLS:
            if any(store in call for store in ("idempotency", "schema_", "claim_check")):
                cursor.execute(call)
        cursor.execute("SET acemq.claim_check_threshold = 10")
        cursor.execute("SELECT acemq.outbox_add('orders', 'k', '\"a body of more than ten bytes\"')")
        cursor.execute("SELECT acemq.idempotency_claim('soon', '1 ms')")
    await_until(lambda: db.value("SELECT rolsuper FROM pg_roles WHERE rolname = 'table_owner'") or
                db.sql("SELECT 1 FROM public.seen WHERE query IS NULL"), 30, "the worker has purged")
    seen = db.sql("SELECT DISTINCT what, who, problem, query FROM public.seen")
    assert {(who, problem) for _, who, problem, _ in seen} == {("table_owner", "42501")}, seen
    assert {what.split()[0] for what, _, _, _ in seen} >= set(STORES)
