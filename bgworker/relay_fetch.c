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
 * Five sources, in this order: ranges (late committers, rows given back), lanes of
 * which rows were left in the table, rows that have become due, the forward scan,
 * and a sweep over all ids now and then.
 *
 * May depend on: relay_internal.h, outbox_store.h.
 *
 *-------------------------------------------------------------------------
 */
#include "relay_internal.h"

#include "outbox_store.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "guc.h"

/* Rows offered per scan at least; lanes read per turn. */
#define ROWS_PER_SCAN_MIN 64
#define LANES_PER_TURN    64
/* How often at most new rows are looked for while memory holds enough to send. */
#define LOOK_EVERY_US INT64CONST(3000)

static void fetch_ranges(FetchState *state);
static void fetch_sweep(FetchState *state);
static void fetch_lanes(FetchState *state);
static void fetch_due(FetchState *state);
static void fetch_forward(FetchState *state);
static void requeue_due_rows(Relay *relay);

/*
 * Reading pays when there is room for a good part of a window.  What has just
 * been committed may belong to a lane that has nothing to send so far, and does
 * not wait for the rows of a busy one to go: a look now and then is for it.
 */
bool
relay_has_room(Relay *relay)
{
	int waiting = relay_waiting(relay);

	if (relay->nfree_entries == 0 || relay->memory_full || relay->bytes >= relay_budget())
		return false;
	return waiting <= acemq_max_in_flight / 4 ||
	       (relay->fetch_wanted && waiting < acemq_max_in_flight && relay->now >= relay->look_at);
}

/* The lane whose due rows come next has its share and moves: to look for them again would find the same. */
static bool
due_rows_wait(Relay *relay)
{
	const Lane *lane = relay->lanes->due_blocker;

	return lane != NULL && lane->nwaiting > relay_lane_share(relay, lane) / 2 && !relay_lane_lags(relay, lane);
}

