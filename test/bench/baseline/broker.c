/*
 * broker.c
 *		The plain publisher: what a user of rabbitmq-c would write who wants
 *		confirms and a window, with amqp_basic_publish().
 *
 * May depend on: bench.h.
 */
#include "bench.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define CHANNEL   1
#define FRAME_MAX 131072
#define HEARTBEAT 30

static void
check(int status, const char *what)
{
	if (status < 0)
		die("%s: %s", what, amqp_error_string2(status));
}

static void
check_reply(amqp_connection_state_t connection, const char *what)
{
	amqp_rpc_reply_t reply = amqp_get_rpc_reply(connection);

	if (reply.reply_type != AMQP_RESPONSE_NORMAL)
		die("%s: %s", what,
		    reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION ? amqp_error_string2(reply.library_error)
		                                                        : "the broker refuses");
}

amqp_connection_state_t
broker_connect(void)
{
	amqp_connection_state_t connection = amqp_new_connection();
	amqp_socket_t *socket = amqp_tcp_socket_new(connection);
	amqp_rpc_reply_t reply;

	check(amqp_socket_open(socket, "127.0.0.1", options.port), "connect");
	reply = amqp_login(connection, options.vhost, 0, FRAME_MAX, HEARTBEAT, AMQP_SASL_METHOD_PLAIN, options.user,
	                   options.password != NULL ? options.password : "");
	if (reply.reply_type != AMQP_RESPONSE_NORMAL)
		die("login failed");
	amqp_channel_open(connection, CHANNEL);
	check_reply(connection, "open a channel");
	return connection;
}

void
publisher_open(Publisher *publisher)
{
	memset(publisher, 0, sizeof(*publisher));
	publisher->size = (uint64_t) options.window + (uint64_t) options.burst + 1;
	publisher->settled = calloc(publisher->size, sizeof(bool));
	publisher->connection = broker_connect();
	amqp_confirm_select(publisher->connection, CHANNEL);
	check_reply(publisher->connection, "turn on confirms");
}

uint64_t
in_flight(const Publisher *publisher)
{
	return publisher->published - publisher->confirmed;
}

/* ---- a message ---- */

static amqp_table_entry_t
text_header(const char *name, const char *value)
{
	amqp_table_entry_t entry = {.key = amqp_cstring_bytes(name)};

	entry.value.kind = AMQP_FIELD_KIND_UTF8;
	entry.value.value.bytes = amqp_cstring_bytes(value);
	return entry;
}

static amqp_table_entry_t
int_header(const char *name, int32_t value)
{
	amqp_table_entry_t entry = {.key = amqp_cstring_bytes(name)};

	entry.value.kind = AMQP_FIELD_KIND_I32;
	entry.value.value.i32 = value;
	return entry;
}

static amqp_table_entry_t
long_header(const char *name, int64_t value)
{
	amqp_table_entry_t entry = {.key = amqp_cstring_bytes(name)};

	entry.value.kind = AMQP_FIELD_KIND_I64;
	entry.value.value.i64 = value;
	return entry;
}

void
publish(Publisher *publisher, const char *body, size_t length)
{
	char id[48];
	amqp_table_entry_t headers[7];
	amqp_basic_properties_t properties = {0};
	amqp_bytes_t bytes = {length, (void *) body};

	/* As long as a UUID, and no time spent on random numbers. */
	publisher->published++;
	snprintf(id, sizeof(id), "0c8e0f5a-8a38-4a0e-9c3e-%012llx", (unsigned long long) publisher->published);
	headers[0] = text_header("x-acemq-id", id);
	headers[1] = text_header("x-acemq-type", options.routing_key);
	headers[2] = int_header("x-acemq-version", 1);
	headers[3] = text_header("x-acemq-correlation", id);
	headers[4] = int_header("x-acemq-attempt", 1);
	headers[5] = long_header("x-acemq-first-seen", (int64_t) (wall_clock() * 1000));
	headers[6] = text_header("x-acemq-origin", options.origin);

	properties._flags = AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_MESSAGE_ID_FLAG |
	                    AMQP_BASIC_CONTENT_TYPE_FLAG;
	properties.headers.num_entries = 7;
	properties.headers.entries = headers;
	properties.delivery_mode = 2;
	properties.message_id = amqp_cstring_bytes(id);
	properties.content_type = amqp_cstring_bytes("application/json");
	check(amqp_basic_publish(publisher->connection, CHANNEL, amqp_cstring_bytes(options.exchange),
	                         amqp_cstring_bytes(options.routing_key), 1, 0, &properties, bytes),
	      "publish");
}

/* ---- confirms ---- */

static void
settle(Publisher *publisher, uint64_t tag, bool multiple)
{
	if (tag <= publisher->base)
		return;
	for (uint64_t t = multiple ? publisher->base + 1 : tag; t <= tag; t++)
	{
		if (!publisher->settled[t % publisher->size])
			publisher->confirmed++;
		publisher->settled[t % publisher->size] = true;
	}
	while (publisher->base < publisher->published && publisher->settled[(publisher->base + 1) % publisher->size])
	{
		publisher->base++;
		publisher->settled[publisher->base % publisher->size] = false;
	}
}

static void
take_frame(Publisher *publisher, const amqp_frame_t *frame)
{
	const amqp_basic_ack_t *ack;

	if (frame->frame_type != AMQP_FRAME_METHOD)
		return; /* a heartbeat */
	if (frame->payload.method.id != AMQP_BASIC_ACK_METHOD)
		die("the broker did not confirm, but sent method %08x", frame->payload.method.id);
	ack = frame->payload.method.decoded;
	settle(publisher, ack->delivery_tag, ack->multiple);
	amqp_maybe_release_buffers(publisher->connection);
}

void
take_confirms(Publisher *publisher, bool wait)
{
	struct timeval at_once = {0, 0};
	amqp_frame_t frame;
	int status;

	if (wait)
	{
		check(amqp_simple_wait_frame(publisher->connection, &frame), "wait for a confirm");
		take_frame(publisher, &frame);
	}
	while ((status = amqp_simple_wait_frame_noblock(publisher->connection, &frame, &at_once)) == AMQP_STATUS_OK)
		take_frame(publisher, &frame);
	if (status != AMQP_STATUS_TIMEOUT)
		check(status, "read a confirm");
}
