/*
 * store_table.c
 *		The tables of the stores, checked.
 *
 * Their owner may alter them.  A column that has become something else would
 * be read as what it was, which can crash the server; and a table that has been
 * given to another role than the outbox has triggers that must not run with
 * the rights of the outbox's owner.
 *
 * May depend on: as_owner.h.
 */
#include "store_table.h"

#include "as_owner.h"

#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "utils/lsyscache.h"

const StoreTable store_idempotency = {
    "idempotency",
    5,
    {{VARCHAROID, true}, {VARCHAROID, true}, {VARCHAROID, false}, {TIMESTAMPTZOID, true}, {TIMESTAMPTZOID, true}}};

const StoreTable store_schema_registry = {"schema_registry",
                                          7,
                                          {{INT4OID, true},
                                           {VARCHAROID, true},
                                           {INT4OID, true},
                                           {VARCHAROID, true},
                                           {TEXTOID, true},
                                           {VARCHAROID, true},
                                           {TIMESTAMPTZOID, true}}};

const StoreTable store_schema_registry_seq = {"schema_registry_seq", 2, {{INT4OID, true}, {INT4OID, true}}};

const StoreTable store_claim_check = {"claim_check", 3, {{TEXTOID, true}, {BYTEAOID, true}, {TIMESTAMPTZOID, true}}};

bool
store_table_is_ours(Relation rel, const StoreTable *table)
{
	TupleDesc desc = RelationGetDescr(rel);

	if (rel->rd_rel->relkind != RELKIND_RELATION || rel->rd_rel->relam != HEAP_TABLE_AM_OID ||
	    rel->rd_rel->relowner != as_owner_role() || desc->natts < table->ncolumns)
		return false;
	for (int i = 0; i < table->ncolumns; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);

		if (attribute->attisdropped || attribute->atttypid != table->columns[i].type ||
		    attribute->attnotnull != table->columns[i].not_null)
			return false;
	}
	return true;
}

void
store_table_refuse(const StoreTable *table)
{
	ereport(ERROR,
	        (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
	         errmsg("table \"%s.%s\" has been changed", ACEMQ_SCHEMA, table->name),
	         errhint("Give its columns, its indexes, its storage and its owner (that of %s.outbox) back the form in "
	                 "which the extension created them.",
	                 ACEMQ_SCHEMA)));
}

Relation
store_table_open(const StoreTable *table, LOCKMODE lockmode)
{
	Oid schema = get_namespace_oid(ACEMQ_SCHEMA, true);
	Oid relid = OidIsValid(schema) ? get_relname_relid(table->name, schema) : InvalidOid;
	Relation rel = OidIsValid(relid) ? try_table_open(relid, lockmode) : NULL;

	if (rel == NULL)
		ereport(ERROR,
		        (errcode(ERRCODE_UNDEFINED_TABLE), errmsg("table \"%s.%s\" does not exist", ACEMQ_SCHEMA, table->name),
		         errhint("Create the extension in this database: CREATE EXTENSION %s.", ACEMQ_EXTENSION)));
	if (!store_table_is_ours(rel, table))
		store_table_refuse(table);
	return rel;
}

void
store_table_check(const StoreTable *table)
{
	table_close(store_table_open(table, AccessShareLock), NoLock);
}
