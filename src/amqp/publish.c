/*
 * publish.c
 *		Publish one message: check it, note it in the window, send its frames.
 *
 * Every check comes before the first byte.  After it there is no way back: a
 * message cut short makes the broker close the connection, so whatever goes
 * wrong from there on loses the connection, and with it the message's outcome.
 *
 * May depend on: conn_internal.h, wire_headers.h.
 */
#include "conn_internal.h"

#include <poll.h>

#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "wire_headers.h"

#define FIRST_WINDOW 2048

static amqp_bytes_t
bytes_of(const char *text)
{
	amqp_bytes_t bytes = {strlen(text), unconstify(char *, text)};

	return bytes;
}

/* ---- checks ---- */

static bool
refuse(BrokerError *error, const char *reason)
{
	return broker_fail(error, BROKER_MISCONFIGURED, "message cannot be sent: %s", reason);
}

static const char *
name_problem(const BrokerMessage *message)
{
	const struct
	{
		const char *value;
		const char *problem;
	}			names[] = {
		{message->exchange, "exchange name is longer than 255 bytes"},
		{message->routing_key, "routing key is longer than 255 bytes"},
		{message->message_id, "message id is longer than 255 bytes"},
		{message->content_type, "content type is longer than 255 bytes"},
		{message->reply_to, "reply-to is longer than 255 bytes"},
		{message->expiration, "expiration is longer than 255 bytes"},
	};

	for (int i = 0; i < (int) lengthof(names); i++)
	{
		if (names[i].value != NULL && strlen(names[i].value) > ACEMQ_MAX_SHORTSTR)
			return names[i].problem;
	}
	if (message->priority > 255)
		return "priority is above 255";
	return NULL;
}

static Size
shortstr_size(const char *text)
{
	return text != NULL ? 1 + strlen(text) : 0;
}

/* Bytes of the content header behind its fixed part, as the library will encode it. */
static Size
properties_size(const BrokerMessage *message)
{
	return sizeof(uint16) + shortstr_size(message->content_type) + wire_table_size(message->headers) +
		sizeof(uint8) + (message->priority >= 0 ? sizeof(uint8) : 0) + shortstr_size(message->reply_to) +
		shortstr_size(message->expiration) + shortstr_size(message->message_id);
}

static bool
check_message(BrokerConn *conn, const BrokerMessage *message, BrokerError *error)
{
	Size		room = amqp_get_frame_max(conn->rabbit) - RABBIT_FRAME_OVERHEAD - RABBIT_CONTENT_HEADER;
	const char *problem = name_problem(message);

	if (problem == NULL)
		problem = wire_headers_problem(message->headers);
	if (problem != NULL)
		return refuse(error, problem);
	if (properties_size(message) > room)
		return refuse(error, "its headers do not fit into one frame");
	return true;
}

static amqp_basic_properties_t
build_properties(BrokerConn *conn, const BrokerMessage *message)
{
	amqp_basic_properties_t properties = {0};
	MemoryContext caller = MemoryContextSwitchTo(conn->scratch);

	properties._flags = AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG |
		AMQP_BASIC_MESSAGE_ID_FLAG;
	properties.content_type = bytes_of(message->content_type);
	properties.headers = wire_headers_build(message->headers);
	properties.delivery_mode = message->persistent ? 2 : 1;
	properties.message_id = bytes_of(message->message_id);
	if (message->priority >= 0)
	{
		properties._flags |= AMQP_BASIC_PRIORITY_FLAG;
		properties.priority = (uint8_t) message->priority;
	}
	if (message->reply_to != NULL)
	{
		properties._flags |= AMQP_BASIC_REPLY_TO_FLAG;
		properties.reply_to = bytes_of(message->reply_to);
	}
	if (message->expiration != NULL)
	{
		properties._flags |= AMQP_BASIC_EXPIRATION_FLAG;
		properties.expiration = bytes_of(message->expiration);
	}
	MemoryContextSwitchTo(caller);
	return properties;
}

/* ---- window ---- */

static bool
make_room(BrokerConn *conn, BrokerChannel *ch)
{
	int			capacity = ch->window.capacity > 0 ? ch->window.capacity * 2 : FIRST_WINDOW;
	WindowEntry *entries;

	if (ch->window.unsettled >= ACEMQ_MAX_IN_FLIGHT)
		return false;
	if (window_make_room(&ch->window))
		return true;
	entries = MemoryContextAlloc(conn->context, capacity * sizeof(WindowEntry));
	window_move(&ch->window, entries, capacity);
	if (ch->entries != NULL)
		pfree(ch->entries);
	ch->entries = entries;
	return true;
}

static void
note_in_window(BrokerChannel *ch, const BrokerMessage *message, uint64 token)
{
	uint64		route = conn_route(message->exchange, strlen(message->exchange),
								   message->routing_key, strlen(message->routing_key));

	window_push(&ch->window, token, GetCurrentTimestamp(), route, message->message_id,
				(int) strlen(message->message_id));
}

