/*-------------------------------------------------------------------------
 *
 * idempotency_write.c
 *		Put a row into acemq.idempotency, or replace the one that was found
 *		there, without waiting for anybody who is at the same key.
 *
 * An INSERT ... ON CONFLICT waits for an open transaction that has inserted the
 * same key.  Below that statement there is a way that does not: the row goes
 * in speculatively, the unique index is asked whether it has company, and if
 * so it is taken out again as if it had never been.  Of several who do this at
 * once the one whose index entry came first stays.
 *
 * Whatever the owner has added to the table is honoured: indexes, checks,
 * columns with defaults, triggers.  What takes more than this file knows goes through
 * an ordinary statement (is_odd(), is_odd_to_update()).
 *
 * May depend on: idempotency_table.h, as_owner.h, saved_plan.h, compat.h.
 *
 *-------------------------------------------------------------------------
 */
#include "idempotency_write.h"

#include "as_owner.h"
#include "compat.h"
#include "saved_plan.h"

#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_index.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "executor/nodeModifyTable.h"
#include "optimizer/optimizer.h"
#include "rewrite/rewriteHandler.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

/* What the executor needs for one row. */
typedef struct RowWriter
{
	Relation rel;
	EState *estate;
	ResultRelInfo *target;
	TupleTableSlot *slot;
	MemoryContext caller;
	AsOwner save;
	bool as_owner;
} RowWriter;

static bool
is_odd(Relation rel)
{
	return rel->rd_rules != NULL || rel->rd_rel->relispartition ||
	       (rel->rd_rel->relrowsecurity && rel->rd_rel->relforcerowsecurity) ||
	       (rel->trigdesc != NULL && rel->trigdesc->trig_insert_new_table);
}

/* Triggers may be for certain columns, and generated columns depend on others: an UPDATE knows which ones it sets. */
static bool
is_odd_to_update(Relation rel)
{
	const TriggerDesc *triggers = rel->trigdesc;
	const TupleConstr *constraints = RelationGetDescr(rel)->constr;

	return is_odd(rel) || (constraints != NULL && constraints->has_generated_stored) ||
	       (triggers != NULL && (triggers->trig_update_before_row || triggers->trig_update_after_row ||
	                             triggers->trig_update_before_statement || triggers->trig_update_after_statement));
}

/* ---- an executor's state for one row ---- */

/* Asked without reading them, because reading runs the functions in them (they are simplified). */
static bool
index_has_expressions(Oid index)
{
	HeapTuple tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(index));
	bool has;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for index %u", index);
	has = !heap_attisnull(tuple, Anum_pg_index_indexprs, NULL) || !heap_attisnull(tuple, Anum_pg_index_indpred, NULL);
	ReleaseSysCache(tuple);
	return has;
}

/* Anything of the owner's that is evaluated has to be evaluated as the owner. */
static bool
has_expressions(Relation rel)
{
	const TupleConstr *constraints = RelationGetDescr(rel)->constr;
	List *indexes;
	ListCell *cell;
	bool has = false;

	if (rel->trigdesc != NULL || RelationGetDescr(rel)->natts > IDEMPOTENCY_COLUMNS ||
	    (constraints != NULL && constraints->num_check > 0))
		return true;
	indexes = RelationGetIndexList(rel);
	foreach (cell, indexes)
		has |= index_has_expressions(lfirst_oid(cell));
	list_free(indexes);
	return has;
}

static void
begin_write(RowWriter *writer, Relation rel)
{
	writer->rel = rel;
	writer->estate = CreateExecutorState();
	writer->caller = MemoryContextSwitchTo(writer->estate->es_query_cxt);
	writer->as_owner = has_expressions(rel);
	if (writer->as_owner)
		as_owner_begin(&writer->save);
	writer->target = makeNode(ResultRelInfo);
	InitResultRelInfo(writer->target, rel, 0, NULL, 0);
	ExecOpenIndices(writer->target, false);
	writer->estate->es_opened_result_relations = list_make1(writer->target);
	writer->estate->es_output_cid = GetCurrentCommandId(true);
	writer->slot = ExecInitExtraTupleSlot(writer->estate, RelationGetDescr(rel), &TTSOpsVirtual);
	if (rel->trigdesc != NULL)
		AfterTriggerBeginQuery();
}

/* What was written is seen by the next statement, and by the next call in the same one. */
static void
end_write(RowWriter *writer)
{
	if (writer->rel->trigdesc != NULL)
		AfterTriggerEndQuery(writer->estate);
	if (writer->as_owner)
		as_owner_end(&writer->save);
	ExecCloseResultRelations(writer->estate);
	ExecResetTupleTable(writer->estate->es_tupleTable, false);
	MemoryContextSwitchTo(writer->caller);
	FreeExecutorState(writer->estate);
	CommandCounterIncrement();
}

