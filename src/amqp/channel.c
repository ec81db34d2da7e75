/*
 * channel.c
 *		Channels of a connection and their windows.
 *
 * May depend on: conn_internal.h, text.h.
 */
#include "conn_internal.h"

#include "miscadmin.h"
#include "text.h"

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
channel_refused(BrokerConn *conn, const amqp_channel_close_t *method, const char *what)
{
	char words[ACEMQ_MAX_SHORTSTR + 1];

	text_clean(words, sizeof(words), method->reply_text.bytes, method->reply_text.len);
	conn_lost(conn, "could not %s: %d %s", what, (int) method->reply_code, words);
}

/* The outcome of an RPC; an answer other than the one asked for ends the connection, as it would for any client. */
static bool
rpc_succeeded(BrokerConn *conn, GuardOutcome outcome, const char *what)
{
	amqp_rpc_reply_t reply = amqp_get_rpc_reply(conn->rabbit);

	if (outcome == GUARD_QUIET && reply.reply_type == AMQP_RESPONSE_NORMAL)
		return true;
	if (outcome == GUARD_QUIET && reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION)
	{
		if (reply.reply.id == AMQP_CONNECTION_CLOSE_METHOD)
			conn_closed_by_broker(conn, reply.reply.decoded);
		else if (reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD)
			channel_refused(conn, reply.reply.decoded, what);
		else
			conn_lost(conn, "could not %s: unexpected answer", what);
		return false;
	}
	return conn_check_sent(conn, reply.library_error < 0 ? reply.library_error : AMQP_STATUS_UNEXPECTED_STATE, outcome,
	                       what);
}

static bool
open_now(BrokerConn *conn, int channel)
{
	BrokerChannel *ch = &conn->channels[channel];
	bool ok;

	guard_begin(broker_socket(conn), conn->io_timeout_ms);
	(void) amqp_channel_open(conn->rabbit, (amqp_channel_t) channel);
	ok = rpc_succeeded(conn, guard_end(), "open a channel");
	CHECK_FOR_INTERRUPTS();
	if (!ok)
		return false;

	guard_begin(broker_socket(conn), conn->io_timeout_ms);
	(void) amqp_confirm_select(conn->rabbit, (amqp_channel_t) channel);
	ok = rpc_succeeded(conn, guard_end(), "ask for confirms");
	CHECK_FOR_INTERRUPTS();
	if (!ok)
		return false;

	amqp_maybe_release_buffers_on_channel(conn->rabbit, (amqp_channel_t) channel);
	window_init(&ch->window, ch->entries, ch->window.capacity);
	ch->returning.step = RETURN_NONE;
	ch->wanted = false;
	ch->open = true;

	/* What arrived meanwhile lies inside the library, where no socket event would announce it. */
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
