/*-------------------------------------------------------------------------
 *
 * outbox_store.c
 *		Reading rows of the outbox for the relay.
 *
 * Every reader selects by state (pending), never by "id > last seen" alone:
 * which ids to look at is the relay's business (relay_fetch.c).  A row that
 * somebody is cancelling right now is still visible to us, but its xmax is
 * set: then we ask for the lock without waiting and say so if it is not to be
 * had.  That costs the rows that nobody touches nothing.
 *
 * May depend on: db.h.
 *
 *-------------------------------------------------------------------------
 */
#include "outbox_store.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#define ROW_SELECT                                                                                                     \
	"SELECT " OUTBOX_ROW_COLUMNS " FROM acemq.outbox"                                                                  \
	" WHERE retired_at IS NULL AND published_at IS NULL"

#define WAS_DUE_AT(time) " AND (not_before IS NULL OR not_before OPERATOR(pg_catalog.<=) " time ")"

/* Rows for the ladder are in the lane of its exchange: see lanes.c. */
#define LANE_EXCHANGE_OF_ROW "(CASE WHEN ladder_due_at IS NULL THEN exchange ELSE '" LADDER_EXCHANGE "' END)"

/* The row being offered, for store_keep_row(). */
typedef struct OfferedRow
{
	HeapTuple tuple;
	TupleDesc desc;
} OfferedRow;

static OfferedRow offered;

static StoreScan offer_rows(long limit, StoreReader reader, void *arg);
static StoreScan offer_lane_rows(long limit, StoreReader reader, void *arg);
static void look_at_row(OutboxRow *row, HeapTuple tuple);
static bool can_lock(int64 id);

StoreScan
store_scan_ids(int64 from, int64 upto, int limit, StoreReader reader, void *arg)
{
	static DbStatement statement = {
	    ROW_SELECT " AND id OPERATOR(pg_catalog.>=) $1 AND id OPERATOR(pg_catalog.<=) $2 ORDER BY id LIMIT $3",
	    3,
	    {INT8OID, INT8OID, INT8OID}};
	Datum values[] = {Int64GetDatum(from), Int64GetDatum(upto), Int64GetDatum(limit)};

	db_select(&statement, values, NULL);
	return offer_rows(limit, reader, arg);
}

StoreScan
store_scan_undated(int64 from, int64 upto, const char *but_exchange, const char *but_queue, int limit,
                   StoreReader reader, void *arg)
{
	static DbStatement statement = {ROW_SELECT " AND not_before IS NULL"
	                                           " AND id OPERATOR(pg_catalog.>=) $1 AND id OPERATOR(pg_catalog.<=) $2"
	                                           " AND ($3 IS NULL OR ordering_key IS NOT NULL OR " LANE_EXCHANGE_OF_ROW
	                                           " OPERATOR(pg_catalog.<>) $3"
	                                           "      OR routing_key OPERATOR(pg_catalog.<>) $4) ORDER BY id LIMIT $5",
	                                5,
	                                {INT8OID, INT8OID, TEXTOID, TEXTOID, INT8OID}};
	Datum values[] = {Int64GetDatum(from), Int64GetDatum(upto),
	                  but_exchange ? CStringGetTextDatum(outbox_row_name(but_exchange)) : (Datum) 0,
	                  but_queue ? CStringGetTextDatum(outbox_row_name(but_queue)) : (Datum) 0, Int64GetDatum(limit)};

	db_select(&statement, values, but_queue ? "     " : but_exchange ? "   n " : "  nn ");
	return offer_rows(limit, reader, arg);
}

StoreScan
store_scan_key(const char *ordering_key, int64 from, int64 upto, TimestampTz due, int limit, StoreReader reader,
               void *arg)
{
	static DbStatement statement = {
	    ROW_SELECT
	    " AND ordering_key OPERATOR(pg_catalog.=) $1"
	    " AND id OPERATOR(pg_catalog.>=) $2 AND id OPERATOR(pg_catalog.<=) $3" WAS_DUE_AT("$4") " ORDER BY id LIMIT $5",
	    5,
	    {TEXTOID, INT8OID, INT8OID, TIMESTAMPTZOID, INT8OID}};
	Datum values[] = {CStringGetTextDatum(outbox_row_name(ordering_key)), Int64GetDatum(from), Int64GetDatum(upto),
	                  TimestampTzGetDatum(due), Int64GetDatum(limit)};

	db_select(&statement, values, NULL);
	return offer_lane_rows(limit, reader, arg);
}

