/*-------------------------------------------------------------------------
 *
 * outbox_look.c
 *		Single facts about the outbox that the relay asks for: the next due
 *		time, the first and last id, how many rows there are, and whether this
 *		database may relay at all.
 *
 * May depend on: db.h, outbox_store.h.
 *
 *-------------------------------------------------------------------------
 */
#include "outbox_store.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xlog.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

/* The first column of the first row; null when there is no row. */
static Datum
look_up(DbStatement *statement, Datum argument, bool *isnull)
{
	Datum values[] = {argument};

	*isnull = true;
	if (db_execute(statement, values, NULL, 1, SPI_OK_SELECT) == 0)
		return (Datum) 0;
	return SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, isnull);
}

static TimestampTz
look_up_time(DbStatement *statement, Datum argument)
{
	bool isnull;
	Datum value = look_up(statement, argument, &isnull);

	if (isnull)
		return 0;
	return DatumGetTimestampTz(value) != 0 ? DatumGetTimestampTz(value) : 1; /* as read_time() does */
}

static int64
look_up_id(DbStatement *statement, Datum argument)
{
	bool isnull;
	Datum value = look_up(statement, argument, &isnull);

	return isnull ? 0 : DatumGetInt64(value);
}

TimestampTz
store_next_due(TimestampTz after)
{
	static DbStatement statement = {
	    "SELECT not_before FROM acemq.outbox WHERE retired_at IS NULL AND published_at IS NULL"
	    " AND not_before OPERATOR(pg_catalog.>) $1 ORDER BY not_before LIMIT 1",
	    1,
	    {TIMESTAMPTZOID}};

	return look_up_time(&statement, TimestampTzGetDatum(after));
}

int64
store_first_id(int64 from)
{
	static DbStatement statement = {"SELECT id FROM acemq.outbox WHERE retired_at IS NULL AND published_at IS NULL"
	                                " AND id OPERATOR(pg_catalog.>=) $1 ORDER BY id LIMIT 1",
	                                1,
	                                {INT8OID}};

	return look_up_id(&statement, Int64GetDatum(from));
}

int64
store_any_id(int64 from)
{
	static DbStatement statement = {
	    "SELECT id FROM acemq.outbox WHERE id OPERATOR(pg_catalog.>=) $1 ORDER BY id LIMIT 1", 1, {INT8OID}};

	return look_up_id(&statement, Int64GetDatum(from));
}

TimestampTz
store_oldest(int64 from)
{
	static DbStatement statement = {
	    "SELECT GREATEST(created_at, CASE WHEN attempts OPERATOR(pg_catalog.=) 0 THEN next_attempt_at END)"
	    " FROM acemq.outbox WHERE retired_at IS NULL AND published_at IS NULL AND not_before IS NULL"
	    " AND id OPERATOR(pg_catalog.>=) $1 ORDER BY id LIMIT 1",
	    1,
	    {INT8OID}};

	return look_up_time(&statement, Int64GetDatum(from));
}

int64
store_last_id(void)
{
	static DbStatement statement = {"SELECT id FROM acemq.outbox ORDER BY id DESC LIMIT 1", 0, {0}};

	return look_up_id(&statement, (Datum) 0);
}

static int
compare_ids(const void *a, const void *b)
{
	int64 x = *(const int64 *) a;
	int64 y = *(const int64 *) b;

	return (x > y) - (x < y);
}

void
store_kept_until(const int64 *ids, int count, TimestampTz *until)
{
	static DbStatement statement = {
	    "SELECT id, GREATEST(next_attempt_at, leased_until) FROM acemq.outbox"
	    " WHERE id OPERATOR(pg_catalog.=) ANY ($1) AND retired_at IS NULL AND published_at IS NULL ORDER BY id",
	    1,
	    {INT8ARRAYOID}};
	Datum values[] = {db_int8_array(ids, count)};
	int nfound = (int) db_execute(&statement, values, NULL, 0, SPI_OK_SELECT);
	int64 *found = palloc(sizeof(int64) * Max(nfound, 1));
	bool isnull;

	for (int i = 0; i < nfound; i++)
		found[i] = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull));
	for (int i = 0; i < count; i++)
	{
		int64 *match = bsearch(&ids[i], found, nfound, sizeof(int64), compare_ids);
		Datum value;

		until[i] = STORE_ROW_GONE;
		if (match == NULL)
			continue;
		value = SPI_getbinval(SPI_tuptable->vals[match - found], SPI_tuptable->tupdesc, 2, &isnull);
		until[i] = isnull ? STORE_ROW_FREE : DatumGetTimestampTz(value);
	}
	SPI_freetuptable(SPI_tuptable);
}

void
store_count(int64 from, int64 upto, int64 *pending, int64 *retired)
{
	static DbStatement statement = {
	    "SELECT pg_catalog.count(*) FILTER (WHERE retired_at IS NULL),"
	    " pg_catalog.count(*) FILTER (WHERE retired_at IS NOT NULL) FROM acemq.outbox"
	    " WHERE published_at IS NULL AND id OPERATOR(pg_catalog.>=) $1 AND id OPERATOR(pg_catalog.<=) $2",
	    2,
	    {INT8OID, INT8OID}};
	Datum values[] = {Int64GetDatum(from), Int64GetDatum(upto)};
	bool isnull;

	db_execute(&statement, values, NULL, 1, SPI_OK_SELECT);
	*pending = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	*retired = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2, &isnull));
}

bool
store_prepared_exists(void)
{
	static DbStatement statement = {"SELECT 1 FROM pg_catalog.pg_prepared_xacts WHERE database OPERATOR(pg_catalog.=) "
	                                "pg_catalog.current_database() LIMIT 1",
	                                0,
	                                {0}};

	return db_execute(&statement, NULL, NULL, 1, SPI_OK_SELECT) > 0;
}

/*
 * The table has one row, two in a restored copy, so it is read as a heap scan:
 * this is asked in every turn that reads rows, and an idle worker should cost
 * one statement per poll.
 */
StoreFence
store_fence(void)
{
	Oid table = get_relname_relid("identity", get_namespace_oid(ACEMQ_SCHEMA, false));
	Relation rel = table_open(table, AccessShareLock);
	TableScanDesc scan = table_beginscan(rel, GetActiveSnapshot(), 0, NULL);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	StoreFence fence = STORE_OWN;
	bool own_row = false;

	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		bool isnull;
		uint64 system = (uint64) DatumGetInt64(slot_getattr(slot, 1, &isnull));
		Oid database = DatumGetObjectId(slot_getattr(slot, 2, &isnull));
		bool paused = DatumGetBool(slot_getattr(slot, 3, &isnull));

		if (system != GetSystemIdentifier() || database != MyDatabaseId)
			fence = STORE_FOREIGN;
		else
		{
			own_row = true;
			if (paused && fence == STORE_OWN)
				fence = STORE_PAUSED;
		}
	}
	ExecDropSingleTupleTableSlot(slot);
	table_endscan(scan);
	table_close(rel, NoLock);
	return own_row ? fence : STORE_FOREIGN;
}

Oid
store_table_file(void)
{
	Oid table = get_relname_relid("outbox", get_namespace_oid(ACEMQ_SCHEMA, false));
	HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(table));
	Oid file;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", table);
	file = ((Form_pg_class) GETSTRUCT(tuple))->relfilenode;
	ReleaseSysCache(tuple);
	return file;
}
