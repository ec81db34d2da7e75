/*
 * outbox_row.h
 *		One row of the outbox in the worker's memory.
 *
 * May depend on: src/ladder_message.h.
 */
#ifndef ACEMQ_OUTBOX_ROW_H
#define ACEMQ_OUTBOX_ROW_H

#include "ladder_message.h"

#include "access/htup.h"
#include "access/tupdesc.h"
#include "access/xlogdefs.h"
#include "datatype/timestamp.h"
#include "lib/ilist.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

typedef struct Lane Lane;
typedef struct Trust Trust;

typedef enum RowState
{
	ROW_WAITING,   /* on its lane's list of waiting rows */
	ROW_ON_WIRE,   /* published, no outcome yet */
	ROW_CONFIRMED, /* on the list of rows to settle; keeps its place in the window until the delete is flushed */
	ROW_FAILED     /* on the list of rows whose failed attempt has to be written down */
} RowState;

typedef struct OutboxRow
{
	int64 id;
	TimestampTz created_at;
	TimestampTz not_before;      /* 0: none */
	TimestampTz next_attempt_at; /* 0: none */
	TimestampTz leased_until;    /* 0: none */
	TimestampTz ladder_due_at;   /* 0: not for the ladder */
	int attempts;
	int version;
	int64 expiration; /* ms, -1: none */
	int priority;     /* -1: none */
	bool persistent;
	/* UTF-8; the optional ones NULL when the column is null */
	char *message_id;
	char *exchange;
	char *routing_key;
	char *content_type;
	char *type;
	char *origin;
	char *correlation_id;
	char *causation_id;
	char *reply_to;
	char *ordering_key;
	Jsonb *headers;
	char *body;
	Size body_len;
	Size size; /* of headers, texts and body: what the row costs in memory, and about what it costs on the wire */

	/* ---- the relay's own; not columns ---- */
	const LadderRung
	    *rung;   /* of a row for the ladder: the one it takes if it is sent now; NULL: it goes to its target */
	bool locked; /* somebody has, or had, the row locked, probably to cancel it */
	RowState state;
	Lane *lane;
	dlist_node node;       /* in the list its state names */
	dlist_node all;        /* in the list of all rows, oldest admission first */
	bool of_slow_lane;     /* when it was taken in */
	bool wants_probe;      /* when it was taken in */
	Trust *probes;         /* destination that it was to be a probe of when it was taken in; NULL: none */
	bool was_big;          /* counted as larger than the budget: the setting may change meanwhile */
	int held_entry;        /* index in AcemqSlot.fetched */
	int channel;           /* while on the wire */
	TimestampTz sent_at;   /* while on the wire */
	uint64 sent_upto;      /* of the bytes of the connection */
	bool was_sent;         /* has been on the wire before: sending it again may duplicate */
	bool maybe_delivered;  /* an earlier attempt had no outcome, or was nacked: some queue may hold a copy */
	bool suspect;          /* was in flight when a channel died: goes out on a channel of its own */
	bool alone;            /* was in flight when the broker ended the connection: nothing else is on the wire with it */
	XLogRecPtr durable_at; /* not published before this position is confirmed */
	char *failure;         /* why the attempt failed */
} OutboxRow;

#define OUTBOX_ROW_COLUMNS                                                                                             \
	"id, xmax, created_at, not_before, ladder_due_at, next_attempt_at, leased_until, attempts, version, expiration,"   \
	" priority, persistent, message_id, exchange, routing_key, content_type, type, origin, correlation_id, "           \
	"causation_id,"                                                                                                    \
	" reply_to, ordering_key, headers, body"

/* From a tuple with these columns.  What is of variable length is in the current context; body and headers come with the copy. */
extern void outbox_row_read(OutboxRow *row, HeapTuple tuple, TupleDesc desc);
/* A copy of what was read from that tuple, with headers and body. */
extern OutboxRow *outbox_row_keep(const OutboxRow *row, HeapTuple tuple, TupleDesc desc, MemoryContext context);
/* A name of a row (exchange, key, ...) as the database has it. */
extern char *outbox_row_name(const char *string);

/* Since when it could have gone out: what scheduling puts off is no delay. */
static inline TimestampTz
row_since(const OutboxRow *row)
{
	TimestampTz since = Max(row->created_at, row->not_before);

	/* It had a due time until it was given its place in a busy lane: see store_requeue_due(). */
	return row->attempts == 0 ? Max(since, row->next_attempt_at) : since;
}

/* The order of a lane: as if a row with a due time had been added then. */
static inline bool
row_goes_before(const OutboxRow *a, const OutboxRow *b)
{
	if ((a->not_before != 0 || b->not_before != 0) && row_since(a) != row_since(b))
		return row_since(a) < row_since(b);
	return a->id < b->id;
}

/* When it is read and again when it is sent: the longer it waited, the shorter the rung. */
static inline void
row_choose_rung(OutboxRow *row, uint32 rungs_differ)
{
	if (row->ladder_due_at == 0)
		return;
	row->rung = ladder_rung_for(ladder_left_ms(row->ladder_due_at, GetCurrentTimestamp()));
	if (row->rung != NULL)
		row->rung = ladder_usable_rung(row->rung, rungs_differ);
}

/* Where it goes on the wire: exchange and routing_key are its target, which may be some rungs away. */
static inline const char *
row_wire_exchange(const OutboxRow *row)
{
	return row->rung ? LADDER_EXCHANGE : row->exchange;
}

static inline const char *
row_wire_routing_key(const OutboxRow *row)
{
	return row->rung ? row->rung->queue : row->routing_key;
}

#endif /* ACEMQ_OUTBOX_ROW_H */