static void
set_value(RowWriter *writer, IdempotencyColumn column, Datum value)
{
	writer->slot->tts_values[column] = value;
	writer->slot->tts_isnull[column] = false;
}

/* All but the key. */
static void
set_row(RowWriter *writer, const IdempotencyRow *row)
{
	set_value(writer, IDEMPOTENCY_STATE, PointerGetDatum(cstring_to_text(row->state)));
	set_value(writer, IDEMPOTENCY_RECORDED_AT, TimestampTzGetDatum(row->recorded_at));
	set_value(writer, IDEMPOTENCY_EXPIRES_AT, TimestampTzGetDatum(row->expires_at));
	writer->slot->tts_isnull[IDEMPOTENCY_CLAIMED_BY] = true;
	if (row->claimed_by != NULL)
		set_value(writer, IDEMPOTENCY_CLAIMED_BY, PointerGetDatum(row->claimed_by));
}

/* ---- insert ---- */

/* Of a column that the owner has added. */
static void
set_default(RowWriter *writer, int column)
{
	Form_pg_attribute attribute = TupleDescAttr(RelationGetDescr(writer->rel), column);
	Node *expression = NULL;

	if (!attribute->attisdropped && attribute->attgenerated == '\0')
		expression = build_column_default(writer->rel, attribute->attnum);
	writer->slot->tts_isnull[column] = true;
	if (expression != NULL)
		writer->slot->tts_values[column] =
		    ExecEvalExpr(ExecPrepareExpr((Expr *) expression, writer->estate), GetPerTupleExprContext(writer->estate),
		                 &writer->slot->tts_isnull[column]);
}

static void
fill_new_row(RowWriter *writer, const text *key, const IdempotencyRow *row)
{
	TupleTableSlot *slot = writer->slot;

	ExecClearTuple(slot);
	set_value(writer, IDEMPOTENCY_KEY, PointerGetDatum(key));
	set_row(writer, row);
	for (int i = IDEMPOTENCY_COLUMNS; i < RelationGetDescr(writer->rel)->natts; i++)
		set_default(writer, i);
	ExecStoreVirtualTuple(slot);
	slot->tts_tableOid = RelationGetRelid(writer->rel);
}

/*
 * The primary key, and the twin that REINDEX CONCURRENTLY builds beside it.
 * Any other unique index is the owner's own: what it forbids is an error.
 */
static List *
arbiter_indexes(RowWriter *writer)
{
	List *arbiters = NIL;

	for (int i = 0; i < writer->target->ri_NumIndices; i++)
	{
		Relation index = writer->target->ri_IndexRelationDescs[i];

		if (index->rd_index->indisunique && idempotency_index_is_of_key(index))
			arbiters = lappend_oid(arbiters, RelationGetRelid(index));
	}
	return arbiters;
}

/*
 * As the executor does it for ON CONFLICT DO NOTHING, only that there is no
 * looking first: the caller has looked.  Whoever meets our row before it is
 * complete waits for the lock and not for our transaction.
 */
static bool
insert_speculatively(RowWriter *writer, List **recheck)
{
	TransactionId xid = GetCurrentTransactionId();
	uint32 token = SpeculativeInsertionLockAcquire(xid);
	bool conflict = false;

	table_tuple_insert_speculative(writer->rel, writer->slot, writer->estate->es_output_cid, 0, NULL, token);
	*recheck = compat_insert_index_tuples(writer->target, writer->slot, writer->estate, false, true, &conflict,
	                                      arbiter_indexes(writer), COMPAT_UPDATE_ALL_INDEXES);
	table_tuple_complete_speculative(writer->rel, writer->slot, token, !conflict);
	SpeculativeInsertionLockRelease(xid);
	return !conflict;
}

static IdempotencyWrite
insert_row(RowWriter *writer)
{
	const TriggerDesc *triggers = writer->rel->trigdesc;
	const TupleConstr *constraints = RelationGetDescr(writer->rel)->constr;
	List *recheck = NIL;

	if (triggers != NULL && triggers->trig_insert_before_row &&
	    !ExecBRInsertTriggers(writer->estate, writer->target, writer->slot))
		return WRITE_SUPPRESSED;
	if (constraints != NULL && constraints->has_generated_stored)
		ExecComputeStoredGenerated(writer->target, writer->estate, writer->slot, CMD_INSERT);
	if (constraints != NULL)
		ExecConstraints(writer->target, writer->slot, writer->estate);
	if (!insert_speculatively(writer, &recheck))
		return WRITE_LOST;
	if (triggers != NULL)
		ExecARInsertTriggers(writer->estate, writer->target, writer->slot, recheck, NULL);
	return WRITE_DONE;
}

static SavedPlan insert_plan = {
    "INSERT INTO acemq.idempotency (message_id, state, claimed_by, recorded_at, expires_at) "
    "VALUES ($1, $2, $3, $4, $5) ON CONFLICT (message_id) DO NOTHING",
    5,
    {TEXTOID, TEXTOID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID}};

