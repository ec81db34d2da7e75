/*
 * outbox_store.h
 *		The relay's statements: reading rows, settling them, writing down
 *		failed attempts.  All of them run inside db_run().
 *
 * Database column: knows no broker and no lane.
 * May depend on: db.h, outbox_row.h.
 */
#ifndef ACEMQ_OUTBOX_STORE_H
#define ACEMQ_OUTBOX_STORE_H

#include "db.h"
#include "outbox_row.h"

/*
 * What a reader is called with for each row, in order.  The row is a
 * temporary one without headers and body, but with their size; the reader returns false to stop.  To keep a
 * row it calls store_keep_row(), which copies it and fetches the body.
 */
typedef bool (*StoreReader)(void *arg, const OutboxRow *row);

typedef struct StoreScan
{
	int64 last_id; /* of the last row offered, 0 when none was */
	bool complete; /* the reader took all there was, none was left out by the limit */
} StoreScan;

/* Pending rows with from <= id <= upto in id order, at most `limit`. */
extern StoreScan store_scan_ids(int64 from, int64 upto, int limit, StoreReader reader, void *arg);

/*
 * The same without those that have a due time, and without those of one lane if
 * it is named (as in store_scan_exchange; otherwise both are NULL).
 */
extern StoreScan store_scan_undated(int64 from, int64 upto, const char *but_exchange, const char *but_queue, int limit,
                                    StoreReader reader, void *arg);

/*
 * The same for one ordering key, and for the rows without ordering key of one exchange (or, of the default exchange, one
 * queue).  Rows for the ladder count as rows of its exchange.  Of rows with a due time, those that were due at `due`;
 * these are offered where they belong by that time (row_goes_before), so last_id is the last id below which none was
 * refused.
 */
extern StoreScan store_scan_key(const char *ordering_key, int64 from, int64 upto, TimestampTz due, int limit,
                                StoreReader reader, void *arg);
extern StoreScan store_scan_exchange(const char *exchange, const char *queue, int64 from, int64 upto, TimestampTz due,
                                     int limit, StoreReader reader, void *arg);

/* Pending rows that are due after (from, after_id) and not after `upto`, in the order of due time and id. */
extern StoreScan store_scan_due(TimestampTz from, int64 after_id, TimestampTz upto, int limit, StoreReader reader,
                                void *arg);
/* The next not_before after that time, 0 when there is none. */
extern TimestampTz store_next_due(TimestampTz after);

/* From inside a StoreReader: a copy in `context` with its body; one palloc chunk, freed with pfree(). */
extern OutboxRow *store_keep_row(const OutboxRow *row, MemoryContext context);

/* The smallest pending id >= from, 0 when there is none. */
extern int64 store_first_id(int64 from);

/* Until when rows are not to be sent, for a failed attempt or a lease. */
#define STORE_ROW_GONE PG_INT64_MIN       /* or published, or retired */
#define STORE_ROW_FREE (PG_INT64_MIN + 1) /* nothing keeps it */
extern void store_kept_until(const int64 *ids, int count, TimestampTz *until);

/* When the first pending row with an id from there on was added, 0 when there is none. */
extern TimestampTz store_oldest(int64 from);

/*
 * Delete confirmed rows (or mark them published while acemq.outbox_retention
 * keeps them).  done[i] is set for each row that is settled now or gone; rows
 * that somebody else has locked stay undone and are tried again.
 */
extern void store_settle(const int64 *ids, int count, bool *done);

/* store_fail(): write down a failed attempt.  False: the row is locked by somebody else, try again. */
typedef struct StoreFailure
{
	int64 id;
	int attempts;
	const char *error;
	TimestampTz next_attempt_at;
	bool retire;
	bool off_ladder; /* it was to go to its target and from now on is an ordinary row */
} StoreFailure;

extern bool store_fail(const StoreFailure *failure);

/* Give a due row of a busy lane the next id, so that it waits at the end of its lane as if added now. */
extern bool store_requeue_due(int64 id);

/* Remove published rows older than acemq.outbox_retention, at most `limit`; returns how many. */
extern int store_purge_published(int limit);

/* Changes when the table is truncated or rewritten: nothing we remember of its rows is true then. */
extern Oid store_table_file(void);

/* Count rows with from <= id <= upto. */
extern void store_count(int64 from, int64 upto, int64 *pending, int64 *retired);
/* The first id >= from, whatever the state of its row, 0 when there is none; the highest id, 0 when the table is empty. */
extern int64 store_any_id(int64 from);
extern int64 store_last_id(void);

/* True if a prepared transaction of this database exists. */
extern bool store_prepared_exists(void);

typedef enum StoreFence
{
	STORE_OWN,
	STORE_PAUSED,
	STORE_FOREIGN /* copy of another database */
} StoreFence;

/* Reads acemq.identity without a statement. */
extern StoreFence store_fence(void);

#endif /* ACEMQ_OUTBOX_STORE_H */
