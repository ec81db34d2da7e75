/*-------------------------------------------------------------------------
 *
 * relay_publish.c
 *		Memory -> broker: which row goes out next, on which channel.
 *
 * Lanes take turns.  A pipelined lane may have most of the window on the wire,
 * never all of it, so that a queue which does not confirm leaves room for the
 * others (relay_pace.c); a lane with an ordering key has one row.
 *
 * The broker closes a channel for one bad message and says nothing about the
 * others that were on it.  So what may be bad never shares a channel: a row
 * that failed before, one that was in flight when a channel died, and the first
 * row to an exchange on a connection each go out alone on a probe channel.
 *
 * May depend on: relay_internal.h, src/envelope.h.
 *
 *-------------------------------------------------------------------------
 */
#include "relay_internal.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "envelope.h"
#include "guc.h"
#include "kill_points.h"

/* Rows one lane sends before the next one has its turn. */
#define LANE_BURST 64
/* Lanes whose confirms timed out may keep a channel for as long again: so many of them at a time. */
#define SLOW_PROBES 2

typedef enum SendResult
{
	SEND_DONE,
	SEND_LANE_WAITS, /* until an outcome or a release marks the lane ready again */
	SEND_NOT_YET,    /* probe channels busy or row not durable: stays on the ready list */
	SEND_STOP        /* socket full, connection lost, window full */
} SendResult;

static SendResult send_next(Relay *relay, Lane *lane);
static bool may_go_now(Relay *relay, Lane *lane, const OutboxRow *row);
static bool may_be_blocking(Relay *relay);
static bool wire_moves(Relay *relay);
static void prefer_alone_rows(Relay *relay);
static SendResult send_row(Relay *relay, Lane *lane, OutboxRow *row, int channel);
static bool window_is_full(Relay *relay);
static Size lane_window_bytes(void);
static int free_probe_channel(Relay *relay, const OutboxRow *row);
static void build_message(const OutboxRow *row, WireTable *headers, char *expiration, BrokerMessage *message);

void
relay_publish(Relay *relay)
{
	bool progress = true;
	bool stop = false;

	relay->socket_full = false;
	relay->waits_for_standby = false;
	if (link_conn(relay->link) == NULL || broker_is_blocked(link_conn(relay->link)))
		return;
	if (relay->draining && relay->on_wire > 0 && wire_moves(relay))
		return;
	relay->draining = false;
	if (relay->nalone > 0)
		prefer_alone_rows(relay);

	broker_cork(link_conn(relay->link));
	while (progress && !stop && !dlist_is_empty(&relay->lanes->ready))
	{
		dlist_mutable_iter iter;

		progress = false;
		dlist_foreach_modify (iter, &relay->lanes->ready)
		{
			Lane *lane = dlist_container(Lane, ready, iter.cur);
			SendResult result = SEND_DONE;

			for (int n = 0; n < LANE_BURST && result == SEND_DONE; n++)
			{
				result = send_next(relay, lane);
				progress |= result == SEND_DONE;
			}
			if (result == SEND_LANE_WAITS)
				lane_unmark_ready(relay->lanes, lane);
			stop = result == SEND_STOP;
			if (stop)
				break;
		}
	}
	if (link_conn(relay->link))
		broker_uncork(link_conn(relay->link));
}

static SendResult
send_next(Relay *relay, Lane *lane)
{
	OutboxRow *row;
	int channel = BROKER_CHANNEL_MAIN;

	if (lane->nwaiting == 0 || lane->held || lane->on_wire >= relay_lane_window(relay, lane))
		return SEND_LANE_WAITS;
	if (window_is_full(relay))
		return SEND_STOP;

	row = dlist_head_element(OutboxRow, node, &lane->waiting);
	if (lane->on_wire > 0 && lane->wire_bytes + row->size > lane_window_bytes())
		return SEND_LANE_WAITS;
	if (row->durable_at > relay->confirmed_upto)
	{
		relay->waits_for_standby = true;
		return SEND_NOT_YET;
	}
	if (!may_go_now(relay, lane, row))
		return SEND_STOP;
	row_choose_rung(row, pg_atomic_read_u32(&relay->slot->rungs_differ));
	if (relay_needs_probe(relay, lane, row))
	{
		if (lane->on_wire > 0)
			return SEND_LANE_WAITS;
		channel = free_probe_channel(relay, row);
		if (channel < 0)
			return SEND_NOT_YET;
	}
	if (may_be_blocking(relay) && !broker_channel_is_open(link_conn(relay->link), channel))
		return SEND_NOT_YET;
	return send_row(relay, lane, row, channel);
}

