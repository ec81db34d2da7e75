/*-------------------------------------------------------------------------
 *
 * relay_fetch.c
 *		Table -> memory: which ids to read, and what to keep of them.
 *
 * The forward scan goes up the primary key and never looks back, so a table
 * full of dead rows costs it nothing.  What it passed before it was committed
 * comes back as a late range: a committing backend compares its ids with
 * AcemqSlot.scan_cursor, which is raised to the maximum before the snapshot of
 * a scan is taken.  So a row is either visible to that snapshot, or its
 * backend sees the raised cursor and reports it (shmem.h, wake.h).
 *
 * outbox_cancel agrees with us through AcemqSlot.fetch_epoch (odd while rows
 * are being read) and AcemqSlot.fetched (ids in memory): it locks its row
 * first and looks at these two afterwards, we make the epoch odd first and look
 * at row locks (xmax) afterwards, so one of us sees the other.
 *
 * Four sources, in this order: ranges (late committers, sweeps), lanes of which
 * rows were left in the table, rows that have become due, the forward scan.
 *
 * May depend on: relay_internal.h.
 *
 *-------------------------------------------------------------------------
 */
#include "relay_internal.h"

#include "outbox_store.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "guc.h"

/* Rows of a strict lane that wait in memory: enough to keep it busy between two reads. */
#define STRICT_LANE_WAITING 32
/* Rows offered per scan at least; lanes read per turn; rows that a scan over locked due rows may grow to. */
#define ROWS_PER_SCAN_MIN 64
#define LANES_PER_TURN    64
#define MAX_DUE_LIMIT     1000000
/* The one on the wire and the next. */
#define PROBE_ROWS_PER_LANE 2

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
	Lane *lane;              /* SOURCE_LANE: the lane being read */
	bool full;               /* memory is full: no more reading in this turn */
	TimestampTz due_reached; /* SOURCE_DUE: rows before that time have been dealt with */
	int offered;
	int kept;
} FetchState;

static bool waits_for_due_scan(const FetchState *state, const OutboxRow *row);
static bool admit_row(void *arg, const OutboxRow *row);
static bool stays_in_table(FetchState *state, Lane *lane, const OutboxRow *row);
static bool lane_allows(FetchState *state, Lane *lane, const OutboxRow *row, bool *dealt_with);
static bool probes_allow(Relay *relay, Lane *lane, const OutboxRow *row);
static bool memory_allows(FetchState *state, const OutboxRow *row);
static int lane_share(Relay *relay, const Lane *lane);
static void keep_row(FetchState *state, Lane *lane, const OutboxRow *row);
static void fetch_ranges(FetchState *state);
static void fetch_lanes(FetchState *state);
static void fetch_due(FetchState *state);
static void fetch_forward(FetchState *state);
static void requeue_due_rows(Relay *relay);

/* Reading pays when there is room for a good part of a window. */
bool
relay_has_room(Relay *relay)
{
	return relay_waiting(relay) <= acemq_max_in_flight / 4 && relay->nfree_entries > 0 && !relay->memory_full &&
	       relay->bytes < relay_budget();
}

/* There is something to read, and reading it would get further. */
bool
relay_wants_rows(Relay *relay)
{
	dlist_iter iter;

	if (relay->fetch_wanted || !relay->caught_up || relay->nranges > 0)
		return true;
	if (relay->next_due != 0 && relay->next_due <= relay->now)
		return true;
	dlist_foreach (iter, &relay->lanes->left)
	{
		Lane *lane = dlist_container(Lane, left, iter.cur);

		if (lane->nwaiting <= lane_share(relay, lane) / 2 && !(lane->big_waits && relay->nbig > 0))
			return true;
	}
	return false;
}

/* Inside db_run(). */
void
relay_fetch(Relay *relay)
{
	FetchState state = {.relay = relay};
	AcemqSlot *slot = relay->slot;

	pg_atomic_fetch_add_u32(&slot->fetch_epoch, 1);
	pg_atomic_write_u64(&slot->scan_cursor, PG_UINT64_MAX);
	pg_memory_barrier();

	relay->nrequeue = 0;
	relay->requeue = palloc(sizeof(int64) * RELAY_ROWS_PER_SCAN);

	fetch_ranges(&state);
	if (!state.full)
		fetch_lanes(&state);
	if (!state.full)
		fetch_due(&state);
	if (!state.full)
		fetch_forward(&state);
	requeue_due_rows(relay);
}

/* ---- sources ---- */

