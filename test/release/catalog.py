"""Everything the catalogs say about the extension, without what differs from database to database (oids).

Two databases with the same version have equal catalogs, however they came to
it.  Order of columns counts, gaps that dropped ones left do not: `ALTER TABLE`
can append a column, so the install script has new ones at the end too.

May depend on: nothing of ours.
"""

# Relations, functions and the rest that belong to the extension, as objects with an oid.
_MEMBERS = """
    WITH members AS (
        SELECT classid, objid FROM pg_catalog.pg_depend
        WHERE refclassid = 'pg_catalog.pg_extension'::regclass AND deptype = 'e'
          AND refobjid = (SELECT oid FROM pg_catalog.pg_extension WHERE extname = 'acemq')),
    relations AS (
        SELECT c.* FROM pg_catalog.pg_class c JOIN members m ON m.classid = 'pg_catalog.pg_class'::regclass AND m.objid = c.oid),
    functions AS (
        SELECT p.* FROM pg_catalog.pg_proc p JOIN members m ON m.classid = 'pg_catalog.pg_proc'::regclass AND m.objid = p.oid)
"""


def _rights(acl, default):
    """Rights as text, the built-in ones spelt out."""
    return f"""ARRAY(SELECT pg_catalog.concat_ws(' ', r.grantor::regrole, coalesce(nullif(r.grantee, 0)::regrole::text, 'PUBLIC'),
                            r.privilege_type, r.is_grantable)
                     FROM pg_catalog.aclexplode(coalesce({acl}, {default})) r ORDER BY 1)"""


_RELATION_RIGHTS = _rights("relacl", "acldefault(CASE relkind WHEN 'S' THEN 's' ELSE 'r' END::\"char\", relowner)")

# The server keeps a number of its own among the options of a column (pg_attver, from 15.20 on).
_OPTIONS = "ARRAY(SELECT o FROM unnest(a.attoptions) o WHERE o NOT LIKE 'pg\\_attver=%' ORDER BY o)"

