/*-------------------------------------------------------------------------
 *
 * outbox_row.c
 *		A tuple of the outbox as a row in the worker's memory.
 *
 * Bodies are not detoasted until the relay keeps the row, so a scan over rows
 * of a held lane does not read megabytes for nothing.
 *
 * May depend on: outbox_row.h, the server's SPI.
 *
 *-------------------------------------------------------------------------
 */
#include "outbox_row.h"

#include "access/detoast.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"

/* The order of OUTBOX_ROW_COLUMNS. */
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

static TimestampTz read_time(HeapTuple tuple, TupleDesc desc, int column);
static int64 read_int(HeapTuple tuple, TupleDesc desc, int column, Oid type, int64 if_null);
static char *read_text(HeapTuple tuple, TupleDesc desc, int column);

void
outbox_row_read(OutboxRow *row, HeapTuple tuple, TupleDesc desc)
{
	bool isnull;
	Datum headers;
	Datum body = SPI_getbinval(tuple, desc, COL_BODY, &isnull);

	memset(row, 0, sizeof(OutboxRow));
	row->locked = TransactionIdIsValid(DatumGetTransactionId(SPI_getbinval(tuple, desc, COL_XMAX, &isnull)));
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

char *
outbox_row_name(const char *string)
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
outbox_row_keep(const OutboxRow *row, HeapTuple tuple, TupleDesc desc, MemoryContext context)
{
	bool isnull;
	struct varlena *stored = (struct varlena *) DatumGetPointer(SPI_getbinval(tuple, desc, COL_BODY, &isnull));
	struct varlena *body = pg_detoast_datum_packed(stored);
	Size body_len = VARSIZE_ANY_EXHDR(body);
	Datum stored_headers = SPI_getbinval(tuple, desc, COL_HEADERS, &isnull);
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