/*
 * A long stretch of ids may be full of rows that wait for next year.  They are
 * left to the index on their due times, so that after a start, and in a sweep, no
 * message has to wait until all of them have been read.
 */
static StoreScan
scan_stretch(int64 from, int64 upto, int limit, FetchState *state)
{
	Relay *relay = state->relay;
	StoreScan scan = store_scan_undated(from, upto, limit, admit_row, state);
	TimestampTz first = store_next_due(PG_INT64_MIN + 1);

	if (first != 0 && (relay->next_due == 0 || first < relay->next_due))
		relay->next_due = first;
	return scan;
}

static void
fetch_ranges(FetchState *state)
{
	Relay *relay = state->relay;

	state->source = SOURCE_RANGE;
	while (relay->nranges > 0 && !state->full)
	{
		AcemqRange *range = &relay->ranges[relay->nranges - 1];
		int64 upto = Min((int64) range->hi, relay->next_id - 1);
		int64 step = Min(upto, (int64) range->lo + RELAY_ID_STEP - 1);
		StoreScan scan;

		if ((int64) range->lo > upto)
		{
			relay->nranges--;
			continue;
		}
		if (upto > step)
			scan = scan_stretch(range->lo, step, RELAY_ROWS_PER_SCAN, state);
		else
			scan = store_scan_ids(range->lo, step, RELAY_ROWS_PER_SCAN, admit_row, state);
		if (!scan.complete)
		{
			range->lo = Max((int64) range->lo, scan.last_id + 1);
			break;
		}
		if (step < upto)
		{
			int64 next = scan.last_id ? step + 1 : store_first_id(step + 1);

			range->lo = next ? (uint64) next : (uint64) upto + 1;
			break; /* one step per turn: the sockets wait */
		}
		range->lo = upto + 1;
	}
}

static void
fetch_lanes(FetchState *state)
{
	Relay *relay = state->relay;
	LaneTable *lanes = relay->lanes;

	state->source = SOURCE_LANE;
	for (int n = Min(lanes->nleft, LANES_PER_TURN); n > 0 && lanes->nleft > 0 && !state->full; n--)
	{
		Lane *lane = dlist_head_element(Lane, left, &lanes->left);
		int64 last = relay->next_id - 1;
		int64 upto = Min(last, lane->left_from + RELAY_ID_STEP - 1);
		StoreScan scan;

		dlist_move_tail(&lanes->left, &lane->left);
		if (lane->nwaiting > lane_share(relay, lane) / 2 || (lane->big_waits && relay->nbig > 0))
			continue;
		lane->big_waits = false;

		state->lane = lane;
		if (lane->kind == LANE_ORDERING_KEY)
		{
			upto = last;
			scan = store_scan_key(lane->name, lane->left_from, last, STRICT_LANE_WAITING, admit_row, state);
		}
		else
			scan = store_scan_exchange(lane->kind == LANE_EXCHANGE ? lane->name : "",
			                           lane->kind == LANE_QUEUE ? lane->name : NULL, lane->left_from, upto,
			                           RELAY_ROWS_PER_SCAN, admit_row, state);

		/* A row that is not to be sent yet has held the lane: reading goes on from there later. */
		if (lane->held)
		{
			lane_left_read(lanes, lane, 0);
			lane_leave_from(lanes, lane, lane->held_row, lane->left_created_at);
			relay_give_back(relay, lane);
		}
		else if (!scan.complete)
			lane_left_read(lanes, lane, Max(lane->left_from, scan.last_id + 1));
		else if (upto < last)
		{
			int64 next = scan.last_id ? upto + 1 : store_first_id(upto + 1);

			lane_left_read(lanes, lane, next > last ? 0 : next);
		}
		else
			lane_left_read(lanes, lane, 0);
		lane_forget_if_unused(lanes, lane);
	}
	state->lane = NULL;
}

/*
 * The clock may be set back: what was due once stays due, so the upper end
 * never falls.  Rows of one instant are read again until they have left
 * memory, hence the lower end just below the last one.
 */
static void
fetch_due(FetchState *state)
{
	Relay *relay = state->relay;
	TimestampTz upto = Max(relay->now, relay->due_read);
	StoreScan scan;

	if (relay->next_due == 0 || relay->next_due > upto)
		return;
	state->source = SOURCE_DUE;
	state->due_reached = relay->next_due;
	state->kept = 0;
	scan = store_scan_due(relay->next_due - 1, upto, relay->due_limit + relay->nrows, admit_row, state);
	/* Nothing but rows that somebody has locked: look further. */
	relay->due_limit = !scan.complete && state->kept == 0 && relay->nrequeue == 0 && !state->full
	                       ? Min(relay->due_limit * 2, MAX_DUE_LIMIT)
	                       : RELAY_ROWS_PER_SCAN;
	if (scan.complete)
	{
		relay->due_read = upto;
		relay->next_due = store_next_due(upto);
	}
	else
		relay->next_due = state->due_reached;
}

