/*
 * pump.c
 *		Everything that arrives: frames in, events out.
 *
 * The library is asked for single frames only.  What it decodes lies in a
 * pool of the channel, which is given back after each frame: whatever is to
 * survive has been copied by then.  A frame we have no use for is passed over.
 *
 * May depend on: conn_internal.h, text.h.
 */
#include "conn_internal.h"

#include "miscadmin.h"
#include "text.h"
#include "utils/timestamp.h"

static void
copy_words(char *target, Size size, amqp_bytes_t words)
{
	text_clean(target, size, words.bytes, words.len);
}

/* ---- confirms ---- */

static void
report(BrokerConn *conn, BrokerEventKind kind, int channel, const WindowEntry *entry)
{
	BrokerEvent *event = events_push(&conn->events, kind, channel, NULL);

	event->token = entry->token;
	event->sent_at = entry->sent_at;
}

static void
settle(BrokerConn *conn, int channel, uint64 tag, bool multiple, BrokerEventKind kind)
{
	BrokerChannel *ch = conn_channel(conn, channel);
	const WindowEntry *entry;

	if (ch == NULL || !ch->open)
		return;
	while ((entry = window_settle(&ch->window, tag, multiple)) != NULL)
		report(conn, kind, channel, entry);
}

/* ---- returned messages ---- */

static void
begin_return(BrokerConn *conn, int channel, const amqp_basic_return_t *method)
{
	BrokerChannel *ch = conn_channel(conn, channel);

	if (ch == NULL || !ch->open)
		return;
	ch->returning.step = RETURN_WANTS_HEADER;
	ch->returning.code = method->reply_code;
	copy_words(ch->returning.text, sizeof(ch->returning.text), method->reply_text);
	ch->returning.route =
	    conn_route(method->exchange.bytes, method->exchange.len, method->routing_key.bytes, method->routing_key.len);
}

static const WindowEntry *
match_return(BrokerChannel *ch, const amqp_basic_properties_t *properties)
{
	amqp_bytes_t id = properties->message_id;

	if ((properties->_flags & AMQP_BASIC_MESSAGE_ID_FLAG) != 0 && id.len <= ACEMQ_MAX_SHORTSTR)
		return window_mark_returned(&ch->window, id.bytes, (int) id.len, ch->returning.route);
	return NULL;
}

static void
return_header(BrokerConn *conn, int channel, const amqp_frame_t *frame)
{
	BrokerChannel *ch = conn_channel(conn, channel);
	const WindowEntry *entry = match_return(ch, frame->payload.properties.decoded);

	if (entry != NULL)
	{
		BrokerEvent *event = events_push(&conn->events, BROKER_EVENT_RETURNED, channel, ch->returning.text);

		event->token = entry->token;
		event->sent_at = entry->sent_at;
		event->code = ch->returning.code;
	}
	else
	{
		/*
		 * The ack that follows would be taken for a confirm of a message that
		 * reached no queue.  Losing the connection sends it again instead.
		 */
		conn_lost(conn, "the broker returned a message that is not in flight");
		return;
	}

	/* Its body comes back too and is of no interest. */
	ch->returning.body_left = frame->payload.properties.body_size;
	ch->returning.step = ch->returning.body_left > 0 ? RETURN_WANTS_BODY : RETURN_NONE;
}

static void
return_body(BrokerConn *conn, int channel, const amqp_frame_t *frame)
{
	ReturnInProgress *returning = &conn_channel(conn, channel)->returning;

	returning->body_left -= Min(returning->body_left, frame->payload.body_fragment.len);
	if (returning->body_left == 0)
		returning->step = RETURN_NONE;
}

/* ---- the frames that follow a method ---- */

/* While the broker has not heard that a channel is closed, what comes on it has no meaning. */
static void
handle_header(BrokerConn *conn, int channel, const amqp_frame_t *frame)
{
	BrokerChannel *ch = conn_channel(conn, channel);

	if (ch == NULL || !ch->open)
		return;
	if (frame->payload.properties.class_id != AMQP_BASIC_CLASS)
		conn_lost(conn, "the broker sent a message with a header of class %u",
		          (unsigned) frame->payload.properties.class_id);
	else if (ch->returning.step == RETURN_WANTS_HEADER)
		return_header(conn, channel, frame);
	else if (ch->consuming.step == DELIVERY_WANTS_HEADER)
		delivery_header(conn, channel, frame);
	else
		conn_lost(conn, "the broker sent the header of a message that it had not announced");
}

static void
handle_body(BrokerConn *conn, int channel, const amqp_frame_t *frame)
{
	BrokerChannel *ch = conn_channel(conn, channel);

	if (ch == NULL || !ch->open)
		return;
	if (ch->returning.step == RETURN_WANTS_BODY)
		return_body(conn, channel, frame);
	else if (ch->consuming.step == DELIVERY_WANTS_BODY)
		delivery_body(conn, channel, frame);
	else
		conn_lost(conn, "the broker sent more of a message than it had announced");
}

/* ---- the connection is blocked ---- */

