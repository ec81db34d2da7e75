/*-------------------------------------------------------------------------
 *
 * relay_holders.c
 *		Lanes that are held for a row which does not hold them any more:
 *		cancelled, settled by a relay outside the server, deleted or changed by
 *		hand (docs/protocol.md, section 2.2).
 *
 * No scan comes to a row that is gone, so the rows are looked up by their ids:
 * at once those that a backend has reported at its commit, some of all at each
 * poll.  The lane is read again from the row on, and whatever else is in its way
 * holds it anew.
 *
 * May depend on: relay_internal.h, outbox_store.h.
 *
 *-------------------------------------------------------------------------
 */
#include "relay_internal.h"

#include "outbox_store.h"

/* What a poll may cost: a lookup by primary key each. */
#define HOLDERS_PER_POLL 1000

typedef struct Holders
{
	Lane **lanes;
	int64 *ids;
	int count;
} Holders;

static bool
is_freed(Relay *relay, int64 id)
{
	for (int i = 0; i < relay->nfreed; i++)
		if ((uint64) id >= relay->freed[i].lo && (uint64) id <= relay->freed[i].hi)
			return true;
	return false;
}

/* A failed attempt that is not written down yet is not to be seen in the table. */
static Holders
collect_holders(Relay *relay, bool polled)
{
	dlist_head *holding = &relay->lanes->holding;
	Holders holders = {0};
	int size = 0;
	dlist_iter iter;

	dlist_foreach (iter, holding)
		size++;
	holders.lanes = palloc(sizeof(Lane *) * Max(size, 1));
	holders.ids = palloc(sizeof(int64) * Max(size, 1));
	dlist_foreach (iter, holding)
	{
		Lane *lane = dlist_container(Lane, holding, iter.cur);
		bool in_turn = polled && holders.count < HOLDERS_PER_POLL;

		if (lane->held_until == PG_INT64_MAX || !(in_turn || is_freed(relay, lane->held_row)))
			continue;
		holders.lanes[holders.count] = lane;
		holders.ids[holders.count++] = lane->held_row;
	}
	return holders;
}

/* A queue that does not answer is left alone whatever its row says, unless the row is gone. */
static TimestampTz
hold_ends(Relay *relay, const Lane *lane, TimestampTz kept_until)
{
	if (lane->slow && kept_until != STORE_ROW_GONE)
		return lane->held_until;
	return Max(kept_until, relay->now);
}

/* Inside db_run(). */
void
relay_look_at_holders(Relay *relay, bool polled)
{
	Holders holders;
	TimestampTz *kept_until;

	if (dlist_is_empty(&relay->lanes->holding) || (relay->nfreed == 0 && !polled))
	{
		relay->nfreed = 0;
		return;
	}
	holders = collect_holders(relay, polled);
	kept_until = palloc(sizeof(TimestampTz) * Max(holders.count, 1));
	if (holders.count > 0)
		store_kept_until(holders.ids, holders.count, kept_until);
	for (int i = 0; i < holders.count; i++)
	{
		Lane *lane = holders.lanes[i];
		TimestampTz until = hold_ends(relay, lane, kept_until[i]);

		dlist_delete(&lane->holding);
		dlist_push_tail(&relay->lanes->holding, &lane->holding);
		if (until < lane->held_until)
			lane_hold_until(relay->lanes, lane, until);
	}
	relay->nfreed = 0;
}