/*
 * Caught up, what is new is little, and one scan without an upper end finds
 * it.  Otherwise (after a start, or far behind) there may be millions of rows
 * that are published, retired or dead on the way: then in steps of ids.
 */
static void
fetch_forward(FetchState *state)
{
	Relay *relay = state->relay;
	int64 last = relay->caught_up ? 0 : store_last_id();
	int64 upto = PG_INT64_MAX;
	StoreScan scan;

	if (last - relay->next_id >= RELAY_ID_STEP)
		upto = relay->next_id + RELAY_ID_STEP - 1;
	state->source = SOURCE_FORWARD;
	state->offered = state->kept = 0;
	if (upto == PG_INT64_MAX)
		scan = store_scan_ids(relay->next_id, upto, relay->rows_per_scan, admit_row, state);
	else
		scan = scan_stretch(relay->next_id, upto, relay->rows_per_scan, state);
	if (scan.last_id >= relay->next_id)
		relay->next_id = scan.last_id + 1;
	relay->caught_up = scan.complete && upto == PG_INT64_MAX;
	if (scan.complete && !relay->caught_up)
		relay->next_id = Max(store_any_id(upto + 1), upto + 1);

	/* Read what fits, unless most of what was read belongs to lanes that are held: then get past them quickly. */
	if (state->kept * 2 < state->offered)
		relay->rows_per_scan = RELAY_ROWS_PER_SCAN;
	else
		relay->rows_per_scan = Min(RELAY_ROWS_PER_SCAN, Max(ROWS_PER_SCAN_MIN, acemq_max_in_flight));
}

/* ---- one row ---- */

/*
 * Rows with a due time leave in the order of these, also when many of them have
 * become due by the time we see them first: after a start, or a pause.
 */
static bool
waits_for_due_scan(const FetchState *state, const OutboxRow *row)
{
	if (row->not_before == 0 || state->source == SOURCE_DUE)
		return false;
	if (state->source == SOURCE_FORWARD || state->source == SOURCE_RANGE)
		return true;
	return row->not_before > Max(state->relay->now, state->relay->due_read);
}

/*
 * StoreReader.  True: dealt with (in memory, or to be found again later); false: no room, stop before this row.
 */
static bool
admit_row(void *arg, const OutboxRow *row)
{
	FetchState *state = arg;
	Relay *relay = state->relay;
	Lane *lane;
	bool dealt_with;

	state->offered++;
	if (state->source == SOURCE_DUE)
		state->due_reached = row->not_before;
	if (hash_search(relay->by_id, &row->id, HASH_FIND, NULL) != NULL)
		return true;
	if (waits_for_due_scan(state, row))
	{
		if (relay->next_due == 0 || row->not_before < relay->next_due)
			relay->next_due = row->not_before;
		return true;
	}

	if (row->locked)
	{
		relay_note_locked(relay, row->id);
		return true;
	}

	lane = lane_of_row(relay->lanes, row);
	if (stays_in_table(state, lane, row))
		return state->source != SOURCE_LANE || !lane->held;
	if (!lane_allows(state, lane, row, &dealt_with))
		return dealt_with;
	if (!probes_allow(relay, lane, row))
	{
		lane_leave_from(relay->lanes, lane, row->id, row->created_at);
		lane_wait_for_probe(relay->lanes, lane);
		return state->source != SOURCE_LANE;
	}
	if (relay_row_is_big(row) && relay->nbig > 0)
	{
		/* The next big one when this one is through; the others do not wait for that. */
		lane->big_waits = true;
		lane_leave_from(relay->lanes, lane, row->id, row->created_at);
		return state->source != SOURCE_LANE;
	}
	if (!memory_allows(state, row))
	{
		lane_forget_if_unused(relay->lanes, lane);
		return false;
	}
	keep_row(state, lane, row);
	state->kept++;
	return true;
}