static void
set_blocked(BrokerConn *conn, bool blocked, amqp_bytes_t reason)
{
	if (blocked == conn->blocked)
		return;
	conn->blocked = blocked;
	/* It has not been listening. */
	conn->question.deadline = GetCurrentTimestamp() + (int64) conn->io_timeout_ms * 1000;
	copy_words(conn->blocked_reason, sizeof(conn->blocked_reason), reason);
	(void) events_push(&conn->events, blocked ? BROKER_EVENT_BLOCKED : BROKER_EVENT_UNBLOCKED, 0, conn->blocked_reason);
}

/* ---- dispatch ---- */

/* The frames of a message follow each other; only the end of the channel may cut them short. */
static bool
in_the_middle(const BrokerChannel *ch)
{
	return ch != NULL && (ch->returning.step != RETURN_NONE || ch->consuming.step != DELIVERY_NONE);
}

static void
handle_content_method(BrokerConn *conn, int channel, const amqp_method_t *method)
{
	switch (method->id)
	{
		case AMQP_BASIC_ACK_METHOD:
		{
			const amqp_basic_ack_t *ack = method->decoded;

			settle(conn, channel, ack->delivery_tag, ack->multiple, BROKER_EVENT_CONFIRMED);
			break;
		}
		case AMQP_BASIC_NACK_METHOD:
		{
			const amqp_basic_nack_t *nack = method->decoded;

			settle(conn, channel, nack->delivery_tag, nack->multiple, BROKER_EVENT_NACKED);
			break;
		}
		case AMQP_BASIC_RETURN_METHOD:
			begin_return(conn, channel, method->decoded);
			break;
		case AMQP_BASIC_DELIVER_METHOD:
			delivery_begin(conn, channel, method->decoded);
			break;
		case AMQP_BASIC_CANCEL_METHOD:
			consumer_cancelled(conn, channel, method->decoded);
			break;
		default:
			rpc_take_answer(conn, channel, method);
			break;
	}
}

static void
handle_method(BrokerConn *conn, int channel, const amqp_method_t *method)
{
	if (in_the_middle(conn_channel(conn, channel)) && method->id != AMQP_CHANNEL_CLOSE_METHOD)
	{
		conn_lost(conn, "the broker sent another method in the middle of a message");
		return;
	}

	switch (method->id)
	{
		case AMQP_CHANNEL_CLOSE_METHOD:
			/* While hanging up nobody is to hear of a message of which he is about to hear that it is lost. */
			if (!conn->hanging_up)
			{
				bool asked = conn->question.channel == channel;

				rpc_take_answer(conn, channel, method);
				channel_closed_by_broker(conn, channel, method->decoded, !asked);
			}
			break;
		case AMQP_CONNECTION_CLOSE_METHOD:
			conn_closed_by_broker(conn, method->decoded);
			break;
		case AMQP_CONNECTION_BLOCKED_METHOD:
			set_blocked(conn, true, ((const amqp_connection_blocked_t *) method->decoded)->reason);
			break;
		case AMQP_CONNECTION_UNBLOCKED_METHOD:
			set_blocked(conn, false, amqp_empty_bytes);
			break;
		default:
			handle_content_method(conn, channel, method);
			break;
	}
}

static void
handle_frame(BrokerConn *conn, const amqp_frame_t *frame)
{
	/* Each channel that is ever heard of costs the library a page of memory. */
	if (frame->channel > BROKER_MAX_CHANNEL)
	{
		conn_lost(conn, "the broker sent a frame on channel %d, which does not exist", (int) frame->channel);
		return;
	}

	switch (frame->frame_type)
	{
		case AMQP_FRAME_METHOD:
			handle_method(conn, frame->channel, &frame->payload.method);
			break;
		case AMQP_FRAME_HEADER:
			handle_header(conn, frame->channel, frame);
			break;
		case AMQP_FRAME_BODY:
			handle_body(conn, frame->channel, frame);
			break;
		default:
			break;
	}
}

/* False: there is none, or the connection is lost. */
static bool
next_frame(BrokerConn *conn, amqp_frame_t *frame)
{
	struct timeval at_once = {0, 0};
	GuardOutcome outcome;
	int status;

	if (conn->unreadable)
		return false;

	/* Guarded because a heartbeat that is due is sent from in there. */
	guard_begin(broker_socket(conn), conn->io_timeout_ms);
	status = amqp_simple_wait_frame_noblock(conn->rabbit, frame, &at_once);
	outcome = guard_end();

	if (status == AMQP_STATUS_TIMEOUT && outcome == GUARD_QUIET)
		return false;
	conn->unreadable = status < 0 && !conn_is_socket_failure(status);
	/* The failure to send is why this one failed. */
	if (conn->hanging_up && (status < 0 || outcome != GUARD_QUIET))
		return false;
	if (status == AMQP_STATUS_BAD_AMQP_DATA && outcome == GUARD_QUIET)
		delivery_unreadable(conn);
	return conn_check(conn, status, outcome, "read from the broker");
}

void
pump_frames(BrokerConn *conn)
{
	amqp_frame_t frame;

	while (!conn->lost && next_frame(conn, &frame))
	{
		handle_frame(conn, &frame);
		amqp_maybe_release_buffers_on_channel(conn->rabbit, frame.channel);
		CHECK_FOR_INTERRUPTS();
	}
}

void
broker_pump(BrokerConn *conn)
{
	events_forget_texts(&conn->events);
	pump_frames(conn);

	channel_open_wanted(conn);
}
