/*-------------------------------------------------------------------------
 *
 * relay_outcome.c
 *		What the broker said, and what follows for the row and its lane
 *		(docs/protocol.md, section 2.3).
 *
 * An attempt is charged only for what is pinned on the record itself: it was
 * returned, nacked, refused by the client, or it closed a channel that it had
 * for itself.  A lost connection, a closed main channel, a confirm that does
 * not come cost nobody an attempt: those rows are sent again.
 *
 * May depend on: relay_internal.h, src/backoff.h.
 *
 *-------------------------------------------------------------------------
 */
#include "relay_internal.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "backoff.h"
#include "guc.h"
#include "kill_points.h"

/* AMQP 0-9-1 section 1.1: somebody at the broker ended the connection. */
#define AMQP_REPLY_CONNECTION_FORCED 320
#define AMQP_REPLY_NOT_FOUND         404

static void take_event(Relay *relay, const BrokerEvent *event);
static OutboxRow *row_of_event(Relay *relay, const BrokerEvent *event);
static void off_the_wire(Relay *relay, OutboxRow *row);
static void confirmed(Relay *relay, OutboxRow *row);
static void returned(Relay *relay, OutboxRow *row, const BrokerEvent *event);
static void unsettled(Relay *relay, OutboxRow *row);
static void channel_closed(Relay *relay, const BrokerEvent *event);
static void put_back(Relay *relay, OutboxRow *row);

void
relay_take_events(Relay *relay)
{
	BrokerEvent event;

	while (link_conn(relay->link) && broker_next_event(link_conn(relay->link), &event))
		take_event(relay, &event);
}

static void
take_event(Relay *relay, const BrokerEvent *event)
{
	switch (event->kind)
	{
		case BROKER_EVENT_CONFIRMED:
			relay_pace_confirmed(relay, ((OutboxRow *) (uintptr_t) event->token)->lane, event->sent_at);
			confirmed(relay, row_of_event(relay, event));
			break;
		case BROKER_EVENT_RETURNED:
			returned(relay, row_of_event(relay, event), event);
			break;
		case BROKER_EVENT_NACKED:
			pg_atomic_fetch_add_u64(&relay->slot->nacked, 1);
			/* Of several queues one may have refused and the others not. */
			((OutboxRow *) (uintptr_t) event->token)->maybe_delivered = true;
			relay_trust(relay, (OutboxRow *) (uintptr_t) event->token);
			relay_fail_row(relay, row_of_event(relay, event), "the broker refused the message (basic.nack)");
			break;
		case BROKER_EVENT_CHANNEL_CLOSED:
			channel_closed(relay, event);
			break;
		case BROKER_EVENT_UNSETTLED:
			unsettled(relay, row_of_event(relay, event));
			break;
		case BROKER_EVENT_BLOCKED:
			ereport(LOG, (errmsg("acemq: the broker has blocked publishing: %s", event->text)));
			acemq_slot_set_connection_error(relay->slot, event->text);
			break;
		case BROKER_EVENT_UNBLOCKED:
			ereport(LOG, (errmsg("acemq: the broker takes messages again")));
			relay->unblocked_at = GetCurrentTimestamp();
			break;
		case BROKER_EVENT_LOST:
			relay_lost(relay, event->text, event->code);
			break;
		case BROKER_EVENT_DELIVERY:
		case BROKER_EVENT_CONSUMER_CANCELLED:
			Assert(false); /* nothing is consumed on this connection */
			break;
	}
}

static OutboxRow *
row_of_event(Relay *relay, const BrokerEvent *event)
{
	OutboxRow *row = (OutboxRow *) (uintptr_t) event->token;

	Assert(row->state == ROW_ON_WIRE);
	off_the_wire(relay, row);
	return row;
}

static void
off_the_wire(Relay *relay, OutboxRow *row)
{
	relay->on_wire--;
	row->lane->on_wire--;
	row->lane->wire_bytes -= row->size;
	row->lane->last_progress = relay->now;
	relay->last_outcome = relay->now;
	if (row->channel != BROKER_CHANNEL_MAIN)
		relay->probes[row->channel - BROKER_CHANNEL_PROBE] = NULL;
	lane_mark_ready(relay->lanes, row->lane);
}

