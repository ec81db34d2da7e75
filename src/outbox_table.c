/*
 * outbox_table.c
 *		The outbox table as this backend finds it.
 *
 * The owner may do to the table what owners do: add a column, an index, a
 * trigger, a rule, a policy, partition it.  Rows then have to go through the
 * executor.  Whether the table is still the one that CREATE EXTENSION made is
 * found out once and forgotten at every relcache invalidation of the table or of one of
 * its indexes, which any such change sends.
 *
 * May depend on: compat.h.
 */
#include "outbox_table.h"

#include "compat.h"

#include "access/genam.h"
#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/index.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "optimizer/optimizer.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

typedef struct ColumnRule
{
	const char *name;
	Oid			type;
	bool		not_null;
	bool		null_in_plain_row;	/* so a partial index that asks for a value cannot hold a plain row */
} ColumnRule;

static const ColumnRule column_rules[OUTBOX_COLUMNS] = {
	[OUTBOX_ID] = {"id", INT8OID, true, false},
	[OUTBOX_CREATED_AT] = {"created_at", TIMESTAMPTZOID, true, false},
	[OUTBOX_ATTEMPTS] = {"attempts", INT4OID, true, false},
	[OUTBOX_VERSION] = {"version", INT4OID, true, false},
	[OUTBOX_PERSISTENT] = {"persistent", BOOLOID, true, false},
	[OUTBOX_CALLER_ID] = {"caller_id", BOOLOID, true, false},
	[OUTBOX_MESSAGE_ID] = {"message_id", TEXTOID, true, false},
	[OUTBOX_EXCHANGE] = {"exchange", TEXTOID, true, false},
	[OUTBOX_ROUTING_KEY] = {"routing_key", TEXTOID, true, false},
	[OUTBOX_CONTENT_TYPE] = {"content_type", TEXTOID, true, false},
	[OUTBOX_BODY] = {"body", BYTEAOID, true, false},
	[OUTBOX_HEADERS] = {"headers", JSONBOID, false, false},
	[OUTBOX_TYPE] = {"type", TEXTOID, false, false},
	[OUTBOX_ORIGIN] = {"origin", TEXTOID, false, false},
	[OUTBOX_CORRELATION_ID] = {"correlation_id", TEXTOID, false, false},
	[OUTBOX_CAUSATION_ID] = {"causation_id", TEXTOID, false, false},
	[OUTBOX_REPLY_TO] = {"reply_to", TEXTOID, false, false},
	[OUTBOX_ORDERING_KEY] = {"ordering_key", TEXTOID, false, true},
	[OUTBOX_EXPIRATION] = {"expiration", INT8OID, false, false},
	[OUTBOX_PRIORITY] = {"priority", INT2OID, false, false},
	[OUTBOX_NOT_BEFORE] = {"not_before", TIMESTAMPTZOID, false, true},
	[OUTBOX_NEXT_ATTEMPT_AT] = {"next_attempt_at", TIMESTAMPTZOID, false, true},
	[OUTBOX_RETIRED_AT] = {"retired_at", TIMESTAMPTZOID, false, true},
	[OUTBOX_PUBLISHED_AT] = {"published_at", TIMESTAMPTZOID, false, true},
	[OUTBOX_LEASED_UNTIL] = {"leased_until", TIMESTAMPTZOID, false, true},
	[OUTBOX_LEASED_BY] = {"leased_by", TEXTOID, false, true},
	[OUTBOX_LAST_ERROR] = {"last_error", TEXTOID, false, true},
};

static Oid	outbox = InvalidOid;	/* the table */
static bool shape_known = false;
static uint64 invalidations = 0;
static OutboxShape shape;
static MemoryContext shape_context = NULL;

/* Called for every relation that changes, InvalidOid for all of them.  A change of an index reaches us as one of its table too. */
static void
forget_shape(Datum arg, Oid relid)
{
	if (relid == outbox || relid == shape.primary_key || !OidIsValid(relid))
	{
		shape_known = false;
		invalidations++;
	}
}

static bool
column_is_ours(Relation rel, OutboxColumn column)
{
	Form_pg_attribute attribute = TupleDescAttr(RelationGetDescr(rel), column);
	const ColumnRule *rule = &column_rules[column];

	return !attribute->attisdropped && strcmp(NameStr(attribute->attname), rule->name) == 0 &&
		attribute->atttypid == rule->type && attribute->attnotnull == rule->not_null &&
		attribute->attgenerated == '\0' && (attribute->attidentity != '\0') == (column == OUTBOX_ID);
}

/* Nothing has to happen at an insert but storing the row: no check, trigger, rule or policy, no partition bound. */
static bool
table_is_plain(Relation rel)
{
	TupleDesc	desc = RelationGetDescr(rel);
	int			i;

	if (rel->rd_rel->relkind != RELKIND_RELATION || rel->rd_rel->relam != HEAP_TABLE_AM_OID ||
		rel->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT || rel->rd_rel->relispartition)
		return false;
	if (rel->trigdesc != NULL || rel->rd_rules != NULL ||
		(rel->rd_rel->relrowsecurity && rel->rd_rel->relforcerowsecurity))
		return false;
	if (desc->natts != OUTBOX_COLUMNS || (desc->constr != NULL && desc->constr->num_check > 0))
		return false;
	for (i = 0; i < OUTBOX_COLUMNS; i++)
	{
		if (!column_is_ours(rel, i))
			return false;
	}
	return true;
}

