/*
 * waited_rows.c
 *		The rows an outbox_sweep() waits for, and what has become of them.
 *
 * The table is read through its primary key directly: the transaction that
 * wrote a version is part of the question, and a result of SPI would hold all
 * of it in memory.  No right of the caller's is used or needed: nothing of the
 * table but counts and the failed row's own words gets out.
 *
 * May depend on: acemq.h, compat.h.
 */
#include "waited_rows.h"

#include "compat.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

typedef struct IdRun
{
	int64 lo;
	int64 hi;
} IdRun;

typedef struct Tried
{
	int64 id;
	int32 attempts;
} Tried;

struct WaitedRows
{
	IdRun *runs;
	int64 nruns;
	int64 runs_size;
	int64 first; /* runs before this one are gone, and so is ... */
	int64 next;  /* ... every id below this one */
	int64 count;
	Tried *tried; /* those that had failed before we came, in order of id */
	int64 ntried;
	int64 tried_size;
	uint64 *moving; /* hashed message ids of those with not_before: see follow_moved() */
	int64 nmoving;
	int64 moving_size;
	char *failed_message;
	char *failed_reason;
};

/* ---- reading the table in order of id ---- */

typedef struct OutboxReader
{
	Relation table;
	Relation index;
	Snapshot snapshot;
	SysScanDesc scan;
	AttrNumber id;
	AttrNumber message_id;
	AttrNumber attempts;
	AttrNumber not_before;
	AttrNumber retired_at;
	AttrNumber published_at;
} OutboxReader;

static void
reader_open(OutboxReader *reader, int64 from)
{
	Oid schema = get_namespace_oid(ACEMQ_SCHEMA, false);
	Oid relid = get_relname_relid("outbox", schema);
	ScanKeyData key;

	reader->table = table_open(relid, AccessShareLock);
	reader->index = index_open(get_relname_relid("outbox_pkey", schema), AccessShareLock);
	reader->id = get_attnum(relid, "id");
	reader->message_id = get_attnum(relid, "message_id");
	reader->attempts = get_attnum(relid, "attempts");
	reader->not_before = get_attnum(relid, "not_before");
	reader->retired_at = get_attnum(relid, "retired_at");
	reader->published_at = get_attnum(relid, "published_at");

	reader->snapshot = RegisterSnapshot(GetLatestSnapshot());
	ScanKeyInit(&key, reader->id, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(from));
	reader->scan = systable_beginscan_ordered(reader->table, reader->index, reader->snapshot, 1, &key);
}

static void
reader_close(OutboxReader *reader)
{
	systable_endscan_ordered(reader->scan);
	UnregisterSnapshot(reader->snapshot);
	index_close(reader->index, AccessShareLock);
	table_close(reader->table, AccessShareLock);
}

static Datum
reader_value(OutboxReader *reader, HeapTuple row, AttrNumber column, bool *isnull)
{
	return heap_getattr(row, column, RelationGetDescr(reader->table), isnull);
}

static bool
reader_is_null(OutboxReader *reader, HeapTuple row, AttrNumber column)
{
	bool isnull;

	(void) reader_value(reader, row, column, &isnull);
	return isnull;
}

static int64
reader_id(OutboxReader *reader, HeapTuple row)
{
	bool isnull;

	return DatumGetInt64(reader_value(reader, row, reader->id, &isnull));
}

static int32
reader_attempts(OutboxReader *reader, HeapTuple row)
{
	bool isnull;

	return DatumGetInt32(reader_value(reader, row, reader->attempts, &isnull));
}

static bool
reader_is_due(OutboxReader *reader, HeapTuple row, TimestampTz now)
{
	bool isnull;
	Datum not_before = reader_value(reader, row, reader->not_before, &isnull);

	return isnull || DatumGetTimestampTz(not_before) <= now;
}

static bool
reader_is_pending(OutboxReader *reader, HeapTuple row)
{
	return reader_is_null(reader, row, reader->retired_at) && reader_is_null(reader, row, reader->published_at);
}

/* 64 bits of hash are 8 bytes for an id of any length; two that collide make us wait for one row too many. */
static uint64
reader_message_hash(OutboxReader *reader, HeapTuple row)
{
	bool isnull;
	text *message_id = DatumGetTextPP(reader_value(reader, row, reader->message_id, &isnull));

	return hash_bytes_extended((const unsigned char *) VARDATA_ANY(message_id), VARSIZE_ANY_EXHDR(message_id), 0);
}

