/*-------------------------------------------------------------------------
 *
 * relay_admit.c
 *		One row that a scan has found: does it come into memory now, or when
 *		is it found again?
 *
 * Whatever is refused must be found by a later scan: because the scan stops
 * before it, because its lane is read again from it on (lane_leave_from), by its
 * due time, or by the list of locked rows.
 *
 * May depend on: relay_internal.h, outbox_store.h.
 *
 *-------------------------------------------------------------------------
 */
#include "relay_internal.h"

#include "outbox_store.h"
#include "utils/hsearch.h"

#include "guc.h"

/* The one on the wire and the next. */
#define PROBE_ROWS_PER_LANE 2
/* Rows of a paced lane in memory: fewer would have it wait for the next read. */
#define LANE_SHARE_MIN 64
/* What is read once only: what a lane sends in about this time. */
#define SCAN_WAIT_US INT64CONST(50000)

static bool waits_for_due_scan(const FetchState *state, const OutboxRow *row);
static bool stays_in_table(FetchState *state, Lane *lane, const OutboxRow *row);
static bool lane_allows(FetchState *state, Lane *lane, const OutboxRow *row, bool *dealt_with);
static bool probes_allow(Relay *relay, Lane *lane, const OutboxRow *row);
static bool memory_allows(FetchState *state, const OutboxRow *row);
static void keep_row(FetchState *state, Lane *lane, const OutboxRow *row);

/* It has been on the wire, or an attempt is written down: outbox_cancel and its lane know it by its id. */
static bool
keeps_its_id(Relay *relay, const OutboxRow *row)
{
	return row->attempts > 0 || hash_search(relay->sent_before, &row->id, HASH_FIND, NULL) != NULL;
}

/*
 * Rows with a due time leave in the order of these, also when many of them have
 * become due by the time we see them first: after a start, or a pause.  So only
 * the scan in this order takes them in; those that it has dealt with and that
 * came back to the table since come with their lane.
 */
static bool
waits_for_due_scan(const FetchState *state, const OutboxRow *row)
{
	if (row->not_before == 0 || state->source == SOURCE_DUE)
		return false;
	return state->source != SOURCE_LANE || row->not_before > state->relay->due_read;
}

/* One that the scan by due times meets for the first time. */
static bool
becomes_due(const FetchState *state, const Lane *lane, const OutboxRow *row)
{
	bool will_be_read = lane->left_from != 0 && lane->left_from <= row->id;

	return state->source == SOURCE_DUE && !keeps_its_id(state->relay, row) &&
	       (row->not_before > state->relay->due_read || !will_be_read);
}

/*
 * It stays in the table and is read again with its lane.  Lanes are read in the
 * order of ids: a row that has become due is given the next one, as if it had
 * been added now, at the end of this turn.
 */
static void
leave_row(FetchState *state, Lane *lane, const OutboxRow *row)
{
	Relay *relay = state->relay;

	if (becomes_due(state, lane, row))
	{
		Assert(relay->nrequeue < RELAY_ROWS_PER_SCAN);
		relay->requeue[relay->nrequeue++] = row->id;
		lane_leave_from(relay->lanes, lane, relay->next_id, row_since(row));
		lane->requeued = true;
	}
	else
		lane_leave_from(relay->lanes, lane, row->id, row_since(row));
	if (state->source == SOURCE_FORWARD && lane->kind != LANE_ORDERING_KEY)
		relay->lanes->backlog = lane;
}

