"""G9: closed by default.  Every function is called by every role that may not: the list is the catalog's, so none is forgotten."""

import psycopg2
import pytest

DUTIES = ("producer", "stores", "operator", "tables")

# Whoever has no duty, has a duty, and owns the database without being a superuser.
ROLES = {"stranger": None, "usage": "usage", "owner_of_the_database": "database", **{duty: duty for duty in DUTIES}}


@pytest.fixture(scope="module")
def shop(cluster):
    """A database with a role for each duty and some that have none."""
    cluster.ensure_running()
    with cluster.database("denied") as db:
        for role, right in ROLES.items():
            db.sql(f"CREATE ROLE denied_{role} LOGIN")
            if right in DUTIES:
                db.sql("SELECT acemq.grant_access(%s, %s)", (f"denied_{role}", right))
        db.sql("GRANT USAGE ON SCHEMA acemq TO denied_usage")
        db.sql(f'ALTER DATABASE "{db.name}" OWNER TO denied_owner_of_the_database')
        db.as_role = {role: db.connect(user=f"denied_{role}") for role in ROLES}
        yield db
        db.close()
        db.sql(f'ALTER DATABASE "{db.name}" OWNER TO postgres')
        for role in ROLES:
            db.sql(f"DROP OWNED BY denied_{role}")
            db.sql(f"DROP ROLE denied_{role}")


def functions(db):
    """(oid::regprocedure, call with a NULL of the right type for each argument, who may) of all functions but triggers.

    The NULLs come out of a subquery, or a call of a strict function would be answered by the planner, who asks for no right.
    """
    return db.sql("""
        SELECT p.oid::regprocedure::text,
               format('SELECT acemq.%I(%s) FROM (SELECT 1%s OFFSET 0) v', p.proname,
                      (SELECT string_agg(format('v.a%s', o), ', ' ORDER BY o) FROM unnest(p.proargtypes) WITH ORDINALITY a (t, o)),
                      (SELECT string_agg(format(', NULL::%s AS a%s', format_type(t, NULL), o), '' ORDER BY o)
                       FROM unnest(p.proargtypes) WITH ORDINALITY a (t, o))),
               ARRAY(SELECT r.rolname::text FROM pg_roles r WHERE r.rolname LIKE 'denied%'
                     AND has_function_privilege(r.oid, p.oid, 'EXECUTE'))
        FROM pg_proc p
        WHERE p.pronamespace = 'acemq'::regnamespace AND p.prorettype <> 'trigger'::regtype ORDER BY 1""")


def refusal(db, role, statement):
    """The SQLSTATE that the role gets, or None; nothing is left behind."""
    session = db.as_role[role]
    try:
        session.cursor().execute(statement)
        return None
    except psycopg2.Error as error:
        return error.pgcode
    finally:
        session.rollback()


@pytest.mark.parametrize("role", ROLES)
def test_every_function(shop, role):
    """42501 where there is no right; where there is, whatever else, but not that."""
    found = functions(shop)
    assert len(found) > 50
    for name, call, may in found:
        denied = refusal(shop, role, call) == "42501"
        assert denied != (f"denied_{role}" in may), f"{name} called by {role}: {'denied' if denied else 'executed'}"
    if role in ("stranger", "usage", "owner_of_the_database", "tables"):
        assert not any(f"denied_{role}" in may for _, _, may in found)


