/*-------------------------------------------------------------------------
 *
 * lanes.c
 *		Bookkeeping of lanes.
 *
 * May depend on: outbox_row.h.
 *
 *-------------------------------------------------------------------------
 */
#include "lanes.h"

#include "common/hashfn.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

static int earlier_release(const pairingheap_node *a, const pairingheap_node *b, void *arg);
static void lane_update_left_list(LaneTable *table, Lane *lane);

LaneTable *
lanes_create(MemoryContext parent)
{
	MemoryContext context = AllocSetContextCreate(parent, "acemq lanes", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	LaneTable *table = palloc0(sizeof(LaneTable));
	HASHCTL control = {0};

	table->context = context;
	control.keysize = sizeof(LaneKey);
	control.entrysize = sizeof(Lane);
	control.hcxt = context;
	table->lanes = hash_create("acemq lanes", 256, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	dlist_init(&table->ready);
	dlist_init(&table->left);
	dlist_init(&table->probe_backlog);
	dlist_init(&table->holding);
	table->held = pairingheap_allocate(earlier_release, NULL);
	MemoryContextSwitchTo(caller);
	return table;
}

static int
earlier_release(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	TimestampTz ta = pairingheap_const_container(Lane, held_node, a)->held_until;
	TimestampTz tb = pairingheap_const_container(Lane, held_node, b)->held_until;

	return (ta < tb) - (ta > tb);
}

static LaneKind
kind_of_row(const OutboxRow *row, const char **name)
{
	if (row->ordering_key)
	{
		*name = row->ordering_key;
		return LANE_ORDERING_KEY;
	}
	/* Not the target's, whatever way the row goes out: a missing ladder holds up its own messages only. */
	if (row->ladder_due_at != 0)
	{
		*name = LADDER_EXCHANGE;
		return LANE_EXCHANGE;
	}
	if (row->exchange[0] != '\0')
	{
		*name = row->exchange;
		return LANE_EXCHANGE;
	}
	*name = row->routing_key;
	return LANE_QUEUE;
}

Lane *
lane_of_row(LaneTable *table, const OutboxRow *row)
{
	const char *name;
	LaneKind kind = kind_of_row(row, &name);
	LaneKey key;
	Lane *lane;
	bool found;
	int len = strlen(name);

	key.hash[0] = hash_bytes_extended((const unsigned char *) name, len, (uint64) kind);
	key.hash[1] =
	    hash_bytes_extended((const unsigned char *) name, len, (uint64) kind + UINT64CONST(0x9E3779B97F4A7C15));
	lane = hash_search(table->lanes, &key, HASH_ENTER, &found);
	if (!found)
	{
		memset((char *) lane + sizeof(LaneKey), 0, sizeof(Lane) - sizeof(LaneKey));
		lane->kind = kind;
		lane->name = MemoryContextStrdup(table->context, name);
		dlist_init(&lane->waiting);
	}
	return lane;
}

void
lane_forget_if_unused(LaneTable *table, Lane *lane)
{
	if (lane->nwaiting > 0 || lane->on_wire > 0 || lane->nfailed > 0 || lane->held || lane->left_from != 0)
		return;
	lane_unmark_ready(table, lane);
	if (table->backlog == lane)
		table->backlog = NULL;
	if (table->due_blocker == lane)
		table->due_blocker = NULL;
	pfree(lane->name);
	hash_search(table->lanes, &lane->key, HASH_REMOVE, NULL);
}

void
lane_append(LaneTable *table, Lane *lane, OutboxRow *row)
{
	row->lane = lane;
	row->state = ROW_WAITING;
	dlist_push_tail(&lane->waiting, &row->node);
	lane->nwaiting++;
	lane_mark_ready(table, lane);
}

/* Only rows of late commits and of a loss come this way, a window of them at most. */
void
lane_insert_in_order(LaneTable *table, Lane *lane, OutboxRow *row)
{
	dlist_iter iter;

	row->lane = lane;
	row->state = ROW_WAITING;
	lane->nwaiting++;
	lane_mark_ready(table, lane);
	dlist_foreach (iter, &lane->waiting)
	{
		OutboxRow *other = dlist_container(OutboxRow, node, iter.cur);

		if (row_goes_before(row, other))
		{
			dlist_insert_before(&other->node, &row->node);
			return;
		}
	}
	dlist_push_tail(&lane->waiting, &row->node);
}

void
lane_remove_waiting(Lane *lane, OutboxRow *row)
{
	dlist_delete(&row->node);
	lane->nwaiting--;
}

void
lane_leave_from(LaneTable *table, Lane *lane, int64 id, TimestampTz since)
{
	if (lane->left_from == 0 || id < lane->left_from)
	{
		lane->left_from = id;
		lane->left_since = since;
	}
	lane_update_left_list(table, lane);
}

void
lane_left_read(LaneTable *table, Lane *lane, int64 next)
{
	lane->left_from = next;
	if (next == 0 && table->backlog == lane)
		table->backlog = NULL;
	lane_update_left_list(table, lane);
}

/* On the list of lanes to read from, or on that of those that wait for a probe: something is left, and it is not held. */
static void
lane_update_left_list(LaneTable *table, Lane *lane)
{
	bool wanted = lane->left_from != 0 && !lane->held;

	if (lane->in_left_list)
	{
		dlist_delete(&lane->left);
		if (!lane->in_probe_backlog)
			table->nleft--;
		lane->in_left_list = false;
	}
	if (!wanted)
		return;
	lane->in_left_list = true;
	lane->in_probe_backlog = lane->probe_backlog;
	dlist_push_tail(lane->probe_backlog ? &table->probe_backlog : &table->left, &lane->left);
	if (!lane->probe_backlog)
		table->nleft++;
}

void
lane_wait_for_probe(LaneTable *table, Lane *lane, uint64 of)
{
	lane->probe_backlog = true;
	lane->probe_of = of;
	lane_update_left_list(table, lane);
}

void
lanes_resume_probes(LaneTable *table, int count)
{
	while (count-- > 0 && !dlist_is_empty(&table->probe_backlog))
	{
		Lane *lane = dlist_head_element(Lane, left, &table->probe_backlog);

		lane->probe_backlog = false;
		lane_update_left_list(table, lane);
	}
}

void
lanes_resume_probes_of(LaneTable *table, uint64 of, int count)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &table->probe_backlog)
	{
		Lane *lane = dlist_container(Lane, left, iter.cur);

		if (lane->probe_of != of)
			continue;
		if (count-- <= 0)
			return;
		lane->probe_backlog = false;
		lane_update_left_list(table, lane);
	}
}

