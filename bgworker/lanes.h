/*
 * lanes.h
 *		Lanes: which rows may go out, in which order (docs/protocol.md,
 *		section 2.2).
 *
 * A lane is an ordering key, or else an exchange (of a row for the ladder:
 * the ladder's), or else (default exchange) a queue.  Only lanes with something going on are kept: rows in memory, a
 * failed row that holds the others, or rows that were left in the table.
 *
 * Pure bookkeeping: knows no statement and no broker.
 * May depend on: outbox_row.h.
 */
#ifndef ACEMQ_LANES_H
#define ACEMQ_LANES_H

#include "outbox_row.h"

#include "lib/pairingheap.h"

/* A lane's text is up to 255 bytes and there may be 100,000 failed ones: the table is keyed by a 128-bit hash instead. */
typedef struct LaneKey
{
	uint64 hash[2];
} LaneKey;

typedef enum LaneKind
{
	LANE_ORDERING_KEY, /* strict: one row on the wire at a time */
	LANE_EXCHANGE,     /* pipelined */
	LANE_QUEUE         /* default exchange: routing key; pipelined */
} LaneKind;

struct Lane
{
	LaneKey key; /* hash key: must be first */
	LaneKind kind;
	char *name; /* UTF-8, palloc'd */

	dlist_head waiting; /* OutboxRow.node, in the order they will go out */
	int nwaiting;
	int nfailed; /* rows whose failed attempt is not written down yet */
	int on_wire;
	Size wire_bytes; /* of the bodies on the wire */

	/* relay_pace.c */
	double rate; /* confirms per microsecond; 0: not known yet */
	int nrated;  /* confirms since rate_from */
	TimestampTz rate_from;
	int64 round_trip;       /* microseconds, with few rows on the wire; 0: being measured */
	int64 trips_us;         /* sum of those measured so far ... */
	int ntrips;             /* ... and how many */
	TimestampTz trips_from; /* of rows sent since then */

	bool in_ready_list;
	dlist_node ready; /* in LaneTable.ready while the lane may be able to publish */

	/* Either one: rows go out one at a time, on a channel whose death harms nobody, until one is confirmed. */
	bool suspect;   /* a row has failed, or was in flight when a channel died */
	bool slow;      /* its confirms timed out */
	int slow_count; /* times in a row, for the back-off */

	/* Held: nothing goes out before held_until, because of held_row. */
	bool held;
	TimestampTz held_until;
	int64 held_row;
	char *held_message; /* its message id, palloc'd; NULL when not held */
	pairingheap_node held_node;
	dlist_node holding; /* in LaneTable.holding */

	/* Rows of this lane from this id on have to be read from the table again; 0: none. */
	int64 left_from;
	TimestampTz left_since;
	bool requeued; /* some of them have become due and were given new ids */
	bool in_left_list;
	bool in_probe_backlog; /* which of the two lists it is on */
	/* Its next row wants a probe channel and many others do too: it is on LaneTable.probe_backlog instead of `left`. */
	bool probe_backlog;
	uint64 probe_of;           /* where that row goes: relay_trust.c */
	bool big_waits;            /* the next row left is a big one, and another one was in memory */
	dlist_node left;           /* in LaneTable.left while it is neither held nor complete */
	TimestampTz last_progress; /* of an outcome, or when the first row came in */
};

typedef struct LaneTable
{
	MemoryContext context;
	struct HTAB *lanes;
	dlist_head ready;
	dlist_head left;
	dlist_head probe_backlog;
	int nleft;
	Lane *backlog;      /* one of those that have rows left in the table; no ordering key */
	Lane *due_blocker;  /* its due rows are the next to be read, and it has its share in memory */
	pairingheap *held;  /* earliest held_until first */
	dlist_head holding; /* the same lanes; those whose holder was looked at longest ago first */
} LaneTable;

extern LaneTable *lanes_create(MemoryContext parent);

/* The lane of a row, created if it is not there. */
extern Lane *lane_of_row(LaneTable *table, const OutboxRow *row);
/* Forget the lane if nothing is going on in it.  The pointer is invalid afterwards. */
extern void lane_forget_if_unused(LaneTable *table, Lane *lane);

/* Put a row at the end of the lane, or where it belongs among those that wait (a row that comes back). */
extern void lane_append(LaneTable *table, Lane *lane, OutboxRow *row);
extern void lane_insert_in_order(LaneTable *table, Lane *lane, OutboxRow *row);
extern void lane_remove_waiting(Lane *lane, OutboxRow *row);

/* Rows of the lane from id on stay in the table and are read again later. */
extern void lane_leave_from(LaneTable *table, Lane *lane, int64 id, TimestampTz since);
/* They have all been read up to (excluding) this id; 0: nothing is left. */
extern void lane_left_read(LaneTable *table, Lane *lane, int64 next);

/* Not to be read until one of the next two says so; `of` is a destination. */
extern void lane_wait_for_probe(LaneTable *table, Lane *lane, uint64 of);
/* Let so many of the lanes that wait for a probe channel be read again; or of those whose next row goes there. */
extern void lanes_resume_probes(LaneTable *table, int count);
extern void lanes_resume_probes_of(LaneTable *table, uint64 of, int count);

extern void lane_hold(LaneTable *table, Lane *lane, const OutboxRow *row, TimestampTz until);
/* The row that holds it is not to be waited for as long as it was. */
extern void lane_hold_until(LaneTable *table, Lane *lane, TimestampTz until);
/* The next lane whose hold has run out, opened again; NULL when there is none. */
extern Lane *lanes_next_released(LaneTable *table, TimestampTz now);
/* 0 when nothing is held. */
extern TimestampTz lanes_next_release_at(LaneTable *table);

/* Put the lane on the list of those to look at when there is room. */
extern void lane_mark_ready(LaneTable *table, Lane *lane);
extern void lane_unmark_ready(LaneTable *table, Lane *lane);

#endif /* ACEMQ_LANES_H */