@pytest.mark.parametrize("role", ROLES)
def test_every_relation(shop, role):
    """Read, written, emptied, locked, commented, given an index, a trigger, a rule: only what the duty says."""
    readable = {"operator": {"outbox_pending", "outbox_retired", "status", "metrics"},
                "tables": {"idempotency", "schema_registry", "schema_registry_seq"}}.get(role, set())
    for name, kind in shop.sql("SELECT relname::text, relkind::text FROM pg_class WHERE relnamespace = 'acemq'::regnamespace"
                               " AND relkind IN ('r', 'v', 'S')"):
        assert (refusal(shop, role, f"SELECT * FROM acemq.{name} LIMIT 0") is None) == (name in readable), name
        refused = ["DROP {k} acemq.{n}", "ALTER {k} acemq.{n} RENAME TO mine", "ALTER {k} acemq.{n} OWNER TO CURRENT_USER",
                   "COMMENT ON {k} acemq.{n} IS 'mine'", "GRANT ALL ON acemq.{n} TO PUBLIC"]
        if kind == "r":
            refused += ["TRUNCATE acemq.{n}", "LOCK TABLE acemq.{n} IN ACCESS EXCLUSIVE MODE", "CREATE INDEX ON acemq.{n} ((1))",
                        "CREATE RULE r AS ON INSERT TO acemq.{n} DO INSTEAD NOTHING",
                        "ALTER TABLE acemq.{n} ENABLE ROW LEVEL SECURITY", "CREATE TABLE public.child () INHERITS (acemq.{n})",
                        "CREATE TRIGGER t AFTER INSERT ON acemq.{n} EXECUTE FUNCTION suppress_redundant_updates_trigger()",
                        "COPY acemq.{n} TO PROGRAM 'true'"]
            if name not in readable:
                refused += ["DELETE FROM acemq.{n}", "INSERT INTO acemq.{n} DEFAULT VALUES"]
        word = {"r": "TABLE", "v": "VIEW", "S": "SEQUENCE"}[kind]
        for statement in refused:
            text = statement.format(k=word, n=name)
            # Some that may lock what they may write are told nothing: a library's own rows.
            code = refusal(shop, role, text)
            if code is None and role == "tables" and name in readable and ("GRANT" in text or "LOCK" in text):
                continue
            if code is None and "GRANT" in text:
                granted = shop.sql("SELECT 1 FROM pg_class c, aclexplode(c.relacl) a WHERE c.oid = %s::regclass"
                                   " AND a.grantee = 0", (f"acemq.{name}",))
                assert granted == [], text
                continue
            assert code == "42501", f"{text} as {role}: {code}"


@pytest.mark.parametrize("role", ROLES)
def test_the_extension_and_the_schema(shop, role):
    for statement in ("DROP EXTENSION acemq", "ALTER EXTENSION acemq UPDATE", "DROP SCHEMA acemq CASCADE",
                      "ALTER EXTENSION acemq ADD FUNCTION pg_catalog.now()", "CREATE TABLE acemq.mine ()",
                      "CREATE FUNCTION acemq.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
                      "ALTER FUNCTION acemq.version() SECURITY DEFINER", "DROP FUNCTION acemq.version()",
                      "CREATE FUNCTION public.stolen(text) RETURNS void LANGUAGE c AS '$libdir/acemq', 'acemq_relay_pause'",
                      "ALTER TYPE acemq.claim ADD VALUE 'mine'", "SELECT pg_read_file('postgresql.conf')"):
        assert refusal(shop, role, statement) == "42501", f"{statement} as {role}"


def test_only_a_superuser_creates_the_extension(cluster):
    """Not the owner of a database either: the extension is not a trusted one."""
    cluster.ensure_running()
    cluster.sql("CREATE ROLE shop_owner LOGIN")
    cluster.sql("CREATE DATABASE owned OWNER shop_owner TEMPLATE template0")
    try:
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            cluster.sql("CREATE EXTENSION acemq", dbname="owned", user="shop_owner")
        cluster.sql("CREATE SCHEMA acemq", dbname="owned", user="shop_owner")
        with pytest.raises(psycopg2.errors.InsufficientPrivilege, match="belongs to another role"):
            cluster.sql("CREATE EXTENSION acemq", dbname="owned")
    finally:
        cluster.sql("DROP DATABASE owned WITH (FORCE)")
        cluster.sql("DROP ROLE shop_owner")
