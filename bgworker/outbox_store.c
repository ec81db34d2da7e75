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
 * Bodies are not detoasted until the relay keeps the row, so a scan over rows
 * of a held lane does not read megabytes for nothing.
 *
 * May depend on: db.h, src/compat.h.
 *
 *-------------------------------------------------------------------------
 */
#include "outbox_store.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "compat.h"

#define ROW_COLUMNS                                                                                                    \
	"id, xmax, created_at, not_before, ladder_due_at, next_attempt_at, leased_until, attempts, version, expiration,"   \
	" priority, persistent, message_id, exchange, routing_key, content_type, type, origin, correlation_id, "           \
	"causation_id,"                                                                                                    \
	" reply_to, ordering_key, headers, body"

#define ROW_SELECT                                                                                                     \
	"SELECT " ROW_COLUMNS " FROM acemq.outbox"                                                                         \
	" WHERE retired_at IS NULL AND published_at IS NULL"

#define WAS_DUE_AT(time) " AND (not_before IS NULL OR not_before OPERATOR(pg_catalog.<=) " time ")"

/* Rows for the ladder are in the lane of its exchange: see lanes.c. */
#define LANE_EXCHANGE_OF_ROW "(CASE WHEN ladder_due_at IS NULL THEN exchange ELSE '" LADDER_EXCHANGE "' END)"

