/*
 * message.c
 *		A message in the terms of the protocol: its method, properties and
 *		frames.
 *
 * May depend on: message.h, wire_headers.h.
 */
#include "message.h"

#include "wire_headers.h"

static amqp_bytes_t
bytes_of(const char *text)
{
	amqp_bytes_t bytes = {strlen(text), unconstify(char *, text)};

	return bytes;
}

static Size
shortstr_size(const char *text)
{
	return text != NULL ? 1 + strlen(text) : 0;
}

Size
message_properties_size(const BrokerMessage *message)
{
	return sizeof(uint16) + shortstr_size(message->content_type) + wire_table_size(message->headers) + sizeof(uint8) +
	       (message->priority >= 0 ? sizeof(uint8) : 0) + shortstr_size(message->reply_to) +
	       shortstr_size(message->expiration) + shortstr_size(message->message_id);
}

amqp_basic_publish_t
message_method(const BrokerMessage *message)
{
	amqp_basic_publish_t method = {0};

	method.exchange = bytes_of(message->exchange);
	method.routing_key = bytes_of(message->routing_key);
	method.mandatory = 1;
	return method;
}

amqp_basic_properties_t
message_properties(const BrokerMessage *message)
{
	amqp_basic_properties_t properties = {0};

	properties._flags = AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_MESSAGE_ID_FLAG;
	properties.headers = wire_headers_build(message->headers);
	properties.delivery_mode = message->persistent ? 2 : 1;
	properties.message_id = bytes_of(message->message_id);
	if (message->content_type != NULL)
	{
		properties._flags |= AMQP_BASIC_CONTENT_TYPE_FLAG;
		properties.content_type = bytes_of(message->content_type);
	}
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
	return properties;
}

bool
message_is_short(const BrokerMessage *message, Size properties_len, int frame_max)
{
	const Size most = SHORT_MESSAGE_MAX - MESSAGE_OVERHEAD;

	return message->body_len <= most && properties_len <= most - message->body_len &&
	       message->body_len <= (Size) frame_max - RABBIT_FRAME_OVERHEAD;
}

static uint8 *
put_number(uint8 *out, uint64 value, int width)
{
	for (int shift = 8 * (width - 1); shift >= 0; shift -= 8)
		*out++ = (uint8) (value >> shift);
	return out;
}

/* Complete a frame whose payload already stands behind the space for its head; returns what follows it. */
static uint8 *
close_frame(uint8 *frame, int type, int channel, Size payload_len)
{
	uint8 *payload = put_number(put_number(put_number(frame, type, 1), channel, 2), payload_len, 4);

	payload[payload_len] = AMQP_FRAME_END;
	return payload + payload_len + 1;
}

int
message_encode_short(uint8 *buffer, int channel, const BrokerMessage *message, amqp_basic_properties_t *properties)
{
	const int head = RABBIT_FRAME_OVERHEAD - 1;
	amqp_basic_publish_t method = message_method(message);
	uint8 *frame = buffer;
	uint8 *payload;
	int len;

	payload = put_number(frame + head, AMQP_BASIC_PUBLISH_METHOD, 4);
	len = amqp_encode_method(AMQP_BASIC_PUBLISH_METHOD, &method,
	                         (amqp_bytes_t){buffer + SHORT_MESSAGE_MAX - payload, payload});
	if (len < 0)
		return -1;
	frame = close_frame(frame, AMQP_FRAME_METHOD, channel, 4 + len);

	payload = put_number(frame + head, AMQP_BASIC_CLASS, 2);
	payload = put_number(payload, 0, 2);
	payload = put_number(payload, message->body_len, 8);
	len = amqp_encode_properties(AMQP_BASIC_CLASS, properties,
	                             (amqp_bytes_t){buffer + SHORT_MESSAGE_MAX - payload, payload});
	if (len < 0)
		return -1;
	frame = close_frame(frame, AMQP_FRAME_HEADER, channel, RABBIT_CONTENT_HEADER + len);

	if (message->body_len > 0)
	{
		memcpy(frame + head, message->body, message->body_len);
		frame = close_frame(frame, AMQP_FRAME_BODY, channel, message->body_len);
	}
	return (int) (frame - buffer);
}
