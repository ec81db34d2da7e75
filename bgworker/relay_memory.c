/*-------------------------------------------------------------------------
 *
 * relay_memory.c
 *		The rows that the relay holds in memory: taking them in, letting them
 *		go, and giving them back to the table.
 *
 * Every row in memory has an entry in AcemqSlot.fetched, where outbox_cancel
 * looks.  A row that has been on the wire keeps its entry when it is given
 * back: it may be in the broker, so it must not be cancelled.
 *
 * May depend on: relay_internal.h.
 *
 *-------------------------------------------------------------------------
 */
#include "relay_internal.h"

#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "guc.h"

static void give_back_lane(Relay *relay, Lane *lane, bool lane_will_be_read);
static void let_go(Relay *relay, OutboxRow *row);
static void inherit_entries(Relay *relay);
static int take_entry(Relay *relay, OutboxRow *row);
static void reclaim_entries(Relay *relay);

void
relay_memory_init(Relay *relay)
{
	HASHCTL control = {0};

	relay->rows_context = AllocSetContextCreate(relay->context, "acemq rows", ALLOCSET_DEFAULT_SIZES);
	dlist_init(&relay->all);
	dlist_init(&relay->confirmed);
	dlist_init(&relay->failed);

	control.hcxt = relay->context;
	control.keysize = sizeof(int64);
	control.entrysize = sizeof(RowById);
	relay->by_id = hash_create("acemq rows by id", 1024, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	control.entrysize = sizeof(SentBefore);
	relay->sent_before = hash_create("acemq rows sent before", 256, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	inherit_entries(relay);
}

/* A worker that died leaves the ids it held, some of which were on the wire. */
static void
inherit_entries(Relay *relay)
{
	relay->free_entries = MemoryContextAlloc(relay->context, sizeof(int) * ACEMQ_MAX_ROWS_IN_MEMORY);
	for (int i = ACEMQ_MAX_ROWS_IN_MEMORY - 1; i >= 0; i--)
	{
		int64 id = (int64) pg_atomic_read_u64(&relay->slot->fetched[i]);
		SentBefore *before;
		bool found = true;

		if (id != 0)
		{
			before = hash_search(relay->sent_before, &id, HASH_ENTER, &found);
			if (!found)
			{
				before->entry = i;
				before->alone = false;
			}
		}
		if (found)
		{
			pg_atomic_write_u64(&relay->slot->fetched[i], 0);
			relay->free_entries[relay->nfree_entries++] = i;
		}
	}
}

/* Larger than the whole budget: such rows are held and sent one at a time, beside the others. */
bool
relay_row_is_big(const OutboxRow *row)
{
	return row->size > relay_budget();
}

Size
relay_budget(void)
{
	return (Size) acemq_max_in_flight_bytes * 1024;
}

int
relay_waiting(Relay *relay)
{
	return relay->nrows - relay->on_wire - relay->nconfirmed - relay->nfailed;
}

bool
relay_lane_moves(Relay *relay, const Lane *lane)
{
	return (lane->nwaiting == 0 && lane->on_wire == 0) || relay->now - lane->last_progress < RELAY_STALLED_MS * 1000;
}

void
relay_take_in(Relay *relay, OutboxRow *row)
{
	RowById *by_id = hash_search(relay->by_id, &row->id, HASH_ENTER, NULL);

	by_id->row = row;
	row->held_entry = take_entry(relay, row);
	dlist_push_tail(&relay->all, &row->all);
	relay->nrows++;
	row->was_big = relay_row_is_big(row);
	if (row->was_big)
		relay->nbig++;
	else
		relay->bytes += row->size;
	if (row->alone)
		relay->nalone++;
	if (row->wants_probe)
		relay->nwant_probe++;
	if (row->of_slow_lane)
		relay->nslow++;
	row->durable_at = 0; /* not known to be durable: set at the end of the turn */
}

static int
take_entry(Relay *relay, OutboxRow *row)
{
	SentBefore *before = hash_search(relay->sent_before, &row->id, HASH_FIND, NULL);
	int entry;

	if (before)
	{
		entry = before->entry;
		row->was_sent = row->maybe_delivered = true;
		row->alone = before->alone;
		hash_search(relay->sent_before, &row->id, HASH_REMOVE, NULL);
		return entry;
	}
	entry = relay->free_entries[--relay->nfree_entries];
	pg_atomic_write_u64(&relay->slot->fetched[entry], (uint64) row->id);
	return entry;
}

void
relay_forget_row(Relay *relay, OutboxRow *row)
{
	pg_atomic_write_u64(&relay->slot->fetched[row->held_entry], 0);
	relay->free_entries[relay->nfree_entries++] = row->held_entry;
	let_go(relay, row);
}

/* The part of forgetting that is the same for every row. */
static void
let_go(Relay *relay, OutboxRow *row)
{
	hash_search(relay->by_id, &row->id, HASH_REMOVE, NULL);
	dlist_delete(&row->all);
	relay->nrows--;
	if (row->was_big)
		relay->nbig--;
	else
		relay->bytes -= row->size;
	if (row->alone)
		relay->nalone--;
	if (row->of_slow_lane)
		relay->nslow--;
	relay_trust_probe_ends(relay, row);
	if (row->wants_probe && --relay->nwant_probe <= RELAY_PROBE_ROWS / 2)
		lanes_resume_probes(relay->lanes, 1);
	relay->memory_full = false;
	pfree(row);
}

/* Forget the row, but not that it may be in the broker. */
void
relay_set_aside(Relay *relay, OutboxRow *row)
{
	SentBefore *before;

	if (!row->was_sent)
	{
		relay_forget_row(relay, row);
		return;
	}
	before = hash_search(relay->sent_before, &row->id, HASH_ENTER, NULL);
	before->entry = row->held_entry;
	before->alone = row->alone;
	let_go(relay, row);
	if (relay->nfree_entries == 0)
		reclaim_entries(relay);
}

/*
 * Entries are for the rows in memory first.  It takes several windows of lost
 * rows to get here: four at the largest acemq.max_in_flight, forty at the default.
 */
static void
reclaim_entries(Relay *relay)
{
	HASH_SEQ_STATUS status;
	SentBefore *before;

	hash_seq_init(&status, relay->sent_before);
	while ((before = hash_seq_search(&status)) != NULL)
	{
		pg_atomic_write_u64(&relay->slot->fetched[before->entry], 0);
		relay->free_entries[relay->nfree_entries++] = before->entry;
		hash_search(relay->sent_before, &before->id, HASH_REMOVE, NULL);
	}
}

/*
 * Rows that wait are found again where they came from: by their lane if it
 * will be read anyway, by the due time, or by their id.
 */
static void
give_back_lane(Relay *relay, Lane *lane, bool lane_will_be_read)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &lane->waiting)
	{
		OutboxRow *row = dlist_container(OutboxRow, node, iter.cur);

		lane_remove_waiting(lane, row);
		if (lane_will_be_read)
			lane_leave_from(relay->lanes, lane, row->id, row_since(row));
		else if (row->not_before != 0)
			relay_due_from(relay, row->not_before);
		else if (row->id + RELAY_ID_STEP < relay->next_id)
			relay_add_range(relay, row->id, row->id);
		else
		{
			relay->next_id = Min(relay->next_id, row->id);
			relay->caught_up = false;
		}
		relay_set_aside(relay, row);
	}
}

