/*-------------------------------------------------------------------------
 *
 * relay_ladder.c
 *		Rows that wait in the broker: onto a rung of the ladder, or straight to
 *		their target when less than a second is left (docs/protocol.md, section
 *		8.3).  From the rung on they are the scheduler's.
 *
 * All of them are in the lane of the ladder's exchange (or of their ordering
 * key), so that a missing ladder holds up nobody else.  One that has gone
 * straight to its target and failed there has nothing to do with the ladder
 * any more: it becomes an ordinary row, in the lane of the target.
 *
 * May depend on: relay_internal.h, src/ladder_message.h.
 *
 *-------------------------------------------------------------------------
 */
#include "relay_internal.h"

/* Target and content type move into the headers. */
void
relay_put_on_rung(const OutboxRow *row, WireTable *headers, BrokerMessage *message)
{
	LadderTarget target = {.exchange = row->exchange,
	                       .routing_key = row->routing_key,
	                       .content_type = row->content_type,
	                       .due_at = row->ladder_due_at};

	ladder_headers_add(headers, &target);
	message->content_type = LADDER_CONTENT_TYPE;
	message->persistent = true;
	message->expiration = NULL; /* of a row put in by hand: it would leave the rung too early */
}

void
relay_count_scheduled(Relay *relay, const OutboxRow *row)
{
	if (row->ladder_due_at == 0)
		return;
	pg_atomic_fetch_add_u64(&relay->slot->ladder_scheduled, 1);
	pg_atomic_fetch_add_u64(row->rung ? &relay->slot->ladder_hops : &relay->slot->ladder_delivered, 1);
}

/* To be said behind the broker's words; nothing of a row that was not for a rung. */
const char *
relay_rung_missing(const OutboxRow *row)
{
	return row->rung ? "; the ladder is missing: set acemq.scheduler = on, or start the scheduler of another AceMQ "
	                   "library, which declares it, or see scheduler_problem in acemq.status"
	                 : "";
}

/* It was sent, or could not be sent, straight to its target. */
bool
relay_leaves_ladder(const OutboxRow *row)
{
	return row->ladder_due_at != 0 && row->rung == NULL;
}

bool
relay_leaves_lane(const OutboxRow *row)
{
	return relay_leaves_ladder(row) && row->ordering_key == NULL;
}

/* The failed attempt is written down: the lane of the target waits for the row as for any other. */
void
relay_hold_target(Relay *relay, OutboxRow *row, TimestampTz until)
{
	Lane *lane;

	row->ladder_due_at = 0;
	lane = lane_of_row(relay->lanes, row);
	lane->suspect = true;
	lane_leave_from(relay->lanes, lane, row->id, row_since(row));
	/* Another row of it may have failed before, and wait to be written down. */
	if (!lane->held || (lane->held_until != PG_INT64_MAX && row->id < lane->held_row))
		lane_hold(relay->lanes, lane, row, until);
	relay_give_back(relay, lane);
}