static void
clear_held_message(Lane *lane)
{
	if (lane->held_message)
		pfree(lane->held_message);
	lane->held_message = NULL;
}

void
lane_hold(LaneTable *table, Lane *lane, const OutboxRow *row, TimestampTz until)
{
	if (lane->held)
		pairingheap_remove(table->held, &lane->held_node);
	else
		dlist_push_tail(&table->holding, &lane->holding);
	lane->held = true;
	lane->held_until = until;
	if (lane->held_message == NULL || lane->held_row != row->id)
	{
		clear_held_message(lane);
		lane->held_message = MemoryContextStrdup(table->context, row->message_id);
	}
	lane->held_row = row->id;
	pairingheap_add(table->held, &lane->held_node);
	lane_unmark_ready(table, lane);
	lane_update_left_list(table, lane);
}

void
lane_hold_until(LaneTable *table, Lane *lane, TimestampTz until)
{
	pairingheap_remove(table->held, &lane->held_node);
	lane->held_until = until;
	pairingheap_add(table->held, &lane->held_node);
}

Lane *
lanes_next_released(LaneTable *table, TimestampTz now)
{
	Lane *lane;

	if (pairingheap_is_empty(table->held))
		return NULL;
	lane = pairingheap_container(Lane, held_node, pairingheap_first(table->held));
	if (lane->held_until > now)
		return NULL;
	pairingheap_remove_first(table->held);
	dlist_delete(&lane->holding);
	lane->held = false;
	clear_held_message(lane);
	lane_update_left_list(table, lane);
	if (lane->nwaiting > 0)
		lane_mark_ready(table, lane);
	return lane;
}

TimestampTz
lanes_next_release_at(LaneTable *table)
{
	if (pairingheap_is_empty(table->held))
		return 0;
	return pairingheap_container(Lane, held_node, pairingheap_first(table->held))->held_until;
}

void
lane_mark_ready(LaneTable *table, Lane *lane)
{
	if (lane->in_ready_list || lane->held)
		return;
	dlist_push_tail(&table->ready, &lane->ready);
	lane->in_ready_list = true;
}

void
lane_unmark_ready(LaneTable *table, Lane *lane)
{
	if (!lane->in_ready_list)
		return;
	dlist_delete(&lane->ready);
	lane->in_ready_list = false;
}