static void
confirmed(Relay *relay, OutboxRow *row)
{
	Lane *lane = row->lane;
	TimestampTz from = row_since(row);

	KILL_POINT(RELAY_CONFIRMED);
	/* An earlier row of the lane has failed while this one was on the wire. */
	if (lane->held && !lane->slow && row->id > lane->held_row)
		pg_atomic_fetch_add_u64(&relay->slot->overtaken, 1);
	else
		lane->suspect = false;
	lane->slow = false;
	lane->slow_count = 0;
	relay_trust(relay, row);
	relay_trust_probe_ends(relay, row);
	row->lane = NULL;
	row->state = ROW_CONFIRMED;
	if (relay->nconfirmed++ == 0)
		relay->oldest_confirmed = relay->now;
	dlist_push_tail(&relay->confirmed, &row->node);

	pg_atomic_fetch_add_u64(&relay->slot->published, 1);
	relay_count_scheduled(relay, row);
	acemq_slot_note_lag(relay->slot, Max(relay->now - from, 0), relay->now);
	acemq_slot_note_published(relay->slot, row->exchange, row->routing_key, relay->now - from);
	lane_forget_if_unused(relay->lanes, lane);
}

static void
returned(Relay *relay, OutboxRow *row, const BrokerEvent *event)
{
	char failure[ACEMQ_ERROR_TEXT];

	snprintf(failure, sizeof(failure), "returned by the broker: %d %s (exchange \"%s\", routing key \"%s\")%s",
	         event->code, event->text, row_wire_exchange(row), row_wire_routing_key(row), relay_rung_missing(row));
	pg_atomic_fetch_add_u64(&relay->slot->returned, 1);
	relay_trust(relay, row);
	relay_fail_row(relay, row, failure);
}

/*
 * The row is off the wire and out of its lane's list.  Its lane goes no
 * further until the attempt is written down (relay_settle.c sets the time of
 * the next one) and what waits in memory is given back.
 */
void
relay_fail_row(Relay *relay, OutboxRow *row, const char *failure)
{
	Lane *lane = row->lane;

	pg_atomic_fetch_add_u64(&relay->slot->failed, 1);
	acemq_slot_note_failed(relay->slot, row->exchange, row->routing_key);
	row->attempts = Min(row->attempts, PG_INT32_MAX - 1) + 1;
	row->failure = MemoryContextStrdup(relay->context, failure);
	row->state = ROW_FAILED;
	dlist_push_tail(&relay->failed, &row->node);
	if (relay->nfailed++ == 0)
		relay->oldest_failed = relay->now;
	lane->nfailed++;
	acemq_slot_set_error(relay->slot, failure);

	relay_trust_probe_ends(relay, row);
	lane->suspect = true;
	lane_hold(relay->lanes, lane, row, PG_INT64_MAX);
	relay_give_back(relay, lane);
	KILL_POINT(RELAY_FAILED);
}

/* ---- channels and connections that die ---- */

/* What is to be said of the ladder, if it was its exchange that was not there. */
static const char *
missing_rung(Relay *relay, const BrokerEvent *event)
{
	OutboxRow *row =
	    event->channel == BROKER_CHANNEL_MAIN ? NULL : relay->probes[event->channel - BROKER_CHANNEL_PROBE];

	return row && event->code == AMQP_REPLY_NOT_FOUND ? relay_rung_missing(row) : "";
}

static void
channel_closed(Relay *relay, const BrokerEvent *event)
{
	if (relay->probe_failure)
		pfree(relay->probe_failure);
	relay->probe_failure = MemoryContextStrdup(
	    relay->context, psprintf("channel closed by the broker: %s%s", event->text, missing_rung(relay, event)));
	if (event->channel == BROKER_CHANNEL_MAIN)
	{
		/* What was good may be good no more: each exchange has to show it again before it shares a channel. */
		relay_forget_trust(relay);
		ereport(LOG, (errmsg("acemq: %s", relay->probe_failure),
		              errdetail("The messages in flight are sent again one by one to find the cause.")));
		acemq_slot_set_error(relay->slot, relay->probe_failure);
	}
	KILL_POINT(RELAY_CHANNEL_CLOSED);
}

