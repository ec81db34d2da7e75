/*
 * rpc.c
 *		Requests that the broker answers.
 *
 * Those to which it has the answer at hand (opening a channel, consuming) are
 * waited for.  The library puts frames that come meanwhile aside, in its own
 * memory and for as long as the request takes.  Others it passes on to the
 * queue, which may be busy for seconds: the pump finds their answers.
 *
 * May depend on: conn_internal.h, text.h.
 */
#include "conn_internal.h"

#include "miscadmin.h"
#include "text.h"
#include "utils/timestamp.h"

static void
note_denial(BrokerDenial *denial, const amqp_channel_close_t *close)
{
	char words[ACEMQ_MAX_SHORTSTR + 1];

	text_clean(words, sizeof(words), close->reply_text.bytes, close->reply_text.len);
	denial->code = close->reply_code;
	snprintf(denial->text, sizeof(denial->text), "%d %s", denial->code, words);
}

/* The broker closed the channel, or the whole connection, instead of answering. */
static BrokerRequest
refused(BrokerConn *conn, int channel, const amqp_method_t *method, const char *what, BrokerDenial *denial)
{
	const amqp_channel_close_t *close = method->decoded;

	if (method->id == AMQP_CONNECTION_CLOSE_METHOD)
		conn_closed_by_broker(conn, method->decoded);
	else if (method->id != AMQP_CHANNEL_CLOSE_METHOD)
		conn_lost(conn, "could not %s: unexpected answer", what);
	if (method->id != AMQP_CHANNEL_CLOSE_METHOD)
		return BROKER_REQUEST_LOST;

	note_denial(denial, close);
	channel_closed_by_broker(conn, channel, close, false);
	return BROKER_DENIED;
}

/* An answer other than the one asked for ends the connection, as it would for any client. */
static BrokerRequest
judge(BrokerConn *conn, int channel, const Rpc *rpc, const amqp_rpc_reply_t *reply, GuardOutcome outcome,
      BrokerDenial *denial)
{
	int status = AMQP_STATUS_UNEXPECTED_STATE;

	if (outcome == GUARD_QUIET && reply->reply_type == AMQP_RESPONSE_NORMAL)
		return BROKER_DONE;
	if (outcome == GUARD_QUIET && reply->reply_type == AMQP_RESPONSE_SERVER_EXCEPTION)
		return refused(conn, channel, &reply->reply, rpc->what, denial);
	if (reply->reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION && reply->library_error < 0)
		status = reply->library_error;
	(void) conn_check_sent(conn, status, outcome, rpc->what);
	return BROKER_REQUEST_LOST;
}

BrokerRequest
rpc_ask(BrokerConn *conn, int channel, const Rpc *rpc, BrokerDenial *denial)
{
	amqp_method_number_t answers[] = {rpc->answer, 0};
	amqp_rpc_reply_t reply;
	BrokerRequest result;

	if (!conn_may_send(conn))
		return BROKER_REQUEST_LOST;
	guard_begin(broker_socket(conn), conn->io_timeout_ms);
	reply = amqp_simple_rpc(conn->rabbit, (amqp_channel_t) channel, rpc->request, answers, rpc->method);
	result = judge(conn, channel, rpc, &reply, guard_end(), denial);
	amqp_maybe_release_buffers_on_channel(conn->rabbit, (amqp_channel_t) channel);
	CHECK_FOR_INTERRUPTS();
	return result;
}

BrokerRequest
rpc_request(BrokerConn *conn, int channel, const Rpc *rpc, BrokerDenial *denial)
{
	BrokerChannel *ch = conn_channel(conn, channel);
	BrokerRequest result;

	if (conn->lost)
		return BROKER_REQUEST_LOST;
	if (ch == NULL || !ch->open || conn->blocked)
		return BROKER_REQUEST_BLOCKED;
	result = rpc_ask(conn, channel, rpc, denial);
	pump_frames(conn);
	return conn->lost && result == BROKER_DONE ? BROKER_REQUEST_LOST : result;
}

static BrokerRequest
ask(BrokerConn *conn, int channel, const Rpc *rpc)
{
	BrokerChannel *ch = conn_channel(conn, channel);

	if (ch == NULL || !ch->open || conn->blocked)
		return BROKER_REQUEST_BLOCKED;
	if (!conn_may_send(conn) || !conn_send_method(conn, channel, rpc->request, rpc->method, rpc->what))
		return BROKER_REQUEST_LOST;
	memset(&conn->question, 0, sizeof(conn->question));
	conn->question.channel = channel;
	conn->question.answer = rpc->answer;
	conn->question.deadline = GetCurrentTimestamp() + (int64) conn->io_timeout_ms * 1000;
	return BROKER_PENDING;
}

BrokerRequest
rpc_poll(BrokerConn *conn, int channel, const Rpc *rpc, BrokerDenial *denial)
{
	Question *question = &conn->question;

	if (conn->lost)
		return BROKER_REQUEST_LOST;
	if (question->channel == 0)
		return ask(conn, channel, rpc);
	Assert(question->channel == channel && question->answer == rpc->answer);
	if (!question->answered)
	{
		/* Blocked, the broker listens to nobody. */
		if (conn->blocked || GetCurrentTimestamp() < question->deadline)
			return BROKER_PENDING;
		(void) conn_check(conn, AMQP_STATUS_TIMEOUT, GUARD_TIMED_OUT, rpc->what);
		return BROKER_REQUEST_LOST;
	}
	question->channel = 0;
	if (question->result == BROKER_DENIED)
		*denial = question->denial;
	return question->result;
}

void
rpc_take_answer(BrokerConn *conn, int channel, const amqp_method_t *method)
{
	Question *question = &conn->question;

	if (question->channel != channel || question->answered)
		return;
	if (method->id == AMQP_CHANNEL_CLOSE_METHOD)
	{
		question->result = BROKER_DENIED;
		note_denial(&question->denial, method->decoded);
	}
	else if (method->id == question->answer)
		question->result = BROKER_DONE;
	else
		return;
	question->answered = true;
	if (method->id == AMQP_QUEUE_DECLARE_OK_METHOD)
	{
		const amqp_queue_declare_ok_t *found = method->decoded;

		question->consumers = found->consumer_count;
		question->messages = found->message_count;
	}
}

TimestampTz
broker_request_deadline(BrokerConn *conn)
{
	return conn->question.channel != 0 ? conn->question.deadline : 0;
}

BrokerRequest
rpc_refuse(BrokerDenial *denial, const char *problem)
{
	denial->code = 0;
	strlcpy(denial->text, problem, sizeof(denial->text));
	return BROKER_DENIED;
}

amqp_bytes_t
rpc_bytes(const char *text)
{
	amqp_bytes_t bytes = {strlen(text), unconstify(char *, text)};

	return bytes;
}
