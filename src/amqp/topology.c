/*
 * topology.c
 *		Exchanges, queues and bindings: making them, and looking whether they are
 *		there.
 *
 * May depend on: conn_internal.h, wire_headers.h.
 */
#include "conn_internal.h"

#include "utils/memutils.h"
#include "wire_headers.h"

/* Of the arguments of a queue; more fits into a frame, and nobody needs it. */
#define MAX_ARGUMENTS_SIZE 4096

static bool
too_long(const char *name)
{
	return strlen(name) > ACEMQ_MAX_SHORTSTR;
}

BrokerRequest
broker_declare_exchange(BrokerConn *conn, int channel, const char *name, const char *type, BrokerDenial *denial)
{
	amqp_exchange_declare_t method = {.exchange = rpc_bytes(name), .type = rpc_bytes(type), .durable = 1};
	const Rpc rpc = {AMQP_EXCHANGE_DECLARE_METHOD, &method, AMQP_EXCHANGE_DECLARE_OK_METHOD, "declare an exchange"};

	if (too_long(name) || too_long(type))
		return rpc_refuse(denial, "a name is longer than 255 bytes");
	return rpc_poll(conn, channel, &rpc, denial);
}

static BrokerRequest
declare_queue(BrokerConn *conn, int channel, amqp_queue_declare_t *method, const char *what, BrokerDenial *denial)
{
	const Rpc rpc = {AMQP_QUEUE_DECLARE_METHOD, method, AMQP_QUEUE_DECLARE_OK_METHOD, what};

	if (method->queue.len > ACEMQ_MAX_SHORTSTR)
		return rpc_refuse(denial, "queue name is longer than 255 bytes");
	return rpc_poll(conn, channel, &rpc, denial);
}

BrokerRequest
broker_declare_queue(BrokerConn *conn, int channel, const char *name, const WireTable *arguments, BrokerDenial *denial)
{
	amqp_queue_declare_t method = {.queue = rpc_bytes(name), .durable = 1};
	MemoryContext caller;

	if (arguments != NULL && conn->question.channel == 0)
	{
		const char *problem = wire_headers_problem(arguments);

		if (problem == NULL && wire_table_size(arguments) > MAX_ARGUMENTS_SIZE)
			problem = "the arguments are too long";
		if (problem != NULL)
			return rpc_refuse(denial, problem);
		MemoryContextReset(conn->scratch);
		caller = MemoryContextSwitchTo(conn->scratch);
		method.arguments = wire_headers_build(arguments);
		MemoryContextSwitchTo(caller);
	}
	return declare_queue(conn, channel, &method, "declare a queue", denial);
}

BrokerRequest
broker_bind_queue(BrokerConn *conn, int channel, const char *queue, const char *exchange, const char *routing_key,
                  BrokerDenial *denial)
{
	amqp_queue_bind_t method = {
	    .queue = rpc_bytes(queue), .exchange = rpc_bytes(exchange), .routing_key = rpc_bytes(routing_key)};
	const Rpc rpc = {AMQP_QUEUE_BIND_METHOD, &method, AMQP_QUEUE_BIND_OK_METHOD, "bind a queue"};

	if (too_long(queue) || too_long(exchange) || too_long(routing_key))
		return rpc_refuse(denial, "a name is longer than 255 bytes");
	return rpc_poll(conn, channel, &rpc, denial);
}

BrokerRequest
broker_inspect_queue(BrokerConn *conn, int channel, const char *name, uint32 *consumers, uint32 *messages,
                     BrokerDenial *denial)
{
	amqp_queue_declare_t method = {.queue = rpc_bytes(name), .passive = 1};
	BrokerRequest result = declare_queue(conn, channel, &method, "look at a queue", denial);

	*consumers = result == BROKER_DONE ? conn->question.consumers : 0;
	*messages = result == BROKER_DONE ? conn->question.messages : 0;
	return result;
}
