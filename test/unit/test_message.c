/*
 * test_message.c
 *		The frames of a short message, read back by the client library's own
 *		decoder.
 */
#include "amqp/message.h"

#include "check.h"

#define CHANNEL   5
#define FRAME_MAX 131072

static uint8 buffer[SHORT_MESSAGE_MAX];

/* Next frame of `bytes`; what it decodes to lives as long as the handle. */
static amqp_frame_t
read_frame(amqp_connection_state_t rabbit, amqp_bytes_t *bytes)
{
	amqp_frame_t frame = {0};

	while (frame.frame_type == 0 && bytes->len > 0)
	{
		int taken = amqp_handle_input(rabbit, *bytes, &frame);

		CHECK(taken > 0);
		if (taken <= 0)
			break;
		bytes->bytes = (char *) bytes->bytes + taken;
		bytes->len -= taken;
	}
	CHECK(frame.channel == CHANNEL);
	return frame;
}

static bool
is(amqp_bytes_t bytes, const char *text)
{
	return bytes.len == strlen(text) && memcmp(bytes.bytes, text, bytes.len) == 0;
}

static void
check_properties(const amqp_basic_properties_t *got, const BrokerMessage *want)
{
	CHECK(is(got->content_type, want->content_type));
	CHECK(is(got->message_id, want->message_id));
	CHECK(got->delivery_mode == (want->persistent ? 2 : 1));
	CHECK(((got->_flags & AMQP_BASIC_PRIORITY_FLAG) != 0) == (want->priority >= 0));
	CHECK(want->priority < 0 || got->priority == want->priority);
	CHECK(((got->_flags & AMQP_BASIC_REPLY_TO_FLAG) != 0) == (want->reply_to != NULL));
	CHECK(want->reply_to == NULL || is(got->reply_to, want->reply_to));
	CHECK(((got->_flags & AMQP_BASIC_EXPIRATION_FLAG) != 0) == (want->expiration != NULL));
	CHECK(want->expiration == NULL || is(got->expiration, want->expiration));
	CHECK((got->_flags & (AMQP_BASIC_CORRELATION_ID_FLAG | AMQP_BASIC_TIMESTAMP_FLAG | AMQP_BASIC_TYPE_FLAG |
	                      AMQP_BASIC_USER_ID_FLAG | AMQP_BASIC_APP_ID_FLAG | AMQP_BASIC_CONTENT_ENCODING_FLAG)) == 0);
	CHECK(got->headers.num_entries == want->headers->count);
	for (int i = 0; i < Min(got->headers.num_entries, want->headers->count); i++)
		CHECK(is(got->headers.entries[i].key, want->headers->fields[i].name));
}

static void
round_trip(const BrokerMessage *message)
{
	amqp_connection_state_t rabbit = amqp_new_connection();
	amqp_basic_properties_t properties = message_properties(message);
	Size properties_len = message_properties_size(message);
	amqp_bytes_t bytes = {0, buffer};
	amqp_basic_publish_t *method;
	amqp_frame_t frame;

	CHECK(message_is_short(message, properties_len, FRAME_MAX));
	bytes.len = message_encode_short(buffer, CHANNEL, message, &properties);
	CHECK(bytes.len <= MESSAGE_OVERHEAD + properties_len + message->body_len);

	frame = read_frame(rabbit, &bytes);
	CHECK(frame.frame_type == AMQP_FRAME_METHOD && frame.payload.method.id == AMQP_BASIC_PUBLISH_METHOD);
	method = frame.payload.method.decoded;
	CHECK(is(method->exchange, message->exchange) && is(method->routing_key, message->routing_key));
	CHECK(method->mandatory && !method->immediate);

	frame = read_frame(rabbit, &bytes);
	CHECK(frame.frame_type == AMQP_FRAME_HEADER && frame.payload.properties.class_id == AMQP_BASIC_CLASS);
	CHECK(frame.payload.properties.body_size == message->body_len);
	CHECK(frame.payload.properties.raw.len == properties_len);
	check_properties(frame.payload.properties.decoded, message);

	if (message->body_len > 0)
	{
		frame = read_frame(rabbit, &bytes);
		CHECK(frame.frame_type == AMQP_FRAME_BODY && frame.payload.body_fragment.len == message->body_len);
		CHECK(memcmp(frame.payload.body_fragment.bytes, message->body, message->body_len) == 0);
	}
	CHECK(bytes.len == 0);
	amqp_destroy_connection(rabbit);
}

static void
test_round_trips(void)
{
	static char body[SHORT_MESSAGE_MAX];
	static char name[256];
	WireTable none = {0};
	WireTable some = {0};
	BrokerMessage message = {"", "", "", "", NULL, NULL, -1, false, &none, NULL, 0};

	round_trip(&message);

	memset(name, 'n', 255);
	wire_table_add_string(&some, "x-acemq-id", name);
	wire_table_add_int(&some, "x-acemq-version", WIRE_INT32, 1);
	message = (BrokerMessage){name, name, name, name, name, "4294967295", 255, true, &some, body, 1};
	round_trip(&message);

	memset(body, AMQP_FRAME_END, sizeof(body));
	message.priority = 0;
	message.body_len = SHORT_MESSAGE_MAX - MESSAGE_OVERHEAD - message_properties_size(&message);
	round_trip(&message);
	message.body_len++;
	CHECK(!message_is_short(&message, message_properties_size(&message), FRAME_MAX));
}

static void
test_what_is_short(void)
{
	BrokerMessage message = {.body_len = 4088};

	CHECK(message_is_short(&message, 100, 4096));
	message.body_len = 4089;
	CHECK(!message_is_short(&message, 100, 4096));
	message.body_len = (Size) -1;
	CHECK(!message_is_short(&message, 100, FRAME_MAX));
	message.body_len = 0;
	CHECK(!message_is_short(&message, SHORT_MESSAGE_MAX, FRAME_MAX));
}

int
main(void)
{
	RUN(test_round_trips());
	RUN(test_what_is_short());
	return check_report();
}