enum
{
	COL_ID = 1,
	COL_XMAX,
	COL_CREATED_AT,
	COL_NOT_BEFORE,
	COL_LADDER_DUE_AT,
	COL_NEXT_ATTEMPT_AT,
	COL_LEASED_UNTIL,
	COL_ATTEMPTS,
	COL_VERSION,
	COL_EXPIRATION,
	COL_PRIORITY,
	COL_PERSISTENT,
	COL_MESSAGE_ID,
	COL_EXCHANGE,
	COL_ROUTING_KEY,
	COL_CONTENT_TYPE,
	COL_TYPE,
	COL_ORIGIN,
	COL_CORRELATION_ID,
	COL_CAUSATION_ID,
	COL_REPLY_TO,
	COL_ORDERING_KEY,
	COL_HEADERS,
	COL_BODY
};

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
static void read_row(HeapTuple tuple, TupleDesc desc, OutboxRow *row);
static TimestampTz read_time(HeapTuple tuple, TupleDesc desc, int column);
static int64 read_int(HeapTuple tuple, TupleDesc desc, int column, Oid type, int64 if_null);
static char *read_text(HeapTuple tuple, TupleDesc desc, int column);
static bool can_lock(int64 id);
static char *to_utf8(char *string);
static char *from_utf8(const char *string);

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
	                  but_exchange ? CStringGetTextDatum(from_utf8(but_exchange)) : (Datum) 0,
	                  but_queue ? CStringGetTextDatum(from_utf8(but_queue)) : (Datum) 0, Int64GetDatum(limit)};

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
	Datum values[] = {CStringGetTextDatum(from_utf8(ordering_key)), Int64GetDatum(from), Int64GetDatum(upto),
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
	Datum values[] = {CStringGetTextDatum(from_utf8(exchange)),
	                  queue ? CStringGetTextDatum(from_utf8(queue)) : (Datum) 0,
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
	bool isnull;
	TransactionId locker = DatumGetTransactionId(SPI_getbinval(tuple, offered.desc, COL_XMAX, &isnull));

	memset(row, 0, sizeof(OutboxRow));
	read_row(tuple, offered.desc, row);
	row->locked = TransactionIdIsValid(locker) && !can_lock(row->id);
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

static void
read_row(HeapTuple tuple, TupleDesc desc, OutboxRow *row)
{
	bool isnull;
	Datum headers;
	Datum body = SPI_getbinval(tuple, desc, COL_BODY, &isnull);

	row->id = read_int(tuple, desc, COL_ID, INT8OID, 0);
	row->created_at = read_time(tuple, desc, COL_CREATED_AT);
	row->not_before = read_time(tuple, desc, COL_NOT_BEFORE);
	row->ladder_due_at = read_time(tuple, desc, COL_LADDER_DUE_AT);
	row->next_attempt_at = read_time(tuple, desc, COL_NEXT_ATTEMPT_AT);
	row->leased_until = read_time(tuple, desc, COL_LEASED_UNTIL);
	row->attempts = (int) read_int(tuple, desc, COL_ATTEMPTS, INT4OID, 0);
	row->version = (int) read_int(tuple, desc, COL_VERSION, INT4OID, 1);
	row->expiration = read_int(tuple, desc, COL_EXPIRATION, INT8OID, -1);
	row->priority = (int) read_int(tuple, desc, COL_PRIORITY, INT2OID, -1);
	row->persistent = DatumGetBool(SPI_getbinval(tuple, desc, COL_PERSISTENT, &isnull));
	row->message_id = read_text(tuple, desc, COL_MESSAGE_ID);
	row->exchange = read_text(tuple, desc, COL_EXCHANGE);
	row->routing_key = read_text(tuple, desc, COL_ROUTING_KEY);
	row->content_type = read_text(tuple, desc, COL_CONTENT_TYPE);
	row->type = read_text(tuple, desc, COL_TYPE);
	row->origin = read_text(tuple, desc, COL_ORIGIN);
	row->correlation_id = read_text(tuple, desc, COL_CORRELATION_ID);
	row->causation_id = read_text(tuple, desc, COL_CAUSATION_ID);
	row->reply_to = read_text(tuple, desc, COL_REPLY_TO);
	row->ordering_key = read_text(tuple, desc, COL_ORDERING_KEY);
	headers = SPI_getbinval(tuple, desc, COL_HEADERS, &isnull);
	row_choose_rung(row, 0);
	row->body_len = toast_raw_datum_size(body) - VARHDRSZ;
	row->size = row->body_len + (isnull ? 0 : toast_raw_datum_size(headers)) + sizeof(OutboxRow);
}

/* 0 is none; the moment that is stored as 0, 2000-01-01 in UTC, is taken for the microsecond after it. */
static TimestampTz
read_time(HeapTuple tuple, TupleDesc desc, int column)
{
	bool isnull;
	Datum value = SPI_getbinval(tuple, desc, column, &isnull);

	if (isnull)
		return 0;
	return DatumGetTimestampTz(value) != 0 ? DatumGetTimestampTz(value) : 1;
}

static int64
read_int(HeapTuple tuple, TupleDesc desc, int column, Oid type, int64 if_null)
{
	bool isnull;
	Datum value = SPI_getbinval(tuple, desc, column, &isnull);

	if (isnull)
		return if_null;
	switch (type)
	{
		case INT2OID:
			return DatumGetInt16(value);
		case INT4OID:
			return DatumGetInt32(value);
		default:
			return DatumGetInt64(value);
	}
}

/*
 * From one encoding to another; the same string if it does not convert.
 * outbox_add has made sure that names do; a row put in by hand may hold one
 * that does not, and must not stop the others: it goes out byte for byte, and
 * the broker decides.
 */
static char *
convert_name(const char *string, int from, int to)
{
	int len = strlen(string);
	Oid conversion;
	char *converted;

	if (from == to || from == PG_SQL_ASCII || to == PG_SQL_ASCII || len == 0)
		return unconstify(char *, string);
	conversion = FindDefaultConversionProc(from, to);
	if (!OidIsValid(conversion))
		return unconstify(char *, string);
	converted = palloc(len * MAX_CONVERSION_GROWTH + 1);
	if (pg_do_encoding_conversion_buf(conversion, from, to, (unsigned char *) unconstify(char *, string), len,
	                                  (unsigned char *) converted, len * MAX_CONVERSION_GROWTH + 1, true) < len)
		return unconstify(char *, string);
	return converted;
}

static char *
to_utf8(char *string)
{
	return convert_name(string, GetDatabaseEncoding(), PG_UTF8);
}

/* Of what to_utf8() has made. */
static char *
from_utf8(const char *string)
{
	return convert_name(string, PG_UTF8, GetDatabaseEncoding());
}

static char *
read_text(HeapTuple tuple, TupleDesc desc, int column)
{
	bool isnull;
	Datum value = SPI_getbinval(tuple, desc, column, &isnull);

	return isnull ? NULL : to_utf8(TextDatumGetCString(value));
}

/* ---- keeping a row ---- */

static char *
copy_text(char **next, const char *text)
{
	Size len;
	char *copy;

	if (text == NULL)
		return NULL;
	len = strlen(text) + 1;
	copy = *next;
	memcpy(copy, text, len);
	*next += len;
	return copy;
}

static Size
text_size(const char *text)
{
	return text ? strlen(text) + 1 : 0;
}

/* One chunk for the struct, the headers, the texts and the body, so that a row costs one palloc and one pfree. */
OutboxRow *
store_keep_row(const OutboxRow *row, MemoryContext context)
{
	bool isnull;
	struct varlena *stored =
	    (struct varlena *) DatumGetPointer(SPI_getbinval(offered.tuple, offered.desc, COL_BODY, &isnull));
	struct varlena *body = pg_detoast_datum_packed(stored);
	Size body_len = VARSIZE_ANY_EXHDR(body);
	Datum stored_headers = SPI_getbinval(offered.tuple, offered.desc, COL_HEADERS, &isnull);
	Jsonb *headers = isnull ? NULL : DatumGetJsonbP(stored_headers);
	Size headers_len = headers ? MAXALIGN(VARSIZE(headers)) : 0;
	Size size;
	OutboxRow *copy;
	char *next;

	size = MAXALIGN(sizeof(OutboxRow)) + headers_len + text_size(row->message_id) + text_size(row->exchange) +
	       text_size(row->routing_key) + text_size(row->content_type) + text_size(row->type) + text_size(row->origin) +
	       text_size(row->correlation_id) + text_size(row->causation_id) + text_size(row->reply_to) +
	       text_size(row->ordering_key) + body_len;
	copy = MemoryContextAllocHuge(context, size);
	*copy = *row;
	copy->size = size;
	next = (char *) copy + MAXALIGN(sizeof(OutboxRow));
	if (headers)
	{
		copy->headers = (Jsonb *) next;
		memcpy(next, headers, VARSIZE(headers));
		next += headers_len;
	}
	copy->message_id = copy_text(&next, row->message_id);
	copy->exchange = copy_text(&next, row->exchange);
	copy->routing_key = copy_text(&next, row->routing_key);
	copy->content_type = copy_text(&next, row->content_type);
	copy->type = copy_text(&next, row->type);
	copy->origin = copy_text(&next, row->origin);
	copy->correlation_id = copy_text(&next, row->correlation_id);
	copy->causation_id = copy_text(&next, row->causation_id);
	copy->reply_to = copy_text(&next, row->reply_to);
	copy->ordering_key = copy_text(&next, row->ordering_key);
	copy->body = next;
	copy->body_len = body_len;
	memcpy(next, VARDATA_ANY(body), body_len);

	if (body != stored)
		pfree(body);
	if (headers && PointerGetDatum(headers) != stored_headers)
		pfree(headers);
	return copy;
}
