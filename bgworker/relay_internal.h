/*
 * relay_internal.h
 *		What the files of the relay share: relay.c (the turn and its timers),
 *		relay_fetch.c and relay_admit.c (table -> memory), relay_memory.c (what is
 *		held), relay_publish.c (memory -> broker), relay_pace.c (how much of it at a time),
 *		relay_outcome.c (what the broker said), relay_settle.c (memory -> table),
 *		relay_holders.c (lanes whose failed row is gone), relay_trust.c (which
 *		destinations share a channel), relay_ladder.c (rows that wait in the broker),
 *		relay_upkeep.c (purging, counting), relay_state.c (what status shows).
 *
 * This is the only place where a row meets a message.
 * May depend on: relay.h, outbox_row.h, lanes.h, link.h, src/shmem.h.
 */
#ifndef ACEMQ_RELAY_INTERNAL_H
#define ACEMQ_RELAY_INTERNAL_H

#include "relay.h"

#include "lanes.h"
#include "link.h"
#include "outbox_row.h"
#include "shmem.h"

/* Channels BROKER_CHANNEL_PROBE .. carry one row each: suspects, retries, the first row to an exchange. */
#define RELAY_PROBES (BROKER_MAX_CHANNEL - BROKER_CHANNEL_PROBE + 1)

/* Rows in memory that want a probe channel, at most: the others wait in the table, so that memory is for rows that can go. */
#define RELAY_PROBE_ROWS 32
#define RELAY_SLOW_ROWS  8
#define RELAY_RESUME_MS  250

/* Without an outcome for so long, a lane (or the whole wire) has stalled; so many of its rows are kept in memory. */
#define RELAY_STALLED_MS   INT64CONST(250)
#define RELAY_STALLED_ROWS 8

/* After a publish the broker either answers within so long, or is busy. */
#define RELAY_FIRST_ANSWER_US INT64CONST(50000)

/* Rows offered per scan at most. */
#define RELAY_ROWS_PER_SCAN 2000

/* Rows of a strict lane that wait in memory: enough to keep it busy between two reads. */
#define RELAY_STRICT_ROWS 32

/* Ids are read in steps of this many, so that a stretch of dead rows never keeps the loop from its sockets. */
#define RELAY_ID_STEP    20000
#define RELAY_MAX_RANGES 1024

typedef struct LightLane
{
	LaneKey key;
	TimestampTz at; /* when it last sent something; 0: never */
} LightLane;

struct Relay
{
	MemoryContext context;
	MemoryContext rows_context; /* one chunk per row */
	MemoryContext turn_context; /* reset every turn */
	AcemqSlot *slot;
	Link *link;
	LaneTable *lanes;

	/* ---- rows in memory ---- */
	dlist_head all; /* OutboxRow.all, in order of admission */
	int nrows;
	Size bytes;       /* of those that are not big */
	int nbig;         /* rows larger than the budget: one at a time */
	int nslow;        /* rows in memory whose lane was slow when they came */
	int nwant_probe;  /* other rows in memory that wanted a probe channel when they came */
	int nalone;       /* rows that go out with nothing else on the wire */
	bool memory_full; /* a row was refused for want of room, and none has left since */
	struct HTAB *by_id;

	/*
	 * Ids that have been on the wire and were left in the table since (held
	 * or stalled lane, lost connection, a worker before us), with their
	 * entries in AcemqSlot.fetched: outbox_cancel goes on refusing them.
	 */
	struct HTAB *sent_before;
	int *free_entries; /* of AcemqSlot.fetched */
	int nfree_entries;
	int on_wire;
	dlist_head confirmed; /* OutboxRow.node */
	int nconfirmed;
	TimestampTz oldest_confirmed; /* when the first of them was confirmed */
	bool settle_put_off;          /* by the last turn, for rows that had become due */
	dlist_head failed;            /* OutboxRow.node */
	int nfailed;
	TimestampTz oldest_failed; /* when the first of them failed */
	OutboxRow *probes[RELAY_PROBES];
	bool draining; /* a big row waits for an empty wire: nothing else is sent while it empties */
	TimestampTz last_outcome;
	TimestampTz last_sent;
	TimestampTz channel_at;   /* a channel that is not open is opened then; 0: none is waited for */
	LightLane light_lanes[2]; /* the last two that had little to send: relay_pace.c */
	char *probe_failure;      /* words of the channel close that is being reported */
	struct HTAB *trust;       /* see relay_trust.c */