/*
 * A broker that is short of memory stops reading with the first message, and
 * says so at once.  A request to open a channel that was sent meanwhile would
 * find nobody, and cost the connection: so the first answer is waited for.
 */
static bool
may_be_blocking(Relay *relay)
{
	bool soon = relay->on_wire > 0 && relay->last_outcome < relay->last_sent &&
	            GetCurrentTimestamp() - relay->last_sent < RELAY_FIRST_ANSWER_US;

	relay->channel_at = soon ? relay->last_sent + RELAY_FIRST_ANSWER_US : 0;
	return soon;
}

/* The broker answers: worth waiting for. */
static bool
wire_moves(Relay *relay)
{
	return relay->now - relay->last_outcome < RELAY_STALLED_MS * 1000;
}

/*
 * Two kinds of rows need an empty wire.  While there are rows that may have
 * ended a connection, every row goes alone: nothing is safe until the culprit
 * is found.  A big one (larger than the whole budget) holds up the others while
 * the wire empties, and goes all the same when the wire has stalled: the queue
 * that does not confirm is not its fault.
 */
static bool
may_go_now(Relay *relay, Lane *lane, const OutboxRow *row)
{
	if (relay->on_wire == 0)
		return true;
	if (relay->nalone > 0)
		return false;
	if (!row->was_big || !wire_moves(relay))
		return true;
	relay->draining = true;
	dlist_move_head(&relay->lanes->ready, &lane->ready);
	return false;
}

/* Rows that may have ended a connection go before all others. */
static void
prefer_alone_rows(Relay *relay)
{
	dlist_iter iter;

	dlist_foreach (iter, &relay->lanes->ready)
	{
		Lane *lane = dlist_container(Lane, ready, iter.cur);

		if (lane->nwaiting == 0 || !dlist_head_element(OutboxRow, node, &lane->waiting)->alone)
			continue;
		dlist_move_head(&relay->lanes->ready, &lane->ready);
		return;
	}
}

/* The broker must see what it is asked at once: a corked request would wait for the kernel's timer. */
static bool
open_channel(Relay *relay, int channel)
{
	bool opened;

	if (broker_channel_is_open(link_conn(relay->link), channel))
		return true;
	broker_uncork(link_conn(relay->link));
	opened = link_open_channel(relay->link, channel);
	broker_cork(link_conn(relay->link));
	return opened;
}

static SendResult
send_row(Relay *relay, Lane *lane, OutboxRow *row, int channel)
{
	MemoryContext caller = MemoryContextSwitchTo(relay->turn_context);
	WireTable headers = {0};
	BrokerMessage message;
	BrokerError error = {0};
	char expiration[32];
	BrokerPublish result;

	if (broker_is_lost(link_conn(relay->link)) || !open_channel(relay, channel))
	{
		MemoryContextSwitchTo(caller);
		return SEND_STOP;
	}

	/* Rows put in by hand can hold what outbox_add would have refused. */
	PG_TRY();
	{
		build_message(row, &headers, expiration, &message);
		result = BROKER_SENT;
	}
	PG_CATCH();
	{
		ErrorData *raised;

		MemoryContextSwitchTo(relay->turn_context);
		raised = CopyErrorData();
		FlushErrorState();
		snprintf(error.text, sizeof(error.text), "message cannot be built: %s", raised->message);
		result = BROKER_REFUSED;
	}
	PG_END_TRY();

	KILL_POINT(RELAY_PUBLISHING);
	if (result == BROKER_SENT)
		result = link_publish(relay->link, channel, &message, (uint64) (uintptr_t) row, &error);
	MemoryContextSwitchTo(caller);

	switch (result)
	{
		case BROKER_SENT:
			KILL_POINT(RELAY_PUBLISHED);
			break;
		case BROKER_REFUSED:
			lane_remove_waiting(lane, row);
			relay_fail_row(relay, row, error.text);
			return SEND_LANE_WAITS;
		case BROKER_LOST:
			/* In the middle of it, or at its end: the broker may have it, and it may be why. */
			break;
		default:
			relay->socket_full = true;
			return SEND_STOP;
	}

	lane_remove_waiting(lane, row);
	if (row->was_sent)
		pg_atomic_fetch_add_u64(&relay->slot->resent, 1);
	row->state = ROW_ON_WIRE;
	row->was_sent = true;
	row->channel = channel;
	row->sent_at = relay->last_sent = GetCurrentTimestamp(); /* a long one may have taken a while */
	row->sent_upto = broker_bytes_sent(link_conn(relay->link));
	lane->on_wire++;
	lane->wire_bytes += row->size;
	relay->on_wire++;
	if (lane->on_wire == 1)
		lane->last_progress = relay->now;
	relay_pace_sent(relay, lane);
	if (channel != BROKER_CHANNEL_MAIN)
		relay->probes[channel - BROKER_CHANNEL_PROBE] = row;
	return result == BROKER_LOST ? SEND_STOP : SEND_DONE;
}

