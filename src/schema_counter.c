/*
 * schema_counter.c
 *		acemq.schema_registry_seq: the row that hands out ids, and the queue of
 *		those who register.
 *
 * Not a sequence, because a sequence does not wait: with the lock on the row
 * ids follow the order of commits, the versions of a subject have no gaps, and
 * an id that was rolled back is used again.  The AceMQ libraries lock the same row.
 *
 * May depend on: as_owner.h, saved_plan.h, store_table.h.
 */
#include "schema_counter.h"

#include "as_owner.h"
#include "saved_plan.h"
#include "store_table.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(acemq_schema_registry_seq_insert);

static SavedPlan lock_counter = {
    "SELECT last_id::bigint FROM acemq.schema_registry_seq WHERE only_row = 1 FOR UPDATE", 0, {0}};

static SavedPlan raise_counter = {
    "UPDATE acemq.schema_registry_seq SET last_id = greatest(last_id, $1) WHERE only_row = 1", 1, {INT4OID}};

int32
schema_counter_lock(void)
{
	int32 last_id;

	saved_plan_run_fresh(&lock_counter, NULL, NULL, false);
	if (SPI_processed == 0)
		ereport(ERROR,
		        (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
		         errmsg("table \"acemq.schema_registry_seq\" has no row"),
		         errdetail("It has one row that counts the ids of schemas."),
		         errhint("Put it back with INSERT INTO acemq.schema_registry_seq SELECT 1, COALESCE(max(id), 0) FROM "
		                 "acemq.schema_registry; or with a higher last_id if schemas were deleted.")));
	last_id = (int32) spi_int64(0, 1);
	SPI_freetuptable(SPI_tuptable);
	return last_id;
}

void
schema_counter_raise(int32 id)
{
	Datum values[] = {Int32GetDatum(id)};

	saved_plan_run_fresh(&raise_counter, values, NULL, false);
}

static bool
raise_in_place(int32 id)
{
	AsOwner save;
	uint64 there;

	as_owner_begin(&save);
	SPI_connect();
	schema_counter_raise(id);
	there = SPI_processed;
	SPI_finish();
	as_owner_end(&save);
	return there > 0;
}

/*
 * Before a row is inserted.  CREATE EXTENSION makes the row, and a dump that is
 * restored brings another: the higher of the two counts, since neither may hand
 * out an id again.  What is no such row is left to the constraints.
 */
Datum
acemq_schema_registry_seq_insert(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	HeapTuple row;
	TupleDesc desc;
	Datum only_row;
	Datum last_id;
	bool isnull[2];

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_BEFORE(trigger->tg_event) ||
	    !TRIGGER_FIRED_FOR_ROW(trigger->tg_event) || !TRIGGER_FIRED_BY_INSERT(trigger->tg_event))
		ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
		                errmsg("function \"%s\" can only be called as a trigger before insert",
		                       "_schema_registry_seq_insert")));
	if (strcmp(RelationGetRelationName(trigger->tg_relation), store_schema_registry_seq.name) != 0 ||
	    !store_table_is_ours(trigger->tg_relation, &store_schema_registry_seq))
		store_table_refuse(&store_schema_registry_seq);
	row = trigger->tg_trigtuple;
	desc = RelationGetDescr(trigger->tg_relation);
	only_row = heap_getattr(row, 1, desc, &isnull[0]);
	last_id = heap_getattr(row, 2, desc, &isnull[1]);
	if (isnull[0] || isnull[1] || DatumGetInt32(only_row) != 1)
		return PointerGetDatum(row);
	return PointerGetDatum(raise_in_place(DatumGetInt32(last_id)) ? NULL : row);
}
