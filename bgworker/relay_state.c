/*-------------------------------------------------------------------------
 *
 * relay_state.c
 *		What acemq.status shows of the relay: its state, the oldest row, and
 *		the lane that has been held longest.
 *
 * May depend on: relay_internal.h, outbox_store.h.
 *
 *-------------------------------------------------------------------------
 */
#include "relay_internal.h"

#include "lib/stringinfo.h"
#include "utils/hsearch.h"
#include "utils/timestamp.h"

#include "outbox_store.h"

#define SUMMARY_EVERY_MS 1000

static void summarize(Relay *relay);

void
relay_show_state(Relay *relay)
{
	AcemqState state;

	if (!relay->fence_known)
		state = ACEMQ_STATE_STARTING;
	else if (relay->fence == STORE_FOREIGN)
		state = ACEMQ_STATE_FENCED;
	else if (!relay_may_run(relay))
		state = ACEMQ_STATE_PAUSED;
	else if (link_conn(relay->link) == NULL)
		state = ACEMQ_STATE_DISCONNECTED;
	else if (broker_is_blocked(link_conn(relay->link)))
		state = ACEMQ_STATE_BLOCKED;
	else
		state = relay->nrows > 0 ? ACEMQ_STATE_RELAYING : ACEMQ_STATE_IDLE;

	if (pg_atomic_read_u32(&relay->slot->state) != (uint32) state)
	{
		if (state == ACEMQ_STATE_FENCED)
			ereport(WARNING, (errmsg("acemq: this database is a copy of another one and does not relay"),
			                  errhint("Call acemq.relay_resume() if it is meant to talk to the broker.")));
		acemq_slot_set_state(relay->slot, state);
		ConditionVariableBroadcast(&relay->slot->progress);
	}
	pg_atomic_write_u64(&relay->slot->in_flight, relay->on_wire);
	if (relay->now >= relay->summary_at || (relay->nrows == 0 && hash_get_num_entries(relay->lanes->lanes) == 0))
		summarize(relay);
}

static char *
held_text(const Lane *lane, int others)
{
	StringInfoData text;

	initStringInfo(&text);
	if (others > 0)
		appendStringInfo(&text, "%d lanes are held, the longest: ", others + 1);
	appendStringInfo(&text, "lane \"%s\", message %s", lane->name, lane->held_message);
	if (lane->held_until != PG_INT64_MAX)
		appendStringInfo(&text, ", until %s", timestamptz_to_str(lane->held_until));
	return text.data;
}

/* The oldest row we know of, and the lane that has been held longest. */
static void
summarize(Relay *relay)
{
	TimestampTz oldest = relay_has_read_all(relay) ? 0 : relay->oldest_unread;
	Lane *lane;
	Lane *longest = NULL;
	int nheld = 0;
	HASH_SEQ_STATUS status;

	relay->summary_at = relay->now + SUMMARY_EVERY_MS * INT64CONST(1000);
	if (!dlist_is_empty(&relay->all))
	{
		TimestampTz first = row_since(dlist_head_element(OutboxRow, all, &relay->all));

		oldest = oldest == 0 ? first : Min(oldest, first);
	}
	hash_seq_init(&status, relay->lanes->lanes);
	while ((lane = hash_seq_search(&status)) != NULL)
	{
		if (lane->left_from == 0)
			continue;
		oldest = oldest == 0 ? lane->left_since : Min(oldest, lane->left_since);
		nheld += lane->held ? 1 : 0;
		if (lane->held && (longest == NULL || lane->left_since < longest->left_since))
			longest = lane;
	}
	pg_atomic_write_u64(&relay->slot->oldest, (uint64) oldest);
	pg_atomic_write_u64(&relay->slot->held_since, longest ? (uint64) longest->left_since : 0);
	acemq_slot_set_held_by(relay->slot, longest ? held_text(longest, nheld - 1) : "");
}