/* True: dealt with (in memory, or to be found again later); false: no room, stop before this row. */
static bool
deal_with(FetchState *state, const OutboxRow *row)
{
	Relay *relay = state->relay;
	Lane *lane;
	bool dealt_with;

	if (hash_search(relay->by_id, &row->id, HASH_FIND, NULL) != NULL)
		return true;
	if (waits_for_due_scan(state, row))
	{
		state->saw_dated = true;
		relay_due_from(relay, row->not_before);
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
		leave_row(state, lane, row);
		lane_wait_for_probe(relay->lanes, lane, relay_destination(row));
		return state->source != SOURCE_LANE;
	}
	if (relay_row_is_big(row) && relay->nbig > 0)
	{
		/* The next big one when this one is through; the others do not wait for that. */
		lane->big_waits = true;
		leave_row(state, lane, row);
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

bool
relay_admit_row(void *arg, const OutboxRow *row)
{
	FetchState *state = arg;

	state->offered++;
	state->due_reached = row->not_before;
	if (!deal_with(state, row))
		return false;
	state->due_done = row->not_before;
	state->due_done_id = row->id;
	state->lane_since = row_since(row);
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
		lane_leave_from(relay->lanes, lane, row->id, row_since(row));
		lane->suspect = true;
		return true;
	}
	/* The row that holds its lane has been released by hand: the lane is opened with the next turn. */
	if (lane->held && !lane->slow && row->id == lane->held_row && lane->held_until != PG_INT64_MAX)
		lane_hold(relay->lanes, lane, row, relay->now);

	if (!lane->held && (lane->left_from == 0 || reading_lane))
	{
		bool strict = lane->kind == LANE_ORDERING_KEY;

		if (!strict || lane->nwaiting < RELAY_STRICT_ROWS)
			return false;
		if (reading_lane)
			return false;
	}

	leave_row(state, lane, row);
	return true;
}

/* One row at a time, or no outcome for a while. */
bool
relay_lane_lags(Relay *relay, const Lane *lane)
{
	return lane->slow || lane->suspect || !relay_lane_moves(relay, lane);
}

/* Of a lane that is paced, no more than it sends between two reads: a light lane's rows wait for the turn that reads them. */
int
relay_lane_share(Relay *relay, const Lane *lane)
{
	if (relay_lane_lags(relay, lane))
		return RELAY_STALLED_ROWS;
	if (lane->kind == LANE_ORDERING_KEY)
		return RELAY_STRICT_ROWS;
	return Min(Max(acemq_max_in_flight / 2, 1), Max(LANE_SHARE_MIN, 2 * relay_lane_window(relay, lane)));
}

/*
 * A scan of ids waits for a lane that has its share and moves: to leave its
 * rows means to read them twice.  But not for long: behind a backlog there may
 * be rows of lanes that have nothing else to send.
 */
static bool
scan_waits(Relay *relay)
{
	if (relay->scan_waits_since == 0)
		relay->scan_waits_since = relay->now;
	return relay->now - relay->scan_waits_since < SCAN_WAIT_US;
}

/* A lane that lags stops no other one, whatever the scan. */
static bool
lane_allows(FetchState *state, Lane *lane, const OutboxRow *row, bool *dealt_with)
{
	Relay *relay = state->relay;

	if (lane->nwaiting < relay_lane_share(relay, lane))
		return true;
	*dealt_with = state->source != SOURCE_LANE &&
	              (relay_lane_lags(relay, lane) || (state->source != SOURCE_DUE && !scan_waits(relay)));
	if (*dealt_with)
		leave_row(state, lane, row);
	else if (state->source == SOURCE_DUE)
		relay->lanes->due_blocker = lane;
	return false;
}

/*
 * Rows that will go out one at a time: few of them, and fewer of one lane or to
 * one destination, so that one which does not answer leaves room for those that do.
 */
static bool
probes_allow(Relay *relay, Lane *lane, const OutboxRow *row)
{
	if (!relay_needs_probe(relay, lane, row))
		return true;
	if (lane->nwaiting + lane->on_wire >= PROBE_ROWS_PER_LANE)
		return false;
	if (!relay_trust_allows_probe(relay, row))
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
	if (relay_needs_probe(relay, lane, row))
	{
		row->wants_probe = !lane->slow;
		relay_trust_probe_begins(relay, row);
	}
	relay_take_in(relay, row);
	if (lane->nwaiting == 0 && lane->on_wire == 0)
		lane->last_progress = relay->now;
	if (state->source == SOURCE_RANGE)
		lane_insert_in_order(relay->lanes, lane, row);
	else
		lane_append(relay->lanes, lane, row);
}