/* ---- collecting ---- */

/*
 * Room for one more.  Doubling with the huge allocator: in the worst case,
 * every second row waiting, a run stands for one row.
 */
static void *
room_for_one(void *array, int64 used, int64 *size, Size element)
{
	if (used < *size)
		return array;
	*size = *size * 2;
	return repalloc_huge(array, *size * element);
}

static void
collect_one(WaitedRows *waited, int64 id, int32 attempts)
{
	IdRun *last = waited->nruns > 0 ? &waited->runs[waited->nruns - 1] : NULL;

	if (last != NULL && last->hi == id - 1)
		last->hi = id;
	else
	{
		waited->runs = room_for_one(waited->runs, waited->nruns, &waited->runs_size, sizeof(IdRun));
		waited->runs[waited->nruns++] = (IdRun){id, id};
	}
	if (attempts > 0)
	{
		waited->tried = room_for_one(waited->tried, waited->ntried, &waited->tried_size, sizeof(Tried));
		waited->tried[waited->ntried++] = (Tried){id, attempts};
	}
}

static void
collect_moving(WaitedRows *waited, uint64 hash)
{
	waited->moving = room_for_one(waited->moving, waited->nmoving, &waited->moving_size, sizeof(uint64));
	waited->moving[waited->nmoving++] = hash;
}

static int
compare_hashes(const void *a, const void *b)
{
	uint64 x = *(const uint64 *) a;
	uint64 y = *(const uint64 *) b;

	return (x > y) - (x < y);
}

static WaitedRows *
waited_rows_make(void)
{
	WaitedRows *waited = palloc0(sizeof(WaitedRows));

	waited->runs_size = 64;
	waited->runs = palloc(waited->runs_size * sizeof(IdRun));
	waited->tried_size = 64;
	waited->tried = palloc(waited->tried_size * sizeof(Tried));
	waited->moving_size = 64;
	waited->moving = palloc(waited->moving_size * sizeof(uint64));
	return waited;
}

WaitedRows *
waited_rows_collect(void)
{
	WaitedRows *waited = waited_rows_make();
	TimestampTz now = GetCurrentTimestamp();
	OutboxReader reader;
	HeapTuple row;

	reader_open(&reader, PG_INT64_MIN);
	while ((row = systable_getnext_ordered(reader.scan, ForwardScanDirection)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		if (!reader_is_pending(&reader, row) || !reader_is_due(&reader, row, now) ||
		    TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(row->t_data)))
			continue;
		collect_one(waited, reader_id(&reader, row), reader_attempts(&reader, row));
		waited->count++;
		if (!reader_is_null(&reader, row, reader.not_before))
			collect_moving(waited, reader_message_hash(&reader, row));
	}
	reader_close(&reader);

	qsort(waited->moving, waited->nmoving, sizeof(uint64), compare_hashes);
	if (waited->nruns > 0)
		waited->next = waited->runs[0].lo;
	return waited;
}

int64
waited_rows_count(const WaitedRows *waited)
{
	return waited->count;
}

/* ---- looking again ---- */

static int
compare_tried(const void *a, const void *b)
{
	int64 x = ((const Tried *) a)->id;
	int64 y = ((const Tried *) b)->id;

	return (x > y) - (x < y);
}

static bool
has_failed_since(const WaitedRows *waited, int64 id, int32 attempts)
{
	Tried key = {id, 0};
	Tried *before;

	if (attempts == 0)
		return false;
	before = bsearch(&key, waited->tried, waited->ntried, sizeof(Tried), compare_tried);
	return attempts > (before ? before->attempts : 0);
}

static char *
column_text(OutboxReader *reader, HeapTuple row, const char *column)
{
	AttrNumber attno = get_attnum(RelationGetRelid(reader->table), column);
	bool isnull;
	Datum value = reader_value(reader, row, attno, &isnull);

	return isnull ? NULL : TextDatumGetCString(value);
}

static WaitedOutcome
keep_failure(WaitedRows *waited, OutboxReader *reader, HeapTuple row)
{
	waited->failed_message = column_text(reader, row, "message_id");
	waited->failed_reason = column_text(reader, row, "last_error");
	return WAITED_FAILED;
}

