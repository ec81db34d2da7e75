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
 * May depend on: as_owner.h, compat.h.
 */
#include "outbox_table.h"

#include "as_owner.h"
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
#include "utils/relcache.h"

typedef struct ColumnRule
{
	const char *name;
	Oid type;
	bool not_null;
	bool unset; /* null in a row that was just added */
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
    [OUTBOX_ORDERING_KEY] = {"ordering_key", TEXTOID, false, false},
    [OUTBOX_EXPIRATION] = {"expiration", INT8OID, false, false},
    [OUTBOX_PRIORITY] = {"priority", INT2OID, false, false},
    [OUTBOX_NOT_BEFORE] = {"not_before", TIMESTAMPTZOID, false, false},
    [OUTBOX_LADDER_DUE_AT] = {"ladder_due_at", TIMESTAMPTZOID, false, false},
    [OUTBOX_NEXT_ATTEMPT_AT] = {"next_attempt_at", TIMESTAMPTZOID, false, true},
    [OUTBOX_RETIRED_AT] = {"retired_at", TIMESTAMPTZOID, false, true},
    [OUTBOX_PUBLISHED_AT] = {"published_at", TIMESTAMPTZOID, false, true},
    [OUTBOX_LEASED_UNTIL] = {"leased_until", TIMESTAMPTZOID, false, true},
    [OUTBOX_LEASED_BY] = {"leased_by", TEXTOID, false, true},
    [OUTBOX_LAST_ERROR] = {"last_error", TEXTOID, false, true},
};

static Oid outbox = InvalidOid; /* the table */
static bool shape_known = false;
static uint64 invalidations = 0;
static OutboxShape shape;
static MemoryContext shape_context = NULL;

static bool
is_part_of_shape(Oid relid)
{
	int i;

	for (i = 0; i < shape.nindexes; i++)
	{
		if (shape.indexes[i].relid == relid)
			return true;
	}
	return relid == outbox;
}

/* Called for every relation that changes, InvalidOid for all of them. */
static void
forget_shape(Datum arg, Oid relid)
{
	if (!OidIsValid(relid) || is_part_of_shape(relid))
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

/* Apart from indexes, nothing has to happen at an insert but storing the row: no check, trigger, rule or policy, no partition bound. */
static bool
table_is_plain(Relation rel)
{
	TupleDesc desc = RelationGetDescr(rel);
	int i;

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

static Expr *
null_test(Relation rel, OutboxColumn column, NullTestType type)
{
	Form_pg_attribute attribute = TupleDescAttr(RelationGetDescr(rel), column);
	NullTest *test = makeNode(NullTest);

	test->arg =
	    (Expr *) makeVar(1, attribute->attnum, attribute->atttypid, attribute->atttypmod, attribute->attcollation, 0);
	test->nulltesttype = type;
	test->location = -1;
	return (Expr *) test;
}

/* What is true of every row of the class, as clauses the planner can reason with. */
static List *
class_clauses(Relation rel, int row_class)
{
	Var *caller_id = makeVar(1, OUTBOX_CALLER_ID + 1, BOOLOID, -1, InvalidOid, 0);
	List *clauses = list_make1(makeBoolExpr(NOT_EXPR, list_make1(caller_id), -1));
	int i;

	for (i = 0; i < OUTBOX_COLUMNS; i++)
	{
		if (column_rules[i].unset)
			clauses = lappend(clauses, null_test(rel, i, IS_NULL));
	}
	clauses = lappend(clauses, null_test(rel, OUTBOX_ORDERING_KEY, row_class & ROW_ORDERED ? IS_NOT_NULL : IS_NULL));
	return lappend(clauses, null_test(rel, OUTBOX_NOT_BEFORE, row_class & ROW_DELAYED ? IS_NOT_NULL : IS_NULL));
}

/* We can put an entry into it as the executor would: no expressions to compute, nothing to check later. */
static bool
index_is_simple(Relation index, const IndexInfo *info)
{
	return index->rd_rel->relam == BTREE_AM_OID && info->ii_Expressions == NIL && !index->rd_index->indisexclusion &&
	       (!info->ii_Unique || index->rd_index->indimmediate);
}

/*
 * Note which classes of rows the index holds.  Where that depends on more than
 * the class, rows of the class are for the executor.  An index that is still
 * being built gets its entries from the building.
 */
static void
add_index(Relation rel, Relation index)
{
	OutboxIndex *entry = &shape.indexes[shape.nindexes];
	bool simple;
	int c;

	entry->relid = RelationGetRelid(index);
	entry->info = BuildIndexInfo(index);
	simple = index_is_simple(index, entry->info);
	memset(entry->holds, false, sizeof(entry->holds));
	shape.nindexes++;
	for (c = 0; c < ROW_CLASSES && entry->info->ii_ReadyForInserts; c++)
	{
		List *clauses = class_clauses(rel, c);
		List *predicate = entry->info->ii_Predicate;

		entry->holds[c] = simple && (predicate == NIL || predicate_implied_by(predicate, clauses, false));
		if (!entry->holds[c] && (predicate == NIL || !predicate_refuted_by(predicate, clauses, true)))
			shape.direct[c] = false;
	}
}

static void
look_at_indexes(Relation rel)
{
	List *indexes = RelationGetIndexList(rel);
	ListCell *cell;

	foreach (cell, indexes)
	{
		Relation index;

		if (shape.nindexes >= OUTBOX_MAX_INDEXES)
		{
			memset(shape.direct, false, sizeof(shape.direct));
			break;
		}
		index = index_open(lfirst_oid(cell), AccessShareLock);
		add_index(rel, index);
		index_close(index, AccessShareLock);
	}
	list_free(indexes);
}

/*
 * What it allocates lives until the next look; that is rare.  Expressions and
 * predicates of indexes are simplified when they are read, which runs the
 * functions in them: as the owner, who has put them there.
 */
static void
look(Relation rel)
{
	MemoryContext caller;
	AsOwner save;
	bool plain;

	if (shape_context == NULL)
		shape_context = AllocSetContextCreate(TopMemoryContext, "acemq outbox table", ALLOCSET_SMALL_SIZES);
	MemoryContextReset(shape_context);

	caller = MemoryContextSwitchTo(shape_context);
	shape.sequence = compat_identity_sequence(rel, OUTBOX_ID + 1);
	shape.nindexes = 0;
	plain = OidIsValid(shape.sequence) && table_is_plain(rel);
	memset(shape.direct, plain, sizeof(shape.direct));
	if (plain)
	{
		as_owner_begin(&save);
		look_at_indexes(rel);
		as_owner_end(&save);
	}
	MemoryContextSwitchTo(caller);
}

/*
 * What we see here is true as long as our lock is held.  After an invalidation
 * in the meantime the next call has to look again.
 */
static void
find_out_shape(Relation rel)
{
	static bool registered = false;
	uint64 before = invalidations;

	if (!registered)
	{
		CacheRegisterRelcacheCallback(forget_shape, (Datum) 0);
		registered = true;
	}
	look(rel);
	shape_known = before == invalidations;
}

static Relation
open_by_name(void)
{
	Oid schema = get_namespace_oid(ACEMQ_SCHEMA, true);
	Oid relid = OidIsValid(schema) ? get_relname_relid("outbox", schema) : InvalidOid;
	Relation rel = OidIsValid(relid) ? try_table_open(relid, RowExclusiveLock) : NULL;

	if (rel == NULL)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE), errmsg("table \"%s.outbox\" does not exist", ACEMQ_SCHEMA),
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
	Relation rel = NULL;

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
