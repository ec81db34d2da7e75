/*
 * consumer.c
 *		A consumer in a thread, on a connection of its own, without
 *		acknowledgements: it notes when a delivery has come in whole.
 *
 * May depend on: bench.h.
 */
#include "bench.h"

static atomic_uint_fast64_t deliveries;
static OnDelivery on_delivery;

uint64_t
consumer_count(void)
{
	return atomic_load(&deliveries);
}

static void *
consume(void *argument)
{
	amqp_connection_state_t connection = argument;

	for (;;)
	{
		amqp_envelope_t envelope;
		amqp_rpc_reply_t reply;

		amqp_maybe_release_buffers(connection);
		reply = amqp_consume_message(connection, &envelope, NULL, 0);
		if (reply.reply_type != AMQP_RESPONSE_NORMAL)
			die("consume: %s", amqp_error_string2(reply.library_error));
		if (on_delivery != NULL)
			on_delivery(envelope.message.body.bytes, envelope.message.body.len, now());
		atomic_fetch_add(&deliveries, 1);
		amqp_destroy_envelope(&envelope);
	}
	return NULL;
}

void
consumer_start(OnDelivery callback)
{
	amqp_connection_state_t connection = broker_connect();
	pthread_t thread;

	on_delivery = callback;
	amqp_basic_consume(connection, 1, amqp_cstring_bytes(options.queue), amqp_empty_bytes, 0, 1, 0, amqp_empty_table);
	if (amqp_get_rpc_reply(connection).reply_type != AMQP_RESPONSE_NORMAL)
		die("cannot consume queue %s", options.queue);
	if (pthread_create(&thread, NULL, consume, connection) != 0)
		die("cannot start a thread");
}