StoreScan
store_scan_exchange(const char *exchange, const char *queue, int64 from, int64 upto, TimestampTz due, int limit,
                    StoreReader reader, void *arg)
{
	static DbStatement statement = {
	    ROW_SELECT
	    " AND ordering_key IS NULL AND " LANE_EXCHANGE_OF_ROW " OPERATOR(pg_catalog.=) $1"
	    " AND ($2 IS NULL OR routing_key OPERATOR(pg_catalog.=) $2)"
	    " AND id OPERATOR(pg_catalog.>=) $3 AND id OPERATOR(pg_catalog.<=) $4" WAS_DUE_AT("$5") " ORDER BY id LIMIT $6",
	    6,
	    {TEXTOID, TEXTOID, INT8OID, INT8OID, TIMESTAMPTZOID, INT8OID}};
	Datum values[] = {CStringGetTextDatum(outbox_row_name(exchange)),
	                  queue ? CStringGetTextDatum(outbox_row_name(queue)) : (Datum) 0,
	                  Int64GetDatum(from),
	                  Int64GetDatum(upto),
	                  TimestampTzGetDatum(due),
	                  Int64GetDatum(limit)};

	db_select(&statement, values, queue ? "      " : " n    ");
	return offer_lane_rows(limit, reader, arg);
}

StoreScan
store_scan_due(TimestampTz from, int64 after_id, TimestampTz upto, int limit, StoreReader reader, void *arg)
{
	static DbStatement statement = {ROW_SELECT " AND ROW(not_before, id) OPERATOR(pg_catalog.>) ROW($1, $2)"
	                                           " AND not_before OPERATOR(pg_catalog.<=) $3"
	                                           " ORDER BY not_before, id LIMIT $4",
	                                4,
	                                {TIMESTAMPTZOID, INT8OID, TIMESTAMPTZOID, INT8OID}};
	Datum values[] = {TimestampTzGetDatum(from), Int64GetDatum(after_id), TimestampTzGetDatum(upto),
	                  Int64GetDatum(limit)};

	db_select(&statement, values, NULL);
	return offer_rows(limit, reader, arg);
}

/*
 * Offer what the last statement returned.  The scan is complete when the
 * statement found less than its limit and the reader refused nothing.
 */
static StoreScan
offer_rows(long limit, StoreReader reader, void *arg)
{
	SPITupleTable *rows = SPI_tuptable;
	uint64 count = SPI_processed;
	StoreScan scan = {0, (long) count < limit};

	offered.desc = rows->tupdesc;
	for (uint64 i = 0; i < count; i++)
	{
		OutboxRow row;

		offered.tuple = rows->vals[i];
		look_at_row(&row, rows->vals[i]);
		if (!reader(arg, &row))
		{
			scan.complete = false;
			break;
		}
		scan.last_id = row.id;
	}
	SPI_freetuptable(rows);
	return scan;
}

typedef struct LaneRow
{
	OutboxRow row;
	HeapTuple tuple;
} LaneRow;

static int
in_lane_order(const void *a, const void *b)
{
	const OutboxRow *first = &((const LaneRow *) a)->row;
	const OutboxRow *second = &((const LaneRow *) b)->row;

	return row_goes_before(first, second) ? -1 : row_goes_before(second, first) ? 1 : 0;
}

/* The same for rows of a lane: found in the order of ids, offered in that of the lane. */
static StoreScan
offer_lane_rows(long limit, StoreReader reader, void *arg)
{
	SPITupleTable *rows = SPI_tuptable;
	uint64 count = SPI_processed;
	LaneRow *sorted = palloc(sizeof(LaneRow) * Max(count, 1));
	StoreScan scan = {0, (long) count < limit};
	bool dated = false;
	uint64 taken = 0;

	offered.desc = rows->tupdesc;
	for (uint64 i = 0; i < count; i++)
	{
		sorted[i].tuple = rows->vals[i];
		look_at_row(&sorted[i].row, rows->vals[i]);
		dated |= sorted[i].row.not_before != 0;
		scan.last_id = sorted[i].row.id;
	}
	if (dated)
		qsort(sorted, count, sizeof(LaneRow), in_lane_order);

	while (taken < count)
	{
		offered.tuple = sorted[taken].tuple;
		if (!reader(arg, &sorted[taken].row))
			break;
		taken++;
	}
	/* What was taken from behind a refused one is in memory, and passed over the next time. */
	for (uint64 i = taken; i < count; i++)
	{
		scan.complete = false;
		scan.last_id = Min(scan.last_id, sorted[i].row.id - 1);
	}
	pfree(sorted);
	SPI_freetuptable(rows);
	return scan;
}

/* The row of a tuple of offered.desc. */
static void
look_at_row(OutboxRow *row, HeapTuple tuple)
{
	outbox_row_read(row, tuple, offered.desc);
	row->locked = row->locked && !can_lock(row->id);
}

static bool
can_lock(int64 id)
{
	static DbStatement statement = {
	    "SELECT 1 FROM acemq.outbox WHERE id OPERATOR(pg_catalog.=) $1 FOR UPDATE SKIP LOCKED", 1, {INT8OID}};
	Datum values[] = {Int64GetDatum(id)};
	bool got = db_execute(&statement, values, NULL, 1, SPI_OK_SELECT) > 0;

	SPI_freetuptable(SPI_tuptable);
	return got;
}

OutboxRow *
store_keep_row(const OutboxRow *row, MemoryContext context)
{
	return outbox_row_keep(row, offered.tuple, offered.desc, context);
}
