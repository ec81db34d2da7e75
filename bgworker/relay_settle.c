/*-------------------------------------------------------------------------
 *
 * relay_settle.c
 *		The relay's turn at the database: one transaction that removes what
 *		was confirmed, writes down what failed, and reads what is next.
 *
 * Deletes are gathered for a few milliseconds, so that one flush serves
 * hundreds of rows.  The transaction of a turn that only reads does not write
 * and needs no flush of its own; what it has read may still have to be flushed
 * (durability.c).
 *
 * May depend on: relay_internal.h, outbox_store.h, durability.h, src/backoff.h.
 *
 *-------------------------------------------------------------------------
 */
#include "relay_internal.h"

#include "access/xact.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "backoff.h"
#include "durability.h"
#include "guc.h"
#include "kill_points.h"
#include "outbox_store.h"

/* Settle when so many are confirmed, or the first of them has waited so long, or nothing else is going on. */
#define SETTLE_BATCH_MAX 512
#define SETTLE_DELAY_MS  10
#define RETRY_DB_MS      100
/* After an error that will come again: so long, doubled each time, and at most so long. */
#define FAILED_TURN_MS     1000
#define FAILED_TURN_MAX_MS 30000

typedef struct DatabaseTurn
{
	Relay *relay;
	bool settle;
	bool fetch;
	bool upkeep;
	int64 *ids; /* of confirmed rows, in list order */
	bool *done;
	int count;
	bool *failures_written; /* in list order */
	XLogRecPtr horizon;
	bool start_over; /* the table is not the one we know */
	int purged;      /* published rows removed, counted when that is committed */
} DatabaseTurn;

static void do_database_turn(void *arg);
static void write_failures(DatabaseTurn *turn);
static void collect_confirmed(DatabaseTurn *turn);
static void release_settled(DatabaseTurn *turn);
static void release_failed(DatabaseTurn *turn);
static void after_failure(Relay *relay, OutboxRow *row, bool retire);
static void end_fetch(Relay *relay);
static void note_durability(Relay *relay, XLogRecPtr horizon);

static int64
next_attempt_after(const OutboxRow *row)
{
	return backoff_delay_ms(row->attempts, acemq_retry_delay, acemq_retry_delay_max) * 1000;
}

static bool
is_last_attempt(const OutboxRow *row)
{
	return row->attempts >= acemq_max_attempts;
}

bool
relay_settle_is_due(Relay *relay)
{
	TimestampTz due_at = relay_settle_due_at(relay);

	return (due_at != 0 && due_at <= relay->now) ||
	       relay->nconfirmed >= Min(SETTLE_BATCH_MAX, Max(1, acemq_max_in_flight / 2));
}

TimestampTz
relay_settle_due_at(Relay *relay)
{
	TimestampTz oldest = 0;

	if (relay->nconfirmed > 0)
		oldest = relay->oldest_confirmed;
	if (relay->nfailed > 0)
		oldest = oldest == 0 ? relay->oldest_failed : Min(oldest, relay->oldest_failed);
	return oldest == 0 ? 0 : oldest + SETTLE_DELAY_MS * INT64CONST(1000);
}

/*
 * The flush of a settle takes milliseconds, and a row that has become due would
 * have to wait for it: it is read and sent first.  Once, not again and again:
 * while rows become due all the time, every other turn settles.
 */
static bool
put_off_settle(Relay *relay, bool fetch)
{
	bool due = fetch && relay->next_due != 0 && relay->next_due <= relay->now;

	relay->settle_put_off = due && !relay->settle_put_off;
	return relay->settle_put_off;
}

/*
 * A trigger of the owner's, most likely.  What was published keeps its place in
 * the window, and is not published again.
 */
static void
put_off_after_failure(Relay *relay)
{
	relay->db_failures = Min(relay->db_failures + 1, 30);
	relay->retry_db_at =
	    relay->now + backoff_delay_ms(relay->db_failures, FAILED_TURN_MS, FAILED_TURN_MAX_MS) * INT64CONST(1000);
	acemq_slot_set_error(relay->slot, psprintf("table acemq.outbox: %s", db_failure()));
	ereport(WARNING,
	        (errmsg("acemq: rows can neither be read nor removed: %s", db_failure()),
	         errhint("Look at what has been put on table acemq.outbox. Messages that were published stay in it "
	                 "until then, and no others are.")));
}