/* Alone on its channel: it is the culprit.  Otherwise it is one of the suspects. */
static void
unsettled(Relay *relay, OutboxRow *row)
{
	if (row->channel != BROKER_CHANNEL_MAIN)
	{
		relay_distrust(relay, row);
		relay_fail_row(relay, row, relay->probe_failure ? relay->probe_failure : "channel closed by the broker");
		return;
	}
	row->suspect = true;
	row->lane->suspect = true;
	put_back(relay, row);
}

static void
put_back(Relay *relay, OutboxRow *row)
{
	row->maybe_delivered = true;
	lane_insert_in_order(relay->lanes, row->lane, row);
}

/*
 * The broker ends a connection with a reply code of its own for what it takes
 * for our fault.  An operator's order (320) is not, and a connection that just
 * breaks says nothing about a message.
 */
static bool
is_our_fault(int code)
{
	return code >= 400 && code != AMQP_REPLY_CONNECTION_FORCED;
}

/*
 * Every row on the wire may be in the broker or not: it goes out again, and
 * cannot be cancelled.  All rows are given back to the table, so that nothing
 * is held in memory while there is no broker.  Without a reason it is we who
 * hang up, politely.
 *
 * If a message may have been the cause, those on the wire go out alone from
 * now on; one that was alone is the cause, and is charged for it.
 */
void
relay_lost(Relay *relay, const char *reason, int code)
{
	bool blame = is_our_fault(code);
	bool was_alone = relay->on_wire == 1;
	dlist_iter iter;

	dlist_foreach (iter, &relay->all)
	{
		OutboxRow *row = dlist_container(OutboxRow, all, iter.cur);

		if (row->state != ROW_ON_WIRE)
			continue;
		off_the_wire(relay, row);
		if (blame && !row->alone)
		{
			row->alone = true;
			relay->nalone++;
		}
		if (blame && was_alone)
		{
			relay_fail_row(relay, row, reason);
			break; /* it was the only one, and its lane has given rows back */
		}
		put_back(relay, row);
	}
	relay->bytes_taken = 0;
	relay_give_back(relay, NULL);
	relay_forget_trust(relay);
	KILL_POINT(RELAY_LOST);
	link_drop(relay->link, reason, reason == NULL);
}

/*
 * A confirm that does not come would belong to nobody if we just sent the row
 * again: the connection has to go first.  The lanes concerned are probed with
 * one row, less and less often, so that they cannot take the window again.
 */
void
relay_check_confirm_timeout(Relay *relay)
{
	TimestampTz limit = relay->now - (int64) acemq_confirm_timeout * 1000;
	bool expired = false;
	uint64 taken;
	bool moves;
	dlist_iter iter;

	if (relay->on_wire == 0 || relay->unblocked_at > limit || broker_is_blocked(link_conn(relay->link)))
		return;
	taken = broker_bytes_taken(link_conn(relay->link));
	moves = taken > relay->bytes_taken;
	relay->bytes_taken = taken;
	dlist_foreach (iter, &relay->all)
	{
		OutboxRow *row = dlist_container(OutboxRow, all, iter.cur);
		Lane *lane = row->lane;

		if (row->state != ROW_ON_WIRE)
			continue;
		/* On its way still, on a line that is slow and not dead: its time begins when it is there. */
		if (moves && row->sent_upto > taken)
			row->sent_at = relay->now;
		if (row->sent_at > limit)
			continue;
		expired = true;
		relay_trust_silent(relay, row);
		/* Held already: by another row of this look, or by one whose failed attempt is not written down yet. */
		if (lane->held && (lane->slow || lane->nfailed > 0))
			continue;
		lane->slow = true;
		lane->slow_count = Min(lane->slow_count + 1, 30);
		lane_hold(relay->lanes, lane, row,
		          relay->now + backoff_delay_ms(lane->slow_count, acemq_retry_delay, acemq_retry_delay_max) * 1000);
	}
	if (expired)
		relay_lost(relay, "no confirm within acemq.confirm_timeout", 0);
}
