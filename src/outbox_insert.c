/*
 * outbox_insert.c
 *		Put a checked message into the outbox.
 *
 * Two ways.  A row with a generated message id goes straight into the heap and
 * the indexes, which is what the executor would do with it at a fraction of
 * the cost.  Everything else is an ordinary INSERT, run as the owner: it finds
 * duplicates of a caller's message id, and whatever the owner has put on the
 * table (triggers, checks, columns, rules) happens.
 *
 * A body of acemq.claim_check_threshold bytes or more is exchanged here, where
 * every publishing function comes by.
 *
 * May depend on: outbox_args.h, outbox_table.h, claim_check_offload.h, claim_check_store.h, as_owner.h, saved_plan.h,
 * shmem.h, uuid.h, wake.h.
 */
#include "outbox_insert.h"

#include "as_owner.h"
#include "claim_check_offload.h"
#include "claim_check_store.h"
#include "outbox_table.h"
#include "saved_plan.h"
#include "shmem.h"
#include "uuid.h"
#include "wake.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

/* The statement gives every column that a message has: created_at to ladder_due_at. */
#define FIRST_COLUMN OUTBOX_CREATED_AT
#define LAST_COLUMN  OUTBOX_LADDER_DUE_AT

typedef struct RowValues
{
	Datum values[OUTBOX_COLUMNS];
	bool isnull[OUTBOX_COLUMNS];
} RowValues;

static void
set_value(RowValues *row, OutboxColumn column, Datum value)
{
	row->values[column] = value;
	row->isnull[column] = false;
}

static void
set_pointer(RowValues *row, OutboxColumn column, const void *value)
{
	if (value != NULL)
		set_value(row, column, PointerGetDatum(value));
}

/* All columns but the id; those that only the relay fills stay null. */
static void
fill_row(RowValues *row, const OutboxMessage *message)
{
	memset(row->values, 0, sizeof(row->values));
	memset(row->isnull, true, sizeof(row->isnull));

	set_value(row, OUTBOX_CREATED_AT, TimestampTzGetDatum(message->created_at));
	set_value(row, OUTBOX_ATTEMPTS, Int32GetDatum(0));
	set_value(row, OUTBOX_VERSION, Int32GetDatum(message->version));
	set_value(row, OUTBOX_PERSISTENT, BoolGetDatum(message->persistent));
	set_value(row, OUTBOX_CALLER_ID, BoolGetDatum(message->caller_id));
	set_pointer(row, OUTBOX_MESSAGE_ID, message->message_id);
	set_pointer(row, OUTBOX_EXCHANGE, message->exchange);
	set_pointer(row, OUTBOX_ROUTING_KEY, message->routing_key);
	set_pointer(row, OUTBOX_CONTENT_TYPE, message->content_type);
	set_pointer(row, OUTBOX_BODY, message->body);
	set_pointer(row, OUTBOX_HEADERS, message->headers);
	set_pointer(row, OUTBOX_TYPE, message->type);
	set_pointer(row, OUTBOX_ORIGIN, message->origin);
	set_pointer(row, OUTBOX_CORRELATION_ID, message->correlation_id);
	set_pointer(row, OUTBOX_CAUSATION_ID, message->causation_id);
	set_pointer(row, OUTBOX_REPLY_TO, message->reply_to);
	set_pointer(row, OUTBOX_ORDERING_KEY, message->ordering_key);
	if (message->expiration >= 0)
		set_value(row, OUTBOX_EXPIRATION, Int64GetDatum(message->expiration));
	if (message->priority >= 0)
		set_value(row, OUTBOX_PRIORITY, Int16GetDatum(message->priority));
	if (message->delayed)
		set_value(row, OUTBOX_NOT_BEFORE, TimestampTzGetDatum(message->not_before));
	if (message->on_ladder)
		set_value(row, OUTBOX_LADDER_DUE_AT, TimestampTzGetDatum(message->ladder_due_at));
}

static void
insert_index_entry(Relation rel, const OutboxIndex *entry, RowValues *row, ItemPointer tid)
{
	Relation index = index_open(entry->relid, RowExclusiveLock);
	IndexInfo *info = entry->info;
	Datum values[INDEX_MAX_KEYS];
	bool isnull[INDEX_MAX_KEYS];
	int i;

	for (i = 0; i < info->ii_NumIndexAttrs; i++)
	{
		AttrNumber attnum = info->ii_IndexAttrNumbers[i];

		values[i] = row->values[attnum - 1];
		isnull[i] = row->isnull[attnum - 1];
	}
	(void) index_insert(index, values, isnull, tid, rel, info->ii_Unique ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO, false,
	                    info);
	index_close(index, RowExclusiveLock);
}