/* What is true of every plain row, as clauses the planner can reason with. */
static List *
plain_row_clauses(Relation rel)
{
	Var		   *caller_id = makeVar(1, OUTBOX_CALLER_ID + 1, BOOLOID, -1, InvalidOid, 0);
	List	   *clauses = list_make1(makeBoolExpr(NOT_EXPR, list_make1(caller_id), -1));
	int			i;

	for (i = 0; i < OUTBOX_COLUMNS; i++)
	{
		Form_pg_attribute column = TupleDescAttr(RelationGetDescr(rel), i);
		NullTest   *test;

		if (!column_rules[i].null_in_plain_row)
			continue;
		test = makeNode(NullTest);
		test->arg = (Expr *) makeVar(1, column->attnum, column->atttypid, column->atttypmod, column->attcollation, 0);
		test->nulltesttype = IS_NULL;
		test->location = -1;
		clauses = lappend(clauses, test);
	}
	return clauses;
}

/* A partial index whose condition contradicts what a plain row is never holds one. */
static bool
index_never_applies(Relation rel, Relation index)
{
	List	   *predicate = RelationGetIndexPredicate(index);

	return predicate != NIL && predicate_refuted_by(predicate, plain_row_clauses(rel), true);
}

static bool
index_is_plain_key(Relation index)
{
	Form_pg_index form = index->rd_index;

	return form->indisprimary && form->indimmediate && form->indisvalid && form->indisready &&
		index->rd_rel->relam == BTREE_AM_OID && form->indnatts == 1 && form->indkey.values[0] == OUTBOX_ID + 1;
}

static IndexInfo *
keep_index_info(Relation index)
{
	MemoryContext caller;
	IndexInfo  *info;

	if (shape_context == NULL)
		shape_context = AllocSetContextCreate(TopMemoryContext, "acemq outbox table", ALLOCSET_SMALL_SIZES);
	MemoryContextReset(shape_context);
	caller = MemoryContextSwitchTo(shape_context);
	info = BuildIndexInfo(index);
	MemoryContextSwitchTo(caller);
	return info;
}

/* The primary key, and nothing else that a plain row would have to go into. */
static bool
indexes_are_plain(Relation rel)
{
	List	   *indexes = RelationGetIndexList(rel);
	bool		plain = true;
	ListCell   *cell;

	shape.primary_key = InvalidOid;
	foreach (cell, indexes)
	{
		Relation	index = index_open(lfirst_oid(cell), AccessShareLock);

		if (!OidIsValid(shape.primary_key) && index_is_plain_key(index))
		{
			shape.primary_key = RelationGetRelid(index);
			shape.key_info = keep_index_info(index);
		}
		else if (!index_never_applies(rel, index))
			plain = false;
		index_close(index, AccessShareLock);
	}
	list_free(indexes);
	return plain && OidIsValid(shape.primary_key);
}

/*
 * What we see here is true as long as our lock is held.  After an invalidation
 * in the meantime the next call has to look again.
 */
static void
find_out_shape(Relation rel)
{
	static bool registered = false;
	uint64		before = invalidations;

	if (!registered)
	{
		CacheRegisterRelcacheCallback(forget_shape, (Datum) 0);
		registered = true;
	}
	shape.sequence = compat_identity_sequence(rel, OUTBOX_ID + 1);
	shape.direct = OidIsValid(shape.sequence) && table_is_plain(rel) && indexes_are_plain(rel);
	shape_known = before == invalidations;
}

static Relation
open_by_name(void)
{
	Oid			schema = get_namespace_oid(ACEMQ_SCHEMA, true);
	Oid			relid = OidIsValid(schema) ? get_relname_relid("outbox", schema) : InvalidOid;
	Relation	rel = OidIsValid(relid) ? try_table_open(relid, RowExclusiveLock) : NULL;

	if (rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("table \"%s.outbox\" does not exist", ACEMQ_SCHEMA),
				 errhint("Create the extension in this database: CREATE EXTENSION %s.", ACEMQ_EXTENSION)));
	outbox = relid;
	shape_known = false;
	return rel;
}

/*
 * The lock comes first: invalidations are received with it, so that what is
 * known afterwards holds as long as the lock does.
 */
Relation
outbox_table_open(const OutboxShape **result)
{
	Relation	rel = NULL;

	if (shape_known)
	{
		rel = try_table_open(outbox, RowExclusiveLock);
		if (rel != NULL && !shape_known)
		{
			/* It may have been renamed, and another one be in its place. */
			table_close(rel, NoLock);
			rel = NULL;
		}
	}
	if (rel == NULL)
		rel = open_by_name();
	if (!shape_known)
		find_out_shape(rel);
	*result = &shape;
	return rel;
}