void
relay_give_back(Relay *relay, Lane *lane)
{
	HASH_SEQ_STATUS status;
	Lane *each;

	if (lane)
	{
		give_back_lane(relay, lane, true);
		return;
	}
	hash_seq_init(&status, relay->lanes->lanes);
	while ((each = hash_seq_search(&status)) != NULL)
	{
		if (each->nwaiting > 0)
			give_back_lane(relay, each, each->held || each->left_from != 0);
		lane_forget_if_unused(relay->lanes, each);
	}
	/* The cursor must not claim more than will be read again. */
	pg_atomic_write_u64(&relay->slot->scan_cursor, (uint64) (relay->next_id - 1));
}

/*
 * Memory is full and there is more to read: lanes that have stalled give back
 * what waits, so that a queue which does not confirm holds up nobody else.
 */
void
relay_relieve_memory(Relay *relay)
{
	HASH_SEQ_STATUS status;
	Lane *lane;

	if (relay->now < relay->relieve_at)
		return;
	relay->relieve_at = relay->now + RELAY_STALLED_MS * 1000;
	hash_seq_init(&status, relay->lanes->lanes);
	while ((lane = hash_seq_search(&status)) != NULL)
	{
		if (lane->nwaiting > RELAY_STALLED_ROWS && !relay_lane_moves(relay, lane))
		{
			give_back_lane(relay, lane, true);
			lane_unmark_ready(relay->lanes, lane);
		}
	}
}

/*
 * The table was truncated or rewritten.  Rows in memory may be gone, and their
 * ids may belong to others soon: what the broker says of them must not be
 * believed, so the connection goes too.
 */
void
relay_start_over(Relay *relay)
{
	dlist_mutable_iter iter;

	relay_lost(relay, "table acemq.outbox was truncated or rewritten", 0);
	dlist_foreach_modify (iter, &relay->all)
	{
		OutboxRow *row = dlist_container(OutboxRow, all, iter.cur);

		if (row->failure)
			pfree(row->failure);
		relay_set_aside(relay, row);
	}
	dlist_init(&relay->confirmed);
	dlist_init(&relay->failed);
	relay->nconfirmed = relay->nfailed = 0;
	reclaim_entries(relay);
	MemoryContextDelete(relay->lanes->context);
	relay->lanes = lanes_create(relay->context);

	relay->next_id = 1;
	relay->caught_up = false;
	relay->nranges = relay->nlocked = 0;
	relay->sweep_from = 0;
	relay->due_read = PG_INT64_MIN + 1;
	relay->next_due = 0;
	relay->due_after_id = 0;
	relay->fetch_wanted = true;
	pg_atomic_write_u32(&relay->slot->pending_approximate, 1);
}