/*
 * A row keeps its place from the publish until its delete is flushed: so no
 * loss can ever cause more duplicates than acemq.max_in_flight.
 */
static bool
window_is_full(Relay *relay)
{
	return relay->on_wire + relay->nconfirmed >= acemq_max_in_flight;
}

/* The same share of the bytes as of the rows. */
static Size
lane_window_bytes(void)
{
	return relay_budget() / 8 * 7;
}

bool
relay_needs_probe(Relay *relay, const Lane *lane, const OutboxRow *row)
{
	return row->suspect || lane->suspect || lane->slow || row->attempts > 0 || !relay_is_trusted(relay, row);
}

static bool
same_destination(const OutboxRow *a, const OutboxRow *b)
{
	return strcmp(row_wire_exchange(a), row_wire_exchange(b)) == 0 &&
	       (row_wire_exchange(a)[0] != '\0' || strcmp(row_wire_routing_key(a), row_wire_routing_key(b)) == 0);
}

/*
 * A destination that is not trusted (relay_trust.c) gets one probe
 * channel: if it is not there at all, the lanes to it must not take all of
 * them.  Nor must lanes whose queue does not confirm.
 */
static int
free_probe_channel(Relay *relay, const OutboxRow *row)
{
	bool trusted = relay_is_trusted(relay, row);
	int found = -1;
	int nslow = 0;

	for (int i = 0; i < RELAY_PROBES; i++)
	{
		if (relay->probes[i] == NULL)
		{
			found = BROKER_CHANNEL_PROBE + i;
			continue;
		}
		if (relay->probes[i]->lane->slow && ++nslow >= SLOW_PROBES && row->lane->slow)
			return -1;
		if (!trusted && same_destination(relay->probes[i], row))
			return -1;
	}
	return found;
}

static void
build_message(const OutboxRow *row, WireTable *headers, char *expiration, BrokerMessage *message)
{
	Envelope envelope = {.message_id = row->message_id,
	                     .routing_key = row->routing_key,
	                     .type = row->type,
	                     .version = row->version,
	                     .correlation_id = row->correlation_id,
	                     .causation_id = row->causation_id,
	                     .origin = row->origin,
	                     .reply_to = row->reply_to,
	                     .first_seen = row->created_at,
	                     .headers = row->headers};

	envelope_headers(&envelope, headers);

	memset(message, 0, sizeof(*message));
	message->exchange = row_wire_exchange(row);
	message->routing_key = row_wire_routing_key(row);
	message->message_id = row->message_id;
	message->content_type = row->content_type;
	message->reply_to = row->reply_to;
	message->priority = row->priority;
	message->persistent = row->persistent;
	message->headers = headers;
	message->body = row->body;
	message->body_len = row->body_len;
	if (row->expiration >= 0)
	{
		snprintf(expiration, 32, INT64_FORMAT, row->expiration);
		message->expiration = expiration;
	}
	if (row->rung)
		relay_put_on_rung(row, headers, message);
}
