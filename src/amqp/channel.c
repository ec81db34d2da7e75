/*
 * channel.c
 *		Channels of a connection and their windows.
 *
 * May depend on: conn_internal.h, text.h.
 */
#include "conn_internal.h"

#include "text.h"

/* Of this process, on any connection. */
static uint16 openings = 0;

BrokerChannel *
conn_channel(BrokerConn *conn, int channel)
{
	return channel >= 1 && channel <= BROKER_MAX_CHANNEL ? &conn->channels[channel] : NULL;
}

/* FNV-1a over both names, a zero byte in between. */
uint64
conn_route(const void *exchange, Size exchange_len, const void *routing_key, Size routing_key_len)
{
	const uint64 prime = UINT64CONST(0x100000001b3);
	uint64 hash = UINT64CONST(0xcbf29ce484222325);

	for (Size i = 0; i < exchange_len; i++)
		hash = (hash ^ ((const uint8 *) exchange)[i]) * prime;
	hash *= prime;
	for (Size i = 0; i < routing_key_len; i++)
		hash = (hash ^ ((const uint8 *) routing_key)[i]) * prime;
	return hash;
}

static void
report_unsettled(BrokerConn *conn, int channel)
{
	const WindowEntry *entry;

	while ((entry = window_settle(&conn->channels[channel].window, 0, true)) != NULL)
	{
		BrokerEvent *event = events_push(&conn->events, BROKER_EVENT_UNSETTLED, channel, NULL);

		event->token = entry->token;
		event->sent_at = entry->sent_at;
	}
}

void
channel_closed_by_broker(BrokerConn *conn, int channel, const amqp_channel_close_t *method, bool announce)
{
	BrokerChannel *ch = conn_channel(conn, channel);
	amqp_channel_close_ok_t answer = {0};
	char text[ACEMQ_MAX_SHORTSTR + 1];

	text_clean(text, sizeof(text), method->reply_text.bytes, method->reply_text.len);
	if (ch != NULL && ch->open)
	{
		ch->open = false;
		ch->returning.step = RETURN_NONE;
		delivery_drop(conn, channel);
		if (announce || ch->window.waiting > 0)
			events_push(&conn->events, BROKER_EVENT_CHANNEL_CLOSED, channel, text)->code = method->reply_code;
		report_unsettled(conn, channel);
	}
	(void) conn_send_method(conn, channel, AMQP_CHANNEL_CLOSE_OK_METHOD, &answer, "answer the closing of a channel");
}

/* The broker has no reason to say no to either; if it does, the connection is of no use. */
static bool
ask_to_open(BrokerConn *conn, int channel, const Rpc *rpc)
{
	BrokerDenial denial;
	BrokerRequest outcome = rpc_ask(conn, channel, rpc, &denial);

	if (outcome == BROKER_DENIED)
		conn_lost(conn, "could not %s: %s", rpc->what, denial.text);
	return outcome == BROKER_DONE;
}

static bool
open_now(BrokerConn *conn, int channel)
{
	BrokerChannel *ch = &conn->channels[channel];
	amqp_channel_open_t open = {.out_of_band = amqp_empty_bytes};
	amqp_confirm_select_t select = {0};
	const Rpc opening = {AMQP_CHANNEL_OPEN_METHOD, &open, AMQP_CHANNEL_OPEN_OK_METHOD, "open a channel"};
	const Rpc selecting = {AMQP_CONFIRM_SELECT_METHOD, &select, AMQP_CONFIRM_SELECT_OK_METHOD, "ask for confirms"};

	if (!ask_to_open(conn, channel, &opening) || !ask_to_open(conn, channel, &selecting))
		return false;

	amqp_maybe_release_buffers_on_channel(conn->rabbit, (amqp_channel_t) channel);
	window_init(&ch->window, ch->entries, ch->window.capacity);
	ch->returning.step = RETURN_NONE;
	ch->consuming.started = false;
	ch->opening = ++openings;
	ch->wanted = false;
	ch->open = true;
	pump_frames(conn);
	return !conn->lost;
}

bool
broker_open_channel(BrokerConn *conn, int channel)
{
	BrokerChannel *ch = conn_channel(conn, channel);

	if (ch == NULL || conn->lost)
		return false;
	if (ch->open)
		return true;
	if (conn->blocked)
	{
		/* A blocked connection is not read: the request would sit there until it times out. */
		ch->wanted = true;
		return true;
	}
	return open_now(conn, channel);
}

void
channel_open_wanted(BrokerConn *conn)
{
	for (int i = 1; i <= BROKER_MAX_CHANNEL; i++)
	{
		if (conn->channels[i].wanted && !conn->lost && !conn->blocked)
			(void) open_now(conn, i);
	}
}

bool
broker_channel_is_open(BrokerConn *conn, int channel)
{
	BrokerChannel *ch = conn_channel(conn, channel);

	return ch != NULL && ch->open;
}

int
broker_in_flight(BrokerConn *conn, int channel)
{
	BrokerChannel *ch = conn_channel(conn, channel);

	return ch != NULL ? ch->window.waiting : 0;
}

TimestampTz
broker_oldest_in_flight(BrokerConn *conn, int channel)
{
	BrokerChannel *ch = conn_channel(conn, channel);
	const WindowEntry *oldest = ch != NULL ? window_oldest(&ch->window) : NULL;

	return oldest != NULL ? oldest->sent_at : 0;
}