void
relay_database_turn(Relay *relay)
{
	DatabaseTurn turn = {.relay = relay};
	MemoryContext caller = MemoryContextSwitchTo(relay->turn_context);
	DbResult result;

	turn.fetch = relay_may_fetch(relay);
	turn.settle = relay->nconfirmed > 0 && relay_settle_is_due(relay) && !put_off_settle(relay, turn.fetch);
	turn.upkeep = relay->now >= relay->upkeep_at;
	collect_confirmed(&turn);

	result = db_run(do_database_turn, &turn, "acemq: settling and reading rows");
	end_fetch(relay);
	relay->db_skipped = result != DB_DONE;
	if (result == DB_DONE && turn.start_over)
		relay_start_over(relay);
	else if (result == DB_DONE)
	{
		relay->db_failures = 0;
		pg_atomic_fetch_add_u64(&relay->slot->outbox_purged, turn.purged);
		release_settled(&turn);
		release_failed(&turn);
	}
	else
	{
		/* Rows read before the turn broke off were really there; what was written is undone. */
		pg_atomic_fetch_add_u64(&relay->slot->skipped_turns, 1);
		relay->retry_db_at = relay->now + RETRY_DB_MS * INT64CONST(1000);
		if (result == DB_FAILED)
			put_off_after_failure(relay);
		if (relay->nrequeue > 0)
			relay_due_from(relay, PG_INT64_MIN + 1);
		relay->nrequeue = 0;
		turn.horizon = durability_horizon();
		/* Whoever dropped it may not have been able to tell (COMMIT PREPARED): a new worker finds out what is here. */
		if (result == DB_GONE)
			pg_atomic_write_u32(&relay->slot->leave, 1);
	}
	if (!turn.start_over)
		note_durability(relay, turn.horizon);
	MemoryContextSwitchTo(caller);
}

static void
do_database_turn(void *arg)
{
	DatabaseTurn *turn = arg;
	Relay *relay = turn->relay;
	Oid file;
	int fence = store_fence();

	/* A dump was restored here: rows came past outbox_add. */
	if (relay->fence_known && fence != relay->fence && (fence == STORE_FOREIGN || relay->fence == STORE_FOREIGN))
		pg_atomic_write_u32(&relay->slot->pending_approximate, 1);
	relay->fence = fence;
	relay->fence_known = true;
	relay->fence_read_at = relay->now;
	file = store_table_file();
	turn->start_over = relay->table_file != InvalidOid && file != relay->table_file;
	relay->table_file = file;
	if (turn->start_over)
		return;
	/* First, since it counts rows: what this turn removes is taken off when it is committed. */
	if (turn->upkeep)
		turn->purged = relay_upkeep(relay);
	if (turn->settle)
	{
		KILL_POINT(RELAY_SETTLING);
		store_settle(turn->ids, turn->count, turn->done);
		KILL_POINT(RELAY_DELETED);
	}
	write_failures(turn);
	relay_look_at_holders(relay, turn->upkeep);
	if (turn->fetch && relay->fence == STORE_OWN)
	{
		relay->fetch_wanted = false;
		relay_fetch(relay);
		KILL_POINT(RELAY_FETCHED);
	}
	turn->horizon = durability_horizon();
}

/* ---- confirmed rows ---- */

static void
collect_confirmed(DatabaseTurn *turn)
{
	dlist_iter iter;

	if (!turn->settle)
		return;
	turn->ids = palloc(sizeof(int64) * turn->relay->nconfirmed);
	turn->done = palloc0(sizeof(bool) * turn->relay->nconfirmed);
	dlist_foreach (iter, &turn->relay->confirmed)
		turn->ids[turn->count++] = dlist_container(OutboxRow, node, iter.cur)->id;
}

/* The commit has flushed the deletes: the rows give up their places in the window. */
static void
release_settled(DatabaseTurn *turn)
{
	Relay *relay = turn->relay;
	dlist_mutable_iter iter;
	int i = 0;
	int released = 0;

	if (!turn->settle)
		return;
	KILL_POINT(RELAY_SETTLED);
	dlist_foreach_modify (iter, &relay->confirmed)
	{
		OutboxRow *row = dlist_container(OutboxRow, node, iter.cur);

		if (!turn->done[i++])
			continue;
		dlist_delete(&row->node);
		relay->nconfirmed--;
		relay_forget_row(relay, row);
		released++;
	}
	relay->oldest_confirmed = relay->now;
	pg_atomic_fetch_sub_u64(&relay->slot->pending, released);
	ConditionVariableBroadcast(&relay->slot->progress);
}

