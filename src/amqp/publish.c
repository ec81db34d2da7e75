/*
 * publish.c
 *		Publish one message: check it, note it in the window, send its frames.
 *
 * A message that fits into one buffer goes out with a single non-blocking
 * system call: the library needs three, and they are what a publish costs.
 * Longer ones, and all with TLS, go through the library frame by frame.
 *
 * Every check comes before the first byte.  After it there is no way back: a
 * message cut short makes the broker close the connection, so whatever goes
 * wrong from there on loses the connection, and with it the message's outcome.
 *
 * May depend on: conn_internal.h, message.h, wire_headers.h.
 */
#include "conn_internal.h"

#include <poll.h>
#include <sys/socket.h>

#include "message.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "wire_headers.h"

#define FIRST_WINDOW 2048

/*
 * Whether the socket takes more is asked again after this many bytes: less
 * than the kernel still has room for when it says yes.
 */
#define BYTES_PER_POLL 16384

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
	} names[] = {
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

/* Also measures the properties, which is safe only once the nesting of the headers is known. */
static bool
check_message(BrokerConn *conn, const BrokerMessage *message, Size *properties_len, BrokerError *error)
{
	Size room = amqp_get_frame_max(conn->rabbit) - RABBIT_FRAME_OVERHEAD - RABBIT_CONTENT_HEADER;
	const char *problem = name_problem(message);

	if (problem == NULL)
		problem = wire_headers_problem(message->headers);
	if (problem != NULL)
		return refuse(error, problem);
	*properties_len = message_properties_size(message);
	if (*properties_len > room)
		return refuse(error, "its headers do not fit into one frame");
	return true;
}

/* ---- window ---- */

static bool
make_room(BrokerConn *conn, BrokerChannel *ch)
{
	int capacity = ch->window.capacity > 0 ? ch->window.capacity * 2 : FIRST_WINDOW;
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
	uint64 route =
	    conn_route(message->exchange, strlen(message->exchange), message->routing_key, strlen(message->routing_key));

	window_push(&ch->window, token, GetCurrentTimestamp(), route, message->message_id,
	            (int) strlen(message->message_id));
}

/* ---- frames ---- */

/* poll() under the guard; the revents, 0 if time ran out or a signal came. */
static short
poll_socket(BrokerConn *conn, short events, int timeout_ms)
{
	struct pollfd pfd = {.fd = broker_socket(conn), .events = events};
	int ready;

	if (timeout_ms == 0)
		return poll(&pfd, 1, 0) > 0 ? pfd.revents : 0;

	guard_begin(pfd.fd, timeout_ms);
	ready = poll(&pfd, 1, timeout_ms);
	(void) conn_check(conn, AMQP_STATUS_OK, guard_end(), "send a message");
	CHECK_FOR_INTERRUPTS();
	return ready > 0 ? pfd.revents : 0;
}

/*
 * Wait until the socket is ready for one of `events`, at most io_timeout from
 * the first of a row of calls (*deadline is 0 then); after that the connection
 * is lost.  Returns the revents.
 */
static short
wait_for_socket(BrokerConn *conn, short events, TimestampTz *deadline)
{
	TimestampTz now = GetCurrentTimestamp();
	int left;

	if (*deadline == 0)
		*deadline = TimestampTzPlusMilliseconds(now, conn->io_timeout_ms);
	left = (int) TimestampDifferenceMilliseconds(now, *deadline);
	if (left > 0)
		return poll_socket(conn, events, left);
	(void) conn_check(conn, AMQP_STATUS_TIMEOUT, GUARD_TIMED_OUT, "send a message");
	return 0;
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
	short ready = poll_socket(conn, POLLIN | POLLOUT, 0);

	for (;;)
	{
		if (ready & ~POLLOUT)
			pump_frames(conn);
		if (conn->lost || !ch->open)
			return false;
		if (ready & POLLOUT)
			return true;
		ready = wait_for_socket(conn, POLLIN | POLLOUT, &deadline);
	}
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
	Size most = amqp_get_frame_max(conn->rabbit) - RABBIT_FRAME_OVERHEAD;

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
send_by_frames(BrokerConn *conn, int channel, const BrokerMessage *message, amqp_basic_properties_t *properties)
{
	amqp_basic_publish_t method = message_method(message);
	bool own_cork = !conn->corked;
	bool ok;

	if (own_cork)
		broker_cork(conn);
	ok = conn_send_method(conn, channel, AMQP_BASIC_PUBLISH_METHOD, &method, "send a message") &&
	     send_header(conn, channel, properties, message->body_len) && send_body(conn, channel, message);
	if (own_cork)
		broker_uncork(conn);
	return ok;
}

/* ---- short messages ---- */

/* Nothing may be read meanwhile: what the library answers would end up between our bytes. */
static bool
send_bytes(BrokerConn *conn, const uint8 *data, Size len)
{
	TimestampTz deadline = 0;

	while (len > 0 && !conn->lost)
	{
		ssize_t sent = send(broker_socket(conn), data, len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent >= 0)
		{
			data += sent;
			len -= sent;
			deadline = 0;
		}
		else if (errno == EAGAIN || errno == EWOULDBLOCK)
			(void) wait_for_socket(conn, POLLOUT, &deadline);
		else if (errno != EINTR)
			(void) conn_check_sent(conn, AMQP_STATUS_SOCKET_ERROR, GUARD_QUIET, "send a message");
	}
	return !conn->lost;
}

static bool
send_short(BrokerConn *conn, int channel, const BrokerMessage *message, amqp_basic_properties_t *properties)
{
	int len = message_encode_short(conn->buffer, channel, message, properties);

	if (len >= 0)
		return send_bytes(conn, conn->buffer, len);
	conn_lost(conn, "could not encode a message");
	return false;
}

/* ---- one publish ---- */

/* A socket that is rather full makes the message wait outside, not half-way through. */
static bool
has_room(BrokerConn *conn)
{
	if (conn->sent_since_poll >= BYTES_PER_POLL)
	{
		if (poll_socket(conn, POLLOUT, 0) == 0)
			return false;
		conn->sent_since_poll = 0;
	}
	return true;
}

static bool
send_message(BrokerConn *conn, int channel, const BrokerMessage *message, Size properties_len)
{
	Size len = MESSAGE_OVERHEAD + properties_len + message->body_len;
	amqp_basic_properties_t properties;
	MemoryContext caller;
	bool ok;

	MemoryContextReset(conn->scratch);
	caller = MemoryContextSwitchTo(conn->scratch);
	properties = message_properties(message);
	MemoryContextSwitchTo(caller);

	/* Cleared only at the end: an interrupt may take us out of here half-way. */
	conn->mid_message = true;
	if (!conn->tls && message_is_short(message, properties_len, amqp_get_frame_max(conn->rabbit)))
		ok = send_short(conn, channel, message, &properties);
	else
		ok = send_by_frames(conn, channel, message, &properties);
	conn->mid_message = false;
	conn->sent_since_poll += len;
	conn->bytes_sent += len;
	return ok;
}

BrokerPublish
broker_publish(BrokerConn *conn, int channel, const BrokerMessage *message, uint64 token, BrokerError *error)
{
	BrokerChannel *ch = conn_channel(conn, channel);
	Size properties_len = 0;

	if (!conn_may_send(conn))
		return BROKER_LOST;
	if (ch == NULL || !ch->open || conn->blocked || !make_room(conn, ch) || !has_room(conn))
		return BROKER_WOULD_BLOCK;

	if (!check_message(conn, message, &properties_len, error))
		return BROKER_REFUSED;
	note_in_window(ch, message, token);
	return send_message(conn, channel, message, properties_len) ? BROKER_SENT : BROKER_LOST;
}