	/* ---- where to read ---- */
	int64 next_id;                       /* of the forward scan */
	bool caught_up;                      /* the forward scan has seen everything there was */
	AcemqRange ranges[RELAY_MAX_RANGES]; /* late committers, rows given back; merged when full */
	int nranges;
	int64 sweep_from; /* 0: no sweep is going on */
	int64 sweep_upto;
	bool sweep_again;                    /* when this one is through */
	AcemqRange locked[RELAY_MAX_RANGES]; /* rows somebody had locked: looked at again with the next poll */
	int nlocked;
	AcemqRange freed[ACEMQ_FREED_RANGES]; /* rows that backends say do not hold their lanes any more */
	int nfreed;
	TimestampTz scan_waits_since; /* for a lane that has its share, 0: it does not */
	bool skimming;                /* most of what the forward scan reads stays in the table: get past it quickly */
	TimestampTz due_read;         /* rows with not_before up to here have been dealt with */
	TimestampTz next_due;         /* 0: none known */
	int64 due_after_id; /* of the rows that are due at that very moment, those up to this id have been dealt with */
	bool fetch_wanted;
	int64 *requeue; /* due rows whose lane is busy, to be given the next id */
	int nrequeue;

	/* ---- timers ---- */
	TimestampTz now; /* start of this turn */
	TimestampTz poll_at;
	int64 poll_delay_ms;
	TimestampTz sweep_at;
	bool prepared_seen;       /* a prepared transaction existed at the last poll */
	bool prepared_known;      /* there was a first look */
	bool prepared_rows;       /* of one that may still be prepared rows are counted already */
	TimestampTz unblocked_at; /* confirm deadlines count from here at the earliest */
	TimestampTz upkeep_at;    /* purge, prepared transactions, oldest row, counting */
	bool purge_all;           /* after a start or a reload: rows that an earlier acemq.outbox_retention has kept */
	bool upkeep_more;         /* upkeep has not come to its end */
	TimestampTz look_at;      /* new rows, while there are others to send */
	TimestampTz resume_at;    /* lanes that wait for a probe channel */
	TimestampTz relieve_at;   /* stalled lanes in memory */
	TimestampTz confirm_look_at;
	uint64 bytes_taken;        /* by the other side, at that look */
	TimestampTz summary_at;    /* oldest row and held lane for status */
	TimestampTz oldest_unread; /* created_at of the first row the forward scan has not read, 0: none known */
	bool socket_full;          /* last publish found no room in the socket */

	/* ---- durability ---- */
	XLogRecPtr confirmed_upto; /* read once per turn */
	bool waits_for_standby;

	/* ---- counting rows after a start ---- */
	bool counting;
	int64 count_next;
	int64 count_last;
	int64 count_pending;
	int64 count_retired;
	uint64 count_changes; /* of the counters when the count began */
	TimestampTz count_began_at;
	TimestampTz count_again_at;

	bool fence_known;
	int fence; /* StoreFence */
	TimestampTz fence_read_at;
	Oid table_file;  /* of acemq.outbox when we last looked */
	int db_failures; /* turns in a row that ended with an error of the table */
	bool db_skipped; /* last turn at the database was skipped */
	TimestampTz retry_db_at;
};

/* relay.c */
extern bool relay_may_run(Relay *relay);
extern bool relay_may_fetch(Relay *relay);
/* No row waits in the table unread. */
extern bool relay_has_read_all(Relay *relay);
extern void relay_add_range(Relay *relay, int64 lo, int64 hi);
extern void relay_note_locked(Relay *relay, int64 id);
extern void relay_take_late(Relay *relay);
/* Look at all ids again, in steps. */
extern void relay_sweep(Relay *relay);

/* relay_memory.c */
typedef struct RowById
{
	int64 id; /* hash key: must be first */
	OutboxRow *row;
} RowById;

typedef struct SentBefore
{
	int64 id;  /* hash key: must be first */
	int entry; /* in AcemqSlot.fetched */
	bool alone;
} SentBefore;

extern void relay_memory_init(Relay *relay);
extern void relay_take_in(Relay *relay, OutboxRow *row);
extern int relay_waiting(Relay *relay);
extern Size relay_budget(void);
extern bool relay_row_is_big(const OutboxRow *row);
extern void relay_start_over(Relay *relay);
/* Forgets the row, but not that it may be in the broker. */
extern void relay_set_aside(Relay *relay, OutboxRow *row);
extern bool relay_lane_moves(Relay *relay, const Lane *lane);
/* Frees the row; it must be in no list but `all`. */
extern void relay_forget_row(Relay *relay, OutboxRow *row);
/* Rows that wait go back to the table; NULL: those of all lanes. */
extern void relay_give_back(Relay *relay, Lane *lane);
extern void relay_relieve_memory(Relay *relay);

