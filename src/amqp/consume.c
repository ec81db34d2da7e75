/*
 * consume.c
 *		Consumers: starting one, settling what it got, and its end.
 *
 * May depend on: conn_internal.h.
 */
#include "conn_internal.h"

BrokerRequest
broker_consume(BrokerConn *conn, int channel, const BrokerConsumer *consumer, BrokerDenial *denial)
{
	amqp_basic_qos_t qos = {.prefetch_count = consumer->prefetch};
	amqp_basic_consume_t consume = {.queue = rpc_bytes(consumer->queue),
	                                .consumer_tag = rpc_bytes(consumer->tag),
	                                .exclusive = consumer->exclusive};
	const Rpc limit = {AMQP_BASIC_QOS_METHOD, &qos, AMQP_BASIC_QOS_OK_METHOD, "limit a consumer"};
	const Rpc start = {AMQP_BASIC_CONSUME_METHOD, &consume, AMQP_BASIC_CONSUME_OK_METHOD, "consume a queue"};
	BrokerChannel *ch = conn_channel(conn, channel);
	BrokerRequest result;

	if (consume.queue.len > ACEMQ_MAX_SHORTSTR || consume.consumer_tag.len > ACEMQ_MAX_SHORTSTR)
		return rpc_refuse(denial, "a name is longer than 255 bytes");
	result = rpc_request(conn, channel, &limit, denial);
	if (result != BROKER_DONE)
		return result;

	/* Before the request: the first deliveries may be read together with its answer. */
	ch->consuming.max_body = consumer->max_body;
	ch->consuming.budget = consumer->body_budget;
	ch->consuming.started = true;
	return rpc_request(conn, channel, &start, denial);
}

/* What it had delivered before may still be settled, and what is on its way may still come. */
void
consumer_cancelled(BrokerConn *conn, int channel, const amqp_basic_cancel_t *method)
{
	BrokerChannel *ch = conn_channel(conn, channel);
	amqp_basic_cancel_ok_t answer = {.consumer_tag = method->consumer_tag};

	if (ch == NULL || !ch->open)
		return;
	(void) events_push(&conn->events, BROKER_EVENT_CONSUMER_CANCELLED, channel, NULL);
	if (!method->nowait)
		(void) conn_send_method(conn, channel, AMQP_BASIC_CANCEL_OK_METHOD, &answer, "answer the end of a consumer");
}

/*
 * Whether the broker still waits for it: not after the channel has been closed
 * or opened anew, where the same number would mean another delivery, or none,
 * for which the broker closes the channel.
 */
static bool
still_owed(BrokerConn *conn, int channel, uint64 tag)
{
	BrokerChannel *ch = conn_channel(conn, channel);

	return ch != NULL && ch->open && ch->opening == DELIVERY_TAG_OPENING(tag);
}

bool
broker_ack(BrokerConn *conn, int channel, uint64 tag)
{
	amqp_basic_ack_t method = {.delivery_tag = DELIVERY_TAG_NUMBER(tag)};

	if (!conn_may_send(conn))
		return false;
	return !still_owed(conn, channel, tag) ||
	       conn_send_method(conn, channel, AMQP_BASIC_ACK_METHOD, &method, "acknowledge a message");
}

bool
broker_reject(BrokerConn *conn, int channel, uint64 tag, bool requeue)
{
	amqp_basic_reject_t method = {.delivery_tag = DELIVERY_TAG_NUMBER(tag), .requeue = requeue};

	if (!conn_may_send(conn))
		return false;
	return !still_owed(conn, channel, tag) ||
	       conn_send_method(conn, channel, AMQP_BASIC_REJECT_METHOD, &method, "reject a message");
}