static SavedPlan update_plan = {
    "UPDATE acemq.idempotency SET state = $2, claimed_by = $3, recorded_at = $4, expires_at = $5 WHERE message_id = $1",
    5,
    {TEXTOID, TEXTOID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID}};

/* True if it changed a row. */
static bool
run_statement(SavedPlan *plan, const text *key, const IdempotencyRow *row)
{
	Datum values[] = {PointerGetDatum(key), CStringGetTextDatum(row->state), PointerGetDatum(row->claimed_by),
	                  TimestampTzGetDatum(row->recorded_at), TimestampTzGetDatum(row->expires_at)};
	AsOwner save;
	bool changed;

	as_owner_begin(&save);
	SPI_connect();
	(void) saved_plan_run_fresh(plan, values, row->claimed_by != NULL ? "     " : "  n  ", false);
	changed = SPI_processed > 0;
	SPI_finish();
	as_owner_end(&save);
	return changed;
}

IdempotencyWrite
idempotency_insert(IdempotencyTable *table, const text *key, const IdempotencyRow *row)
{
	RowWriter writer;
	IdempotencyWrite result;

	/* That no row came of it may be the rule's or the trigger's doing, too. */
	if (is_odd(table->rel) && run_statement(&insert_plan, key, row))
		return WRITE_DONE;
	if (is_odd(table->rel))
		return idempotency_look(table, unconstify(text *, key), GetCurrentTimestamp(), NULL) == LOOK_NOTHING
		           ? WRITE_SUPPRESSED
		           : WRITE_LOST;

	begin_write(&writer, table->rel);
	if (table->rel->trigdesc != NULL)
		ExecBSInsertTriggers(writer.estate, writer.target);
	fill_new_row(&writer, key, row);
	result = insert_row(&writer);
	if (table->rel->trigdesc != NULL)
		ExecASInsertTriggers(writer.estate, writer.target, NULL);
	end_write(&writer);
	return result;
}

/* ---- replace ---- */

/* What is locked is ours to change, without meeting anybody. */
static bool
lock_row(IdempotencyTable *table, bool wait)
{
	ItemPointerData tid = table->row->tts_tid;
	TM_FailureData failure;

	return table_tuple_lock(table->rel, &tid, GetActiveSnapshot(), table->row, GetCurrentCommandId(false),
	                        LockTupleNoKeyExclusive, wait ? LockWaitBlock : LockWaitSkip, 0, &failure) == TM_Ok;
}

static bool
update_row(RowWriter *writer, TupleTableSlot *old)
{
	ItemPointerData tid = old->tts_tid;
	CompatUpdateIndexes indexes;
	TM_FailureData failure;
	LockTupleMode lockmode;

	if (RelationGetDescr(writer->rel)->constr != NULL)
		ExecConstraints(writer->target, writer->slot, writer->estate);
	CheckCmdReplicaIdentity(writer->rel, CMD_UPDATE);
	if (table_tuple_update(writer->rel, &tid, writer->slot, writer->estate->es_output_cid, GetActiveSnapshot(),
	                       InvalidSnapshot, true, &failure, &lockmode, &indexes) != TM_Ok)
		return false;

	/* Not as an update: that would only tell the indexes that their columns are the same, which is not true of all. */
	if (indexes != COMPAT_UPDATE_NO_INDEXES)
		(void) compat_insert_index_tuples(writer->target, writer->slot, writer->estate, false, false, NULL, NIL,
		                                  indexes);
	return true;
}

static bool
replace_directly(IdempotencyTable *table, const IdempotencyRow *row)
{
	RowWriter writer;
	int natts = RelationGetDescr(table->rel)->natts;
	bool done;

	begin_write(&writer, table->rel);
	slot_getallattrs(table->row);
	ExecClearTuple(writer.slot);
	memcpy(writer.slot->tts_values, table->row->tts_values, natts * sizeof(Datum));
	memcpy(writer.slot->tts_isnull, table->row->tts_isnull, natts * sizeof(bool));
	set_row(&writer, row);
	ExecStoreVirtualTuple(writer.slot);
	writer.slot->tts_tableOid = RelationGetRelid(table->rel);
	done = update_row(&writer, table->row);
	end_write(&writer);
	return done;
}

/*
 * An update alone can wait for a lock, but not pass over one, nor over one that
 * it need not mind (of this transaction, or a foreign key's).
 */
IdempotencyWrite
idempotency_replace(IdempotencyTable *table, const text *key, const IdempotencyRow *row, bool wait)
{
	bool direct = !is_odd_to_update(table->rel);

	if ((!wait || !direct) && !lock_row(table, wait))
		return WRITE_LOST;
	if (direct)
		return replace_directly(table, row) ? WRITE_DONE : WRITE_LOST;
	return run_statement(&update_plan, key, row) ? WRITE_DONE : WRITE_SUPPRESSED;
}