/* relay_fetch.c */
typedef enum FetchSource
{
	SOURCE_RANGE,
	SOURCE_LANE,
	SOURCE_DUE,
	SOURCE_FORWARD
} FetchSource;

typedef struct FetchState
{
	Relay *relay;
	FetchSource source;
	Lane *lane; /* SOURCE_LANE: the lane being read */
	bool full;  /* memory is full: no more reading in this turn */
	int offered;
	int kept;
	TimestampTz lane_since; /* SOURCE_LANE: of the last row dealt with */
	bool saw_dated;         /* by a scan of ids: rows that are left to the scan by due times */

	/* SOURCE_DUE: where the scan has come to, and the last row that need not be offered again. */
	TimestampTz due_reached;
	TimestampTz due_done;
	int64 due_done_id;
} FetchState;

extern void relay_fetch(Relay *relay);
/* A row with this due time has to be read (again). */
extern void relay_due_from(Relay *relay, TimestampTz not_before);
extern bool relay_has_room(Relay *relay);
extern bool relay_wants_rows(Relay *relay);

/* relay_admit.c */
/* StoreReader; `arg` is a FetchState. */
extern bool relay_admit_row(void *arg, const OutboxRow *row);
/* Whoever waits for this lane may wait for long. */
extern bool relay_lane_lags(Relay *relay, const Lane *lane);
/* How many of its rows may wait in memory. */
extern int relay_lane_share(Relay *relay, const Lane *lane);

/* relay_holders.c */
extern void relay_look_at_holders(Relay *relay, bool polled);

/* relay_publish.c */
extern void relay_publish(Relay *relay);
extern bool relay_needs_probe(Relay *relay, const Lane *lane, const OutboxRow *row);

/* relay_pace.c */
extern void relay_pace_sent(Relay *relay, Lane *lane);
extern void relay_pace_confirmed(Relay *relay, Lane *lane, TimestampTz sent_at);
extern int relay_lane_window(const Relay *relay, const Lane *lane);

/* relay_ladder.c */
extern void relay_put_on_rung(const OutboxRow *row, WireTable *headers, BrokerMessage *message);
extern void relay_count_scheduled(Relay *relay, const OutboxRow *row);
extern const char *relay_rung_missing(const OutboxRow *row);
extern bool relay_leaves_ladder(const OutboxRow *row);
extern bool relay_leaves_lane(const OutboxRow *row);
extern void relay_hold_target(Relay *relay, OutboxRow *row, TimestampTz until);

/* relay_trust.c */
extern void relay_trust_init(Relay *relay);
extern bool relay_is_trusted(Relay *relay, const OutboxRow *row);
extern void relay_trust(Relay *relay, const OutboxRow *row);
extern void relay_distrust(Relay *relay, const OutboxRow *row);
extern void relay_trust_silent(Relay *relay, const OutboxRow *row);
extern bool relay_trust_allows_probe(Relay *relay, const OutboxRow *row);
extern void relay_trust_probe_begins(Relay *relay, OutboxRow *row);
extern void relay_trust_probe_ends(Relay *relay, OutboxRow *row);
/* A hash of where it goes on the wire. */
extern uint64 relay_destination(const OutboxRow *row);
extern void relay_forget_trust(Relay *relay);

/* relay_outcome.c */
extern void relay_take_events(Relay *relay);
/* `code` is the reply code with which the broker ended the connection, 0 if it did not. */
extern void relay_lost(Relay *relay, const char *reason, int code);
extern void relay_check_confirm_timeout(Relay *relay);
extern void relay_fail_row(Relay *relay, OutboxRow *row, const char *failure);

/* relay_settle.c */
extern void relay_database_turn(Relay *relay);
extern bool relay_settle_is_due(Relay *relay);
extern TimestampTz relay_settle_due_at(Relay *relay);

/* relay_upkeep.c: in a transaction; how many published rows it has removed. */
extern int relay_upkeep(Relay *relay);

/* relay_state.c */
extern void relay_show_state(Relay *relay);

#endif /* ACEMQ_RELAY_INTERNAL_H */