/* ---- failed rows ---- */

static void
write_failures(DatabaseTurn *turn)
{
	Relay *relay = turn->relay;
	dlist_iter iter;
	int i = 0;

	if (relay->nfailed == 0)
		return;
	turn->failures_written = MemoryContextAllocZero(relay->turn_context, sizeof(bool) * relay->nfailed);
	dlist_foreach (iter, &relay->failed)
	{
		OutboxRow *row = dlist_container(OutboxRow, node, iter.cur);

		StoreFailure failure = {.id = row->id,
		                        .attempts = row->attempts,
		                        .error = row->failure,
		                        .next_attempt_at = relay->now + next_attempt_after(row),
		                        .retire = is_last_attempt(row),
		                        .off_ladder = relay_leaves_ladder(row)};

		turn->failures_written[i++] = store_fail(&failure);
	}
	KILL_POINT(RELAY_FAILURE_WRITTEN);
}

static void
release_failed(DatabaseTurn *turn)
{
	Relay *relay = turn->relay;
	dlist_mutable_iter iter;
	int i = 0;

	if (turn->failures_written == NULL)
		return;
	KILL_POINT(RELAY_FAILURE_COMMITTED);
	dlist_foreach_modify (iter, &relay->failed)
	{
		OutboxRow *row = dlist_container(OutboxRow, node, iter.cur);

		if (!turn->failures_written[i++])
			continue;
		dlist_delete(&row->node);
		relay->nfailed--;
		after_failure(relay, row, is_last_attempt(row));
	}
	ConditionVariableBroadcast(&relay->slot->progress);
}

static void
retired(Relay *relay, const OutboxRow *row)
{
	ereport(
	    LOG,
	    (errmsg("acemq: message %s retired after %d attempts: %s", row->message_id, row->attempts, row->failure),
	     errhint("Mend the cause and call acemq.outbox_release('%s'), or acemq.outbox_discard().", row->message_id)));
	pg_atomic_fetch_add_u64(&relay->slot->retired, 1);
	pg_atomic_fetch_sub_u64(&relay->slot->pending, 1);
}

/*
 * The lane goes on when the row may be tried again, or at once without it when
 * it is retired or belongs to another lane now.  Of several failed rows of a lane the first one counts; the
 * others hold the lane themselves when it comes to them.
 */
static void
after_failure(Relay *relay, OutboxRow *row, bool retire)
{
	Lane *lane = row->lane;
	TimestampTz again = relay->now + next_attempt_after(row);
	bool leaves = retire || relay_leaves_lane(row);

	if (retire)
		retired(relay, row);
	else if (leaves)
		relay_hold_target(relay, row, again);
	if (leaves)
	{
		if (lane->held_row == row->id || lane->held_until == PG_INT64_MAX)
			lane_hold(relay->lanes, lane, row, relay->now);
	}
	else
	{
		lane_leave_from(relay->lanes, lane, row->id, row_since(row));
		if (lane->held_until == PG_INT64_MAX || row->id <= lane->held_row)
			lane_hold(relay->lanes, lane, row, again);
	}
	lane->nfailed--;
	pfree(row->failure);
	row->failure = NULL;
	if (row->maybe_delivered || (row->alone && !retire))
		relay_set_aside(relay, row); /* cannot be cancelled; goes alone the next time too */
	else
		relay_forget_row(relay, row);
}

/* ---- the end of a turn ---- */

/* Rows read are in memory and listed: backends that commit or cancel from now on are compared with what is true now. */
static void
end_fetch(Relay *relay)
{
	AcemqSlot *slot = relay->slot;

	if ((pg_atomic_read_u32(&slot->fetch_epoch) & 1) == 0)
		return;
	pg_atomic_write_u64(&slot->scan_cursor, (uint64) (relay->next_id - 1));
	pg_memory_barrier();
	pg_atomic_fetch_add_u32(&slot->fetch_epoch, 1);
	ConditionVariableBroadcast(&slot->fetch_done);
}

static void
note_durability(Relay *relay, XLogRecPtr horizon)
{
	dlist_iter iter;
	bool fresh = false;

	dlist_reverse_foreach(iter, &relay->all)
	{
		OutboxRow *row = dlist_container(OutboxRow, all, iter.cur);

		if (row->durable_at != 0)
			break;
		row->durable_at = horizon;
		fresh = true;
	}
	if (!fresh)
		return;
	KILL_POINT(RELAY_UNFLUSHED);
	durability_flush(horizon);
}