# Name of a kind of fact: a query.  The first column says what the fact is about.
_QUERIES = {
    "extension": """
        SELECT extname, extversion, extnamespace::regnamespace::text, extrelocatable, extowner::regrole::text FROM pg_extension
        WHERE extname = 'acemq'""",
    "member": """
        SELECT i.type || ' ' || i.identity FROM members m, pg_identify_object(m.classid, m.objid, 0) i""",
    "comment": """
        SELECT i.type || ' ' || i.identity, d.description
        FROM members m JOIN pg_description d ON d.classoid = m.classid AND d.objoid = m.objid, pg_identify_object(d.classoid, d.objoid, d.objsubid) i""",
    "dumped table": """
        SELECT t.rel::regclass::text, t.condition FROM pg_extension e, unnest(e.extconfig, e.extcondition) t (rel, condition)
        WHERE e.extname = 'acemq'""",
    "function": f"""
        SELECT oid::regprocedure::text, pg_get_functiondef(oid), proowner::regrole::text, {_rights("proacl", "acldefault('f', proowner)")}
        FROM functions WHERE prokind IN ('f', 'p')""",
    "relation": f"""
        SELECT oid::regclass::text, relkind, relpersistence, relreplident, relrowsecurity, reloptions, relowner::regrole::text,
               pg_get_viewdef(CASE WHEN relkind IN ('v', 'm') THEN oid END),
               {_RELATION_RIGHTS}
        FROM relations""",
    "column": f"""
        SELECT r.oid::regclass || '.' || a.attname, row_number() OVER (PARTITION BY r.oid ORDER BY a.attnum),
               format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, a.attgenerated, a.attstorage, a.attcompression,
               a.attstattarget, {_OPTIONS}, a.attcollation::regcollation::text, pg_get_expr(d.adbin, d.adrelid),
               {_rights("a.attacl", "acldefault('c', r.relowner)")}
        FROM relations r JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum""",
    "constraint": """
        SELECT r.oid::regclass || ' ' || k.conname, pg_get_constraintdef(k.oid), k.convalidated, k.condeferrable, k.condeferred
        FROM relations r JOIN pg_constraint k ON k.conrelid = r.oid""",
    "index": """
        SELECT i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid), i.indisprimary, i.indisunique, i.indisvalid, i.indisclustered,
               i.indisreplident, c.reloptions
        FROM relations r JOIN pg_index i ON i.indrelid = r.oid JOIN pg_class c ON c.oid = i.indexrelid""",
    "trigger": """
        SELECT r.oid::regclass || ' ' || t.tgname, pg_get_triggerdef(t.oid), t.tgenabled
        FROM relations r JOIN pg_trigger t ON t.tgrelid = r.oid AND NOT t.tgisinternal""",
    "rule": """
        SELECT r.oid::regclass || ' ' || w.rulename, pg_get_ruledef(w.oid), w.ev_enabled
        FROM relations r JOIN pg_rewrite w ON w.ev_class = r.oid""",
    "sequence": """
        SELECT r.oid::regclass::text, format_type(s.seqtypid, NULL), s.seqstart, s.seqincrement, s.seqmax, s.seqmin, s.seqcache, s.seqcycle
        FROM relations r JOIN pg_sequence s ON s.seqrelid = r.oid""",
    "type": f"""
        SELECT t.oid::regtype::text, t.typtype, t.typowner::regrole::text, t.typnotnull, t.typdefault, format_type(t.typbasetype, t.typtypmod),
               ARRAY(SELECT e.enumlabel::text FROM pg_enum e WHERE e.enumtypid = t.oid ORDER BY e.enumsortorder),
               ARRAY(SELECT k.conname || ' ' || pg_get_constraintdef(k.oid) FROM pg_constraint k WHERE k.contypid = t.oid ORDER BY 1),
               {_rights("t.typacl", "acldefault('T', t.typowner)")}
        FROM pg_type t JOIN members m ON m.classid = 'pg_type'::regclass AND m.objid = t.oid""",
    "schema": f"""
        SELECT n.nspname, n.nspowner::regrole::text, {_rights("n.nspacl", "acldefault('n', n.nspowner)")}
        FROM pg_namespace n WHERE n.nspname = 'acemq'""",
    # What pg_dump takes for the rights that came with the extension.
    "rights at first": f"""
        SELECT i.type || ' ' || i.identity, {_rights("p.initprivs", "NULL")}
        FROM members m JOIN pg_init_privs p ON p.classoid = m.classid AND p.objoid = m.objid,
             pg_identify_object(p.classoid, p.objoid, p.objsubid) i WHERE p.privtype = 'e'""",
    "dependency": """
        SELECT i.type || ' ' || i.identity, d.deptype, o.type || ' ' || o.identity
        FROM members m JOIN pg_depend d ON d.classid = m.classid AND d.objid = m.objid,
             pg_identify_object(d.classid, d.objid, d.objsubid) i, pg_identify_object(d.refclassid, d.refobjid, d.refobjsubid) o
        WHERE NOT (d.refclassid = 'pg_type'::regclass AND o.identity LIKE 'pg_toast.%')""",
}


def facts(db):
    """Set of (kind, about what, ... ) of a database."""
    found = set()
    db.sql("SET search_path = pg_catalog")
    for kind, query in _QUERIES.items():
        for row in db.sql(_MEMBERS + query):
            found.add((kind, *(tuple(value) if isinstance(value, list) else value for value in row)))
    return found


def differences(here, there):
    """What only one of two databases has, as lines."""
    return [f"{sign} {' | '.join(map(str, fact))}"
            for fact, sign in sorted([(fact, "-") for fact in here - there] + [(fact, "+") for fact in there - here],
                                     key=lambda entry: tuple(map(str, entry[0])))]