/* Moves *run to the first one that ends at or after `id`; is the id in it? */
static bool
is_waited(const WaitedRows *waited, int64 *run, int64 id)
{
	while (*run < waited->nruns && waited->runs[*run].hi < id)
		(*run)++;
	return *run < waited->nruns && waited->runs[*run].lo <= id;
}

static WaitedOutcome
look(WaitedRows *waited, OutboxReader *reader, bool all)
{
	WaitedOutcome outcome = WAITED_GONE;
	int64 run = waited->first;
	HeapTuple row;

	while ((row = systable_getnext_ordered(reader->scan, ForwardScanDirection)) != NULL)
	{
		int64 id = reader_id(reader, row);

		CHECK_FOR_INTERRUPTS();
		if (!is_waited(waited, &run, id))
		{
			if (run >= waited->nruns)
				break;
			continue;
		}
		if (!reader_is_null(reader, row, reader->published_at))
			continue;
		if (has_failed_since(waited, id, reader_attempts(reader, row)))
			return keep_failure(waited, reader, row);
		if (!reader_is_null(reader, row, reader->retired_at))
			continue;
		if (outcome == WAITED_GONE)
		{
			outcome = WAITED_STILL;
			waited->first = run;
			waited->next = id;
		}
		if (!all)
			break;
	}
	return outcome;
}

static bool
is_moving(const WaitedRows *waited, OutboxReader *reader, HeapTuple row)
{
	uint64 hash = reader_message_hash(reader, row);

	return bsearch(&hash, waited->moving, waited->nmoving, sizeof(uint64), compare_hashes) != NULL;
}

/*
 * The relay may give a due row of a busy lane the next id, so that it waits as
 * if it had been added when it became due.  Such rows look gone, but are behind
 * everything we have seen; once, since a row moves only once.
 */
static bool
follow_moved(WaitedRows *waited)
{
	int64 beyond = waited->runs[waited->nruns - 1].hi;
	OutboxReader reader;
	HeapTuple row;

	waited->nruns = waited->first = waited->ntried = 0;
	reader_open(&reader, beyond + 1);
	while ((row = systable_getnext_ordered(reader.scan, ForwardScanDirection)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		if (is_moving(waited, &reader, row) && reader_is_null(&reader, row, reader.published_at))
			collect_one(waited, reader_id(&reader, row),
			            reader_is_null(&reader, row, reader.retired_at) ? reader_attempts(&reader, row) : 0);
	}
	reader_close(&reader);
	waited->nmoving = 0;
	waited->next = beyond + 1;
	return waited->nruns > 0;
}

/* Rows with a due time that look gone may have got an id behind everything we have seen: see follow_moved(). */
int64
waited_rows_count_left(const WaitedRows *waited, int64 max)
{
	int64 beyond = waited->nruns > 0 ? waited->runs[waited->nruns - 1].hi : 0;
	int64 run = waited->first;
	int64 left = 0;
	OutboxReader reader;
	HeapTuple row;

	if (waited->nruns == 0)
		return 0;
	reader_open(&reader, waited->next);
	while (left <= max && (row = systable_getnext_ordered(reader.scan, ForwardScanDirection)) != NULL)
	{
		int64 id = reader_id(&reader, row);

		CHECK_FOR_INTERRUPTS();
		if (id > beyond && waited->nmoving == 0)
			break;
		if (!reader_is_pending(&reader, row))
			continue;
		if (id > beyond ? is_moving(waited, &reader, row) : is_waited(waited, &run, id))
			left++;
	}
	reader_close(&reader);
	return left;
}

WaitedOutcome
waited_rows_look(WaitedRows *waited, bool all)
{
	OutboxReader reader;
	WaitedOutcome outcome;

	if (waited->nruns == 0)
		return WAITED_GONE;
	reader_open(&reader, waited->next);
	outcome = look(waited, &reader, all);
	reader_close(&reader);
	if (outcome == WAITED_GONE && waited->nmoving > 0 && follow_moved(waited))
		outcome = WAITED_STILL;
	return outcome;
}

const char *
waited_rows_failed_message(const WaitedRows *waited)
{
	return waited->failed_message ? waited->failed_message : "";
}

const char *
waited_rows_failed_reason(const WaitedRows *waited)
{
	return waited->failed_reason ? waited->failed_reason : "";
}