/* ---- frames ---- */

/* poll() under the guard; the revents, 0 if time ran out or a signal came. */
static short
poll_socket(BrokerConn *conn, short events, int timeout_ms)
{
	struct pollfd pfd = {.fd = broker_socket(conn), .events = events};
	int			ready;

	if (timeout_ms == 0)
		return poll(&pfd, 1, 0) > 0 ? pfd.revents : 0;

	guard_begin(pfd.fd, timeout_ms);
	ready = poll(&pfd, 1, timeout_ms);
	(void) conn_check(conn, AMQP_STATUS_OK, guard_end(), "send a message");
	CHECK_FOR_INTERRUPTS();
	return ready > 0 ? pfd.revents : 0;
}

/*
 * Between two body frames: wait for the kernel to take more, and read
 * meanwhile, because a long body on a slow line outlasts heartbeats.  False:
 * the rest of the message must not be sent.
 */
static bool
ready_for_more(BrokerConn *conn, BrokerChannel *ch)
{
	TimestampTz deadline = 0;
	int			wait_ms = 0;

	for (;;)
	{
		short		ready = poll_socket(conn, POLLIN | POLLOUT, wait_ms);
		TimestampTz now;

		if (ready & ~POLLOUT)
			pump_frames(conn);
		if (conn->lost || !ch->open)
			return false;
		if (ready & POLLOUT)
			return true;

		now = GetCurrentTimestamp();
		if (deadline == 0)
			deadline = TimestampTzPlusMilliseconds(now, conn->io_timeout_ms);
		wait_ms = (int) TimestampDifferenceMilliseconds(now, deadline);
		if (wait_ms <= 0)
		{
			conn_lost(conn, "could not send a message: no progress within %d ms", conn->io_timeout_ms);
			return false;
		}
	}
}

static bool
send_method(BrokerConn *conn, int channel, const BrokerMessage *message)
{
	amqp_basic_publish_t method = {0};

	method.exchange = bytes_of(message->exchange);
	method.routing_key = bytes_of(message->routing_key);
	method.mandatory = 1;
	return conn_send_method(conn, channel, AMQP_BASIC_PUBLISH_METHOD, &method, "send a message");
}

static bool
send_header(BrokerConn *conn, int channel, amqp_basic_properties_t *properties, Size body_len)
{
	amqp_frame_t frame;

	frame.frame_type = AMQP_FRAME_HEADER;
	frame.channel = (amqp_channel_t) channel;
	frame.payload.properties.class_id = AMQP_BASIC_CLASS;
	frame.payload.properties.body_size = body_len;
	frame.payload.properties.decoded = properties;
	return conn_send_frame(conn, &frame, "send a message");
}

static bool
send_body(BrokerConn *conn, int channel, const BrokerMessage *message)
{
	Size		most = amqp_get_frame_max(conn->rabbit) - RABBIT_FRAME_OVERHEAD;

	for (Size offset = 0; offset < message->body_len; offset += most)
	{
		amqp_frame_t frame;

		if (offset > 0 && !ready_for_more(conn, &conn->channels[channel]))
			return !conn->lost; /* the channel closed: the message is among its unsettled ones */
		frame.frame_type = AMQP_FRAME_BODY;
		frame.channel = (amqp_channel_t) channel;
		frame.payload.body_fragment.bytes = unconstify(char *, message->body + offset);
		frame.payload.body_fragment.len = Min(most, message->body_len - offset);
		if (!conn_send_frame(conn, &frame, "send a message"))
			return false;
	}
	return true;
}

static bool
send_message(BrokerConn *conn, int channel, const BrokerMessage *message)
{
	amqp_basic_properties_t properties = build_properties(conn, message);
	bool		own_cork = !conn->corked;
	bool		ok;

	if (own_cork)
		broker_cork(conn);

	/* Cleared only at the end: an interrupt may take us out of here half-way. */
	conn->mid_message = true;
	ok = send_method(conn, channel, message) && send_header(conn, channel, &properties, message->body_len) &&
		send_body(conn, channel, message);
	conn->mid_message = false;

	if (own_cork)
		broker_uncork(conn);
	return ok;
}

BrokerPublish
broker_publish(BrokerConn *conn, int channel, const BrokerMessage *message, uint64 token, BrokerError *error)
{
	BrokerChannel *ch = conn_channel(conn, channel);

	if (conn->mid_message)
		conn_lost(conn, "sending a message was interrupted");
	if (conn->lost)
		return BROKER_LOST;
	if (ch == NULL || !ch->open || conn->blocked || !make_room(conn, ch) || poll_socket(conn, POLLOUT, 0) == 0)
		return BROKER_WOULD_BLOCK;

	MemoryContextReset(conn->scratch);
	if (!check_message(conn, message, error))
		return BROKER_REFUSED;
	note_in_window(ch, message, token);
	return send_message(conn, channel, message) ? BROKER_SENT : BROKER_LOST;
}
