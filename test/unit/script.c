/*
 * script.c
 *		The pump on a connection that is none: its frames come from a script, and
 *		what is sent is noted.
 */
#include "script.h"

#include "amqp/text.h"
#include "check.h"
#include "utils/memutils.h"

/* ---- the script ---- */

Step script[SCRIPT_MAX];
int steps = 0;
int next_step = 0;

BrokerConn *conn;

static void *lent = NULL;

Step *
push(int type, int channel, Size payload_len)
{
	Step *step = &script[steps++];

	assert(steps <= (int) lengthof(script));
	memset(step, 0, sizeof(*step));
	step->payload = calloc(1, Max(payload_len, 1));
	step->frame.frame_type = (uint8_t) type;
	step->frame.channel = (amqp_channel_t) channel;
	return step;
}

void *
push_method(int channel, amqp_method_number_t id, Size size)
{
	Step *step = push(AMQP_FRAME_METHOD, channel, size);

	step->frame.payload.method.id = id;
	return step->frame.payload.method.decoded = step->payload;
}

amqp_basic_deliver_t *
deliver_on(int channel, uint64 tag)
{
	amqp_basic_deliver_t *method = push_method(channel, AMQP_BASIC_DELIVER_METHOD, sizeof(amqp_basic_deliver_t));

	method->delivery_tag = tag;
	method->exchange = amqp_cstring_bytes("some exchange");
	method->routing_key = amqp_cstring_bytes("key");
	return method;
}

amqp_basic_properties_t *
header_on(int channel, uint64 body_size)
{
	Step *step = push(AMQP_FRAME_HEADER, channel, sizeof(amqp_basic_properties_t));

	step->frame.payload.properties.class_id = AMQP_BASIC_CLASS;
	step->frame.payload.properties.body_size = body_size;
	return step->frame.payload.properties.decoded = step->payload;
}

void
body_on(int channel, Size offset, Size len)
{
	Step *step = push(AMQP_FRAME_BODY, channel, len);

	for (Size i = 0; i < len; i++)
		((uint8 *) step->payload)[i] = (uint8) ((offset + i) * 7);
	step->frame.payload.body_fragment = (amqp_bytes_t){len, step->payload};
}

void
close_channel(int channel)
{
	amqp_channel_close_t *method = push_method(channel, AMQP_CHANNEL_CLOSE_METHOD, sizeof(amqp_channel_close_t));

	method->reply_code = 406;
	method->reply_text = amqp_cstring_bytes("PRECONDITION_FAILED");
}

/* ---- a connection that notes what is done ---- */

int sent_methods[SENT_MAX];
int nsent = 0;
uint64 sent_tag;

int
amqp_simple_wait_frame_noblock(amqp_connection_state_t state, amqp_frame_t *frame, const struct timeval *timeout)
{
	Step *step = &script[next_step];

	if (next_step == steps)
		return AMQP_STATUS_TIMEOUT;
	next_step++;
	lent = step->payload;
	*frame = step->frame;
	if (step->status < 0)
		amqp_maybe_release_buffers_on_channel(state, 0);
	return step->status;
}

void
amqp_maybe_release_buffers_on_channel(amqp_connection_state_t state, amqp_channel_t channel)
{
	free(lent);
	lent = NULL;
}

pgsocket
broker_socket(BrokerConn *c)
{
	return -1;
}

void
guard_begin(pgsocket socket, int timeout_ms)
{
}

GuardOutcome
guard_end(void)
{
	return GUARD_QUIET;
}

void
conn_lost(BrokerConn *c, const char *format, ...)
{
	if (c->lost)
		return;
	c->lost = true;
	for (int i = 0; i <= BROKER_MAX_CHANNEL; i++)
		c->channels[i].open = false;
	(void) events_push(&c->events, BROKER_EVENT_LOST, 0, format);
}

void
conn_closed_by_broker(BrokerConn *c, const amqp_connection_close_t *method)
{
	conn_lost(c, "closed");
}

bool
conn_check(BrokerConn *c, int status, GuardOutcome outcome, const char *what)
{
	if (status < 0)
		conn_lost(c, "failed");
	return status >= 0;
}

bool
conn_is_socket_failure(int status)
{
	return status == AMQP_STATUS_SOCKET_ERROR || status == AMQP_STATUS_CONNECTION_CLOSED;
}

bool
conn_may_send(BrokerConn *c)
{
	return !c->lost;
}

bool
conn_send_method(BrokerConn *c, int channel, amqp_method_number_t id, void *method, const char *what)
{
	if (id == AMQP_BASIC_ACK_METHOD)
		sent_tag = ((amqp_basic_ack_t *) method)->delivery_tag;
	else if (id == AMQP_BASIC_REJECT_METHOD)
		sent_tag = ((amqp_basic_reject_t *) method)->delivery_tag;
	sent_methods[nsent++ % (int) lengthof(sent_methods)] = (int) id;
	return true;
}

BrokerRequest
rpc_ask(BrokerConn *c, int channel, const Rpc *rpc, BrokerDenial *denial)
{
	return BROKER_DONE;
}

BrokerRequest
rpc_request(BrokerConn *c, int channel, const Rpc *rpc, BrokerDenial *denial)
{
	return BROKER_DONE;
}

/* Nothing is asked here. */
void
rpc_take_answer(BrokerConn *c, int channel, const amqp_method_t *method)
{
	(void) c, (void) channel, (void) method;
}

BrokerRequest
rpc_refuse(BrokerDenial *denial, const char *problem)
{
	return BROKER_DENIED;
}

amqp_bytes_t
rpc_bytes(const char *text)
{
	return amqp_cstring_bytes(text);
}

void
text_clean(char *target, Size size, const void *data, Size len)
{
	snprintf(target, size, "%.*s", (int) len, (const char *) data);
}

/* ---- a test ---- */

void
begin_with(Size max_body, Size budget)
{
	BrokerConsumer consumer = {.queue = "q", .tag = "t", .prefetch = 50, .max_body = max_body, .body_budget = budget};
	MemoryContext context = AllocSetContextCreate(NULL, "connection", ALLOCSET_DEFAULT_SIZES);
	BrokerDenial denial;

	steps = next_step = nsent = 0;
	conn = memset(MemoryContextAlloc(context, sizeof(BrokerConn)), 0, sizeof(BrokerConn));
	conn->context = context;
	events_init(&conn->events, context);
	CHECK(broker_open_channel(conn, CHANNEL));
	CHECK(broker_open_channel(conn, BROKER_CHANNEL_MAIN));
	CHECK(broker_consume(conn, CHANNEL, &consumer, &denial) == BROKER_DONE);
}

void
end(void)
{
	while (next_step < steps)
		free(script[next_step++].payload);
	MemoryContextDelete(conn->context);
}

bool
body_is_right(const BrokerDelivery *delivery)
{
	for (Size i = 0; i < delivery->body_len; i++)
	{
		if ((uint8) delivery->body[i] != (uint8) (i * 7))
			return false;
	}
	return true;
}