/* There is something to read, and reading it would get further. */
bool
relay_wants_rows(Relay *relay)
{
	dlist_iter iter;

	if (relay->fetch_wanted || !relay->caught_up || relay->nranges > 0 || relay->sweep_from != 0)
		return true;
	if (relay->next_due != 0 && relay->next_due <= relay->now && !due_rows_wait(relay))
		return true;
	dlist_foreach (iter, &relay->lanes->left)
	{
		Lane *lane = dlist_container(Lane, left, iter.cur);

		if ((lane->left_from < relay->next_id || relay->caught_up) &&
		    lane->nwaiting <= relay_lane_share(relay, lane) / 2 && !(lane->big_waits && relay->nbig > 0))
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
	relay->look_at = relay->now + LOOK_EVERY_US;

	relay->nrequeue = 0;
	relay->requeue = palloc(sizeof(int64) * RELAY_ROWS_PER_SCAN);

	/*
	 * One snapshot for all, and what it shows of late committers is taken in
	 * before anything that came after them: whoever saw them committed and added
	 * to the same lane may be visible too.
	 */
	PushActiveSnapshot(GetTransactionSnapshot());
	relay_take_late(relay);
	fetch_ranges(&state);
	if (!state.full && relay->nranges == 0)
		fetch_lanes(&state);
	if (!state.full)
		fetch_due(&state);
	if (!state.full && relay->nranges == 0)
		fetch_forward(&state);
	if (!state.full && relay->sweep_from != 0)
		fetch_sweep(&state);
	PopActiveSnapshot();
	requeue_due_rows(relay);
}

/* ---- sources ---- */

/* Reading a row costs as much as sending it: no more than there is a use for. */
static int
rows_that_fit(Relay *relay)
{
	int room = acemq_max_in_flight / 2 - relay_waiting(relay);

	return Min(RELAY_ROWS_PER_SCAN, Max(ROWS_PER_SCAN_MIN, room));
}

/* A lane that is no ordering key, as the statements name it. */
static void
name_lane(const Lane *lane, const char **exchange, const char **queue)
{
	*exchange = lane->kind == LANE_EXCHANGE ? lane->name : "";
	*queue = lane->kind == LANE_QUEUE ? lane->name : NULL;
}

static void
note_first_due(Relay *relay)
{
	TimestampTz first = store_next_due(PG_INT64_MIN + 1);

	if (first != 0 && (relay->next_due == 0 || first < relay->next_due))
		relay_due_from(relay, first);
}

/*
 * A long stretch of ids may be full of rows that wait for next year.  They are
 * left to the index on their due times, so that after a start, and in a sweep, no
 * message has to wait until all of them have been read.
 */
static StoreScan
scan_stretch(int64 from, int64 upto, int limit, const Lane *passed_over, FetchState *state)
{
	const char *exchange = NULL;
	const char *queue = NULL;
	StoreScan scan;

	if (passed_over)
		name_lane(passed_over, &exchange, &queue);
	scan = store_scan_undated(from, upto, exchange, queue, limit, relay_admit_row, state);
	note_first_due(state->relay);
	return scan;
}

/* Whatever it finds first, rows leave in the order of their due times. */
static StoreScan
scan_ids(int64 from, int64 upto, int limit, FetchState *state)
{
	StoreScan scan;

	state->saw_dated = false;
	scan = store_scan_ids(from, upto, limit, relay_admit_row, state);
	if (state->saw_dated && !scan.complete)
		note_first_due(state->relay);
	return scan;
}

/* One step of a range; where the next one begins, `upto` + 1 when there is none. */
static int64
read_step(FetchState *state, int64 from, int64 upto)
{
	int64 step = Min(upto, from + RELAY_ID_STEP - 1);
	StoreScan scan;

	state->source = SOURCE_RANGE;
	if (upto > step)
		scan = scan_stretch(from, step, RELAY_ROWS_PER_SCAN, NULL, state);
	else
		scan = scan_ids(from, step, RELAY_ROWS_PER_SCAN, state);
	if (!scan.complete)
		return Max(from, scan.last_id + 1);
	if (step < upto && scan.last_id == 0)
	{
		int64 next = store_first_id(step + 1);

		return next ? Min(next, upto + 1) : upto + 1;
	}
	return step + 1;
}

/* Those that were added first go first. */
static AcemqRange *
lowest_range(Relay *relay)
{
	AcemqRange *lowest = &relay->ranges[0];

	for (int i = 1; i < relay->nranges; i++)
		if (relay->ranges[i].lo < lowest->lo)
			lowest = &relay->ranges[i];
	return lowest;
}

static void
fetch_ranges(FetchState *state)
{
	Relay *relay = state->relay;

	while (relay->nranges > 0 && !state->full)
	{
		AcemqRange *range = lowest_range(relay);
		int64 upto = Min((int64) range->hi, relay->next_id - 1);

		if ((int64) range->lo <= upto)
			range->lo = read_step(state, range->lo, upto);
		if ((int64) range->lo <= upto)
			break; /* no room, or a long one: the sockets wait */
		*range = relay->ranges[--relay->nranges];
	}
}

/* Now and then all ids are looked at again; nothing waits for that. */
static void
fetch_sweep(FetchState *state)
{
	Relay *relay = state->relay;

	relay->sweep_from = read_step(state, relay->sweep_from, relay->sweep_upto);
	if (relay->sweep_from <= relay->sweep_upto)
		return;
	relay->sweep_from = 0;
	if (relay->sweep_again)
		relay_sweep(relay);
}

/* Of its rows that were given new ids some may be further up than the forward scan has come. */
static void
lane_read_up_to(Relay *relay, Lane *lane, int64 last)
{
	if (lane->requeued && !relay->caught_up)
		lane_left_read(relay->lanes, lane, last + 1);
	else
	{
		lane_left_read(relay->lanes, lane, 0);
		lane->requeued = false;
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
		const char *exchange;
		const char *queue;
		StoreScan scan;

		dlist_move_tail(&lanes->left, &lane->left);
		if (lane->left_from > last && !relay->caught_up)
			continue; /* rows that were given new ids: the forward scan comes to them first */
		if (lane->nwaiting > relay_lane_share(relay, lane) / 2 || (lane->big_waits && relay->nbig > 0))
			continue;
		lane->big_waits = false;

		state->lane = lane;
		state->lane_since = 0;
		if (lane->kind == LANE_ORDERING_KEY)
		{
			upto = last;
			scan = store_scan_key(lane->name, lane->left_from, last, relay->due_read, RELAY_STRICT_ROWS,
			                      relay_admit_row, state);
		}
		else
		{
			name_lane(lane, &exchange, &queue);
			scan = store_scan_exchange(exchange, queue, lane->left_from, upto, relay->due_read,
			                           Max(ROWS_PER_SCAN_MIN, relay_lane_share(relay, lane) - lane->nwaiting),
			                           relay_admit_row, state);
		}

		/* What is still left came after what has been read. */
		lane->left_since = Max(lane->left_since, state->lane_since);
		/* A row that is not to be sent yet has held the lane: reading goes on from there later. */
		if (lane->held)
		{
			lane_left_read(lanes, lane, 0);
			lane_leave_from(lanes, lane, lane->held_row, lane->left_since);
			relay_give_back(relay, lane);
		}
		else if (!scan.complete)
			lane_left_read(lanes, lane, Max(lane->left_from, scan.last_id + 1));
		else if (upto < last)
		{
			int64 next = scan.last_id ? upto + 1 : store_first_id(upto + 1);

			if (next == 0 || next > last)
				lane_read_up_to(relay, lane, last);
			else
				lane_left_read(lanes, lane, next);
		}
		else
			lane_read_up_to(relay, lane, last);
		lane_forget_if_unused(lanes, lane);
	}
	state->lane = NULL;
}

void
relay_due_from(Relay *relay, TimestampTz not_before)
{
	if (relay->next_due != 0 && not_before > relay->next_due)
		return;
	relay->next_due = not_before;
	relay->due_after_id = 0;
}

/*
 * The clock may be set back: what was due once stays due, so the upper end
 * never falls.
 */
static void
fetch_due(FetchState *state)
{
	Relay *relay = state->relay;
	TimestampTz upto = Max(relay->now, relay->due_read);
	TimestampTz from = relay->next_due == 1 ? 0 : relay->next_due; /* a stored 0 is read as 1 */
	StoreScan scan;

	if (relay->next_due == 0 || relay->next_due > upto || due_rows_wait(relay))
		return;
	relay->lanes->due_blocker = NULL;
	state->source = SOURCE_DUE;
	state->due_reached = relay->next_due;
	state->due_done = 0;
	scan = store_scan_due(from, relay->due_after_id, upto, rows_that_fit(relay), relay_admit_row, state);
	if (scan.complete)
	{
		relay->due_read = upto;
		relay->next_due = store_next_due(upto);
		relay->due_after_id = 0;
	}
	else if (state->due_done != 0)
	{
		relay->due_read = Max(relay->due_read, state->due_reached - 1);
		relay->next_due = state->due_reached;
		relay->due_after_id = state->due_done == state->due_reached ? state->due_done_id : 0;
	}
}

/*
 * Caught up, what is new is little, and one scan without an upper end finds
 * it.  Otherwise (after a start, or far behind) there may be millions of rows
 * that are published, retired or dead on the way: then in steps of ids.
 *
 * Behind the backlog of a lane there may be rows of others.  The lane comes to
 * its rows later, so they are not even fetched here.
 */
static void
fetch_forward(FetchState *state)
{
	Relay *relay = state->relay;
	const Lane *backlog = relay->lanes->backlog;
	int64 last = relay->caught_up && backlog == NULL ? 0 : store_last_id();
	int64 upto = relay->next_id + RELAY_ID_STEP - 1;
	StoreScan scan;

	state->source = SOURCE_FORWARD;
	state->offered = state->kept = 0;
	if (backlog)
	{
		upto = Min(upto, last);
		scan = scan_stretch(relay->next_id, upto, RELAY_ROWS_PER_SCAN, backlog, state);
	}
	else
	{
		int limit = relay->skimming ? RELAY_ROWS_PER_SCAN : rows_that_fit(relay);

		if (last <= upto)
			upto = PG_INT64_MAX;
		scan = upto == PG_INT64_MAX ? scan_ids(relay->next_id, upto, limit, state)
		                            : scan_stretch(relay->next_id, upto, limit, NULL, state);
	}

	if (scan.last_id >= relay->next_id)
		relay->next_id = scan.last_id + 1;
	relay->caught_up = scan.complete && upto >= last;
	if (scan.complete && upto != PG_INT64_MAX)
		relay->next_id = Max(relay->next_id, relay->caught_up ? upto + 1 : Max(store_any_id(upto + 1), upto + 1));
	if (relay->caught_up)
		relay->scan_waits_since = 0;

	/* Most of it belongs to lanes that are held: get past them quickly. */
	relay->skimming = state->kept * 2 < state->offered;
}

static void
requeue_due_rows(Relay *relay)
{
	for (int i = 0; i < relay->nrequeue; i++)
		if (!store_requeue_due(relay->requeue[i]))
			relay_note_locked(relay, relay->requeue[i]);
	if (relay->nrequeue > 0)
		relay->caught_up = false;
}