/* Rows that may not go out now: of a held lane, behind rows that were left, not to be tried yet, leased to another relay. */
static bool
stays_in_table(FetchState *state, Lane *lane, const OutboxRow *row)
{
	Relay *relay = state->relay;
	TimestampTz until = Max(row->next_attempt_at, row->leased_until);
	bool reading_lane = state->source == SOURCE_LANE && state->lane == lane;

	if (until > relay->now)
	{
		if (!lane->held || row->id < lane->held_row)
			lane_hold(relay->lanes, lane, row, until);
		lane_leave_from(relay->lanes, lane, row->id, row->created_at);
		lane->suspect = true;
		return true;
	}
	/* The row that holds its lane has been released by hand: the lane is opened with the next turn. */
	if (lane->held && !lane->slow && row->id == lane->held_row && lane->held_until != PG_INT64_MAX)
		lane_hold(relay->lanes, lane, row, relay->now);

	if (!lane->held && (lane->left_from == 0 || reading_lane))
	{
		bool strict = lane->kind == LANE_ORDERING_KEY;

		if (!strict || lane->nwaiting < STRICT_LANE_WAITING)
			return false;
		if (reading_lane)
			return false;
	}

	/* A row that is due joins the end of a busy lane, as if it had been added now. */
	if (row->not_before != 0 && !reading_lane && relay->nrequeue < RELAY_ROWS_PER_SCAN)
		relay->requeue[relay->nrequeue++] = row->id;
	else
		lane_leave_from(relay->lanes, lane, row->id, row->created_at);
	return true;
}

/* One row at a time, or no outcome for a while: whoever waits for this lane may wait for long. */
static bool
lane_lags(Relay *relay, const Lane *lane)
{
	return lane->slow || lane->suspect || !relay_lane_moves(relay, lane);
}

/* How many of its rows may wait in memory. */
static int
lane_share(Relay *relay, const Lane *lane)
{
	if (lane_lags(relay, lane))
		return RELAY_STALLED_ROWS;
	return lane->kind == LANE_ORDERING_KEY ? STRICT_LANE_WAITING : Max(acemq_max_in_flight / 2, 1);
}

/*
 * A pipelined lane that has its share and moves is waited for: to leave its
 * rows would mean to read them twice.  One that lags must not stop the others.
 */
static bool
lane_allows(FetchState *state, Lane *lane, const OutboxRow *row, bool *dealt_with)
{
	Relay *relay = state->relay;

	if (lane->nwaiting < lane_share(relay, lane))
		return true;
	*dealt_with = state->source != SOURCE_LANE && lane_lags(relay, lane);
	if (*dealt_with)
		lane_leave_from(relay->lanes, lane, row->id, row->created_at);
	return false;
}

/*
 * Rows that will go out one at a time: few of them, and fewer of one lane, so
 * that a destination which does not answer leaves room for those that do.
 */
static bool
probes_allow(Relay *relay, Lane *lane, const OutboxRow *row)
{
	if (!relay_needs_probe(relay, lane, row))
		return true;
	if (lane->nwaiting + lane->on_wire >= PROBE_ROWS_PER_LANE)
		return false;
	return lane->slow ? relay->nslow < RELAY_SLOW_ROWS : relay->nwant_probe < RELAY_PROBE_ROWS;
}

static bool
memory_allows(FetchState *state, const OutboxRow *row)
{
	Relay *relay = state->relay;
	bool fits = relay_row_is_big(row) || relay->bytes == 0 || relay->bytes + row->size <= relay_budget();

	if (!fits)
		relay->memory_full = true;
	state->full = !fits || relay->nfree_entries == 0 || relay_waiting(relay) >= acemq_max_in_flight;
	return !state->full;
}

static void
keep_row(FetchState *state, Lane *lane, const OutboxRow *offered)
{
	Relay *relay = state->relay;
	OutboxRow *row = store_keep_row(offered, relay->rows_context);

	row->of_slow_lane = lane->slow;
	row->wants_probe = !lane->slow && relay_needs_probe(relay, lane, row);
	relay_take_in(relay, row);
	if (lane->nwaiting == 0 && lane->on_wire == 0)
		lane->last_progress = relay->now;
	if (state->source == SOURCE_RANGE)
		lane_insert_by_id(relay->lanes, lane, row);
	else
		lane_append(relay->lanes, lane, row);
}

static void
requeue_due_rows(Relay *relay)
{
	for (int i = 0; i < relay->nrequeue; i++)
		if (!store_requeue_due(relay->requeue[i]))
			relay_note_locked(relay, relay->requeue[i]);
	if (relay->nrequeue > 0)
		relay->fetch_wanted = true;
}