/* Heap (with TOAST) and indexes.  Nothing else of the table needs to hear of it: that is what shape->direct says. */
static int64
insert_direct(Relation rel, const OutboxShape *shape, int row_class, RowValues *row)
{
	int64 id = nextval_internal(shape->sequence, false);
	HeapTuple tuple;
	int i;

	set_value(row, OUTBOX_ID, Int64GetDatum(id));
	tuple = heap_form_tuple(RelationGetDescr(rel), row->values, row->isnull);
	heap_insert(rel, tuple, GetCurrentCommandId(true), 0, NULL);
	for (i = 0; i < shape->nindexes; i++)
	{
		if (shape->indexes[i].holds[row_class])
			insert_index_entry(rel, &shape->indexes[i], row, &tuple->t_self);
	}
	heap_freetuple(tuple);
	return id;
}

static SavedPlan insert_plan = {
    .sql =
        "INSERT INTO acemq.outbox (created_at, attempts, version, persistent, caller_id, message_id, exchange, "
        "routing_key, content_type, body, headers, type, origin, correlation_id, causation_id, reply_to, ordering_key, "
        "expiration, priority, not_before, ladder_due_at) "
        "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21) "
        "ON CONFLICT (message_id) WHERE caller_id DO NOTHING RETURNING id",
    .nargs = LAST_COLUMN - FIRST_COLUMN + 1,
    .argtypes = {TIMESTAMPTZOID, INT4OID, INT4OID,  BOOLOID,  BOOLOID, TEXTOID,        TEXTOID,
                 TEXTOID,        TEXTOID, BYTEAOID, JSONBOID, TEXTOID, TEXTOID,        TEXTOID,
                 TEXTOID,        TEXTOID, TEXTOID,  INT8OID,  INT2OID, TIMESTAMPTZOID, TIMESTAMPTZOID},
};

static bool
insert_with_executor(const RowValues *row, int64 *id)
{
	AsOwner save;
	char nulls[LAST_COLUMN - FIRST_COLUMN + 1];
	bool added;
	int i;

	for (i = FIRST_COLUMN; i <= LAST_COLUMN; i++)
		nulls[i - FIRST_COLUMN] = row->isnull[i] ? 'n' : ' ';

	as_owner_begin(&save);
	SPI_connect();
	(void) saved_plan_run(&insert_plan, unconstify(Datum *, &row->values[FIRST_COLUMN]), nulls);
	added = SPI_processed > 0;
	if (added)
		*id = spi_int64(0, 1);
	SPI_finish();
	as_owner_end(&save);
	return added;
}

/* False: the table is not one that takes such a row directly. */
static bool
try_direct(const OutboxMessage *message, RowValues *row, int64 *id)
{
	int row_class = (message->ordering_key != NULL ? ROW_ORDERED : 0) | (message->delayed ? ROW_DELAYED : 0);
	const OutboxShape *shape;
	Relation rel = outbox_table_open(&shape);
	bool direct = shape->direct[row_class];

	if (direct)
		*id = insert_direct(rel, shape, row_class, row);
	table_close(rel, NoLock);
	return direct;
}

static bool
insert_row(const OutboxMessage *message, int64 *id)
{
	RowValues row;

	fill_row(&row, message);
	if (!message->caller_id && try_direct(message, &row, id))
		return true;
	return insert_with_executor(&row, id);
}

/* First the row: without it nobody would ask for the payload. */
static bool
insert_checked_in(const OutboxMessage *message, int64 *id)
{
	OutboxMessage checked = *message;
	char key[UUID_TEXT_LEN + 1];

	checked.body = claim_check_offload_frame(key);
	if (!insert_row(&checked, id))
		return false;
	claim_check_store_put(key, PointerGetDatum(message->body));
	return true;
}

bool
outbox_insert(const OutboxMessage *message, int64 *id)
{
	return claim_check_offloads(message->body) ? insert_checked_in(message, id) : insert_row(message, id);
}

/* One message for all ways of writing; the executor would say it in the words of an INSERT nobody wrote. */
void
outbox_refuse_read_only(const char *function)
{
	PreventCommandIfReadOnly(function);
	PreventCommandIfParallelMode(function);
	PreventCommandDuringRecovery(function);
}

/* The row is safe, but nobody in this server will send it. */
static void
warn_if_not_preloaded(void)
{
	static bool warned = false;

	if (acemq_shared != NULL || warned)
		return;
	warned = true;
	ereport(WARNING,
	        (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("acemq is not in shared_preload_libraries"),
	         errdetail("Messages are recorded, but no relay of this server sends them."),
	         errhint("Set shared_preload_libraries = 'acemq' and restart the server.")));
}

void
outbox_record(const OutboxMessage *message)
{
	int64 id;

	if (outbox_insert(message, &id))
		wake_note_added(id);
	warn_if_not_preloaded();
}
