/*-------------------------------------------------------------------------
 *
 * idempotency_purge.c
 *		Remove expired rows of acemq.idempotency, a batch at a time.
 *
 * May depend on: db.h, src/compat.h, src/shmem.h, src/store_table.h.
 *
 *-------------------------------------------------------------------------
 */
#include "idempotency_purge.h"

#include "access/genam.h"
#include "access/relscan.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "db.h"
#include "shmem.h"
#include "store_table.h"

typedef struct PurgeTurn
{
	int limit;
	TimestampTz *from;
	TimestampTz now;
	PurgeResult result;
	int64 purged;
} PurgeTurn;

/*
 * Is there anything between the two times?  Asked of the index itself, because
 * an idle worker asks for ever.  Without that index (its owner may have
 * dropped it) the statement has to find out.
 */
static bool
anything_expired(Oid table, Oid expiry, const PurgeTurn *turn)
{
	Relation rel = table_open(table, NoLock);
	Relation index = index_open(expiry, AccessShareLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	IndexScanDesc scan = compat_index_beginscan(rel, index, GetActiveSnapshot(), 2);
	ScanKeyData between[2];
	bool found;

	ScanKeyInit(&between[0], 1, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE, TimestampTzGetDatum(*turn->from));
	ScanKeyInit(&between[1], 1, BTLessEqualStrategyNumber, F_TIMESTAMPTZ_LE, TimestampTzGetDatum(turn->now));
	index_rescan(scan, between, 2, NULL, 0);
	found = index_getnext_slot(scan, ForwardScanDirection, slot);
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	index_close(index, NoLock);
	table_close(rel, NoLock);
	return found;
}

/* Whoever calls a function of the store is told what is wrong with it. */
static bool
is_ours(Oid table)
{
	Relation rel = try_table_open(table, NoLock);
	bool ours = rel != NULL && store_table_is_ours(rel, &store_idempotency);

	if (rel != NULL)
		table_close(rel, NoLock);
	return ours;
}

/* It may be another index of that name by now, or one that is not finished. */
static bool
is_expiry_index(Oid table, Oid expiry)
{
	Relation index;
	bool is;

	if (!OidIsValid(expiry) || !ConditionalLockRelationOid(expiry, AccessShareLock) ||
	    get_rel_relkind(expiry) != RELKIND_INDEX)
		return false;
	index = index_open(expiry, NoLock);
	is = index->rd_index->indrelid == table && index->rd_rel->relam == BTREE_AM_OID && index->rd_index->indisvalid &&
	     RelationGetIndexPredicate(index) == NIL && index->rd_index->indkey.values[0] != 0 &&
	     get_atttype(table, index->rd_index->indkey.values[0]) == TIMESTAMPTZOID &&
	     strcmp(get_attname(table, index->rd_index->indkey.values[0], false), "expires_at") == 0;
	index_close(index, NoLock);
	return is;
}

/* What is locked is being taken over, or confirmed late. */
static void
delete_batch(PurgeTurn *turn)
{
	static DbStatement statement = {
	    "WITH gone AS (DELETE FROM ONLY acemq.idempotency WHERE ctid OPERATOR(pg_catalog.=) ANY (ARRAY("
	    "SELECT ctid FROM ONLY acemq.idempotency WHERE expires_at OPERATOR(pg_catalog.>=) $1"
	    " AND expires_at OPERATOR(pg_catalog.<=) $2 ORDER BY expires_at LIMIT $3 FOR UPDATE SKIP LOCKED))"
	    " RETURNING expires_at) SELECT pg_catalog.count(*), pg_catalog.max(expires_at) FROM gone",
	    3,
	    {TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID}};
	Datum values[] = {TimestampTzGetDatum(*turn->from), TimestampTzGetDatum(turn->now), Int64GetDatum(turn->limit)};
	bool isnull;
	int64 count;
	Datum last;

	db_execute(&statement, values, NULL, 0, SPI_OK_SELECT);
	count = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	last = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2, &isnull);
	if (!isnull)
		*turn->from = DatumGetTimestampTz(last);
	turn->purged = count;
	turn->result = count == turn->limit ? PURGE_FULL_BATCH : count > 0 ? PURGE_LAST_BATCH : PURGE_NOTHING;
}

/* db_run() knows what to do with these. */
static bool
is_about_the_moment(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE || error->sqlerrcode == ERRCODE_QUERY_CANCELED ||
	       error->sqlerrcode == ERRCODE_T_R_DEADLOCK_DETECTED;
}

static void
report_failure(PurgeTurn *turn, ErrorData *error)
{
	if (is_about_the_moment(error))
		ReThrowError(error);
	turn->result = PURGE_FAILED;
	turn->purged = 0;
	ereport(WARNING, (errcode(error->sqlerrcode),
	                  errmsg("acemq: expired rows of the idempotency store are not removed: %s", error->message),
	                  errhint("Look at what has been put on table acemq.idempotency; acemq.idempotency_purge() shows "
	                          "the error.")));
	FreeErrorData(error);
}

/*
 * A foreign key on the table, or a trigger, may refuse.  That is no reason for
 * the worker to die, and the relay with it.
 */
static void
delete_in_subtransaction(PurgeTurn *turn)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		delete_batch(turn);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	if (error != NULL)
		report_failure(turn, error);
}

/* Nothing is lost if a crash brings the rows back, so the commit does not wait for the disk. */
static void
purge(void *arg)
{
	PurgeTurn *turn = arg;
	Oid schema = get_namespace_oid(ACEMQ_SCHEMA, true);
	Oid table = OidIsValid(schema) ? get_relname_relid("idempotency", schema) : InvalidOid;
	Oid expiry;

	if (!OidIsValid(table) || !ConditionalLockRelationOid(table, RowExclusiveLock))
		return;
	expiry = get_relname_relid("idempotency_expiry", schema);
	if (!is_ours(table))
		return;
	if (is_expiry_index(table, expiry) && !anything_expired(table, expiry, turn))
		return;
	(void) set_config_option("synchronous_commit", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
	delete_in_subtransaction(turn);
}

PurgeResult
idempotency_purge_batch(int limit, TimestampTz *from)
{
	PurgeTurn turn = {limit, from, GetCurrentTimestamp(), PURGE_NOTHING, 0};
	AcemqSlot *slot = acemq_my_slot();

	/* A turn that was skipped comes again like one that found nothing. */
	if (db_run(purge, &turn, "acemq: removing expired rows of the idempotency store") == DB_DONE && slot != NULL)
		pg_atomic_fetch_add_u64(&slot->claims_purged, turn.purged);
	return turn.result;
}
