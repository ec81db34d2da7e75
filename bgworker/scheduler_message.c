/*
 * scheduler_message.c
 *		Reading a message that waits on the ladder, building what is published
 *		for it (docs/protocol.md, section 8).
 *
 * Anybody can put a message into the control queue, so everything is checked.
 * A time that cannot be read is an error and never "due now".  What a hop
 * carries on is what was received, kind by kind, but for the broker's own notes
 * of where a message has been: with those on it, it would be taken for one that
 * goes round in circles.
 *
 * May depend on: scheduler_message.h, src/wire_fields.h.
 */
#include "scheduler_message.h"

#define HEADER_MESSAGE_ID ACEMQ_RESERVED_PREFIX "id"

/* ---- reading ---- */

static const WireField *
find_header(const BrokerDelivery *delivery, const char *name)
{
	int len = (int) strlen(name);

	for (int i = 0; i < delivery->headers.count; i++)
	{
		const WireField *field = &delivery->headers.fields[i];

		if (field->name_len == len && memcmp(field->name, name, len) == 0)
			return field;
	}
	return NULL;
}

/* Some clients write every text as bytes. */
static bool
is_text(const WireField *field)
{
	return field != NULL && (field->kind == WIRE_STRING || field->kind == WIRE_BYTES);
}

/* Zero-terminated; NULL if it is no text, or none that a name or property can be. */
static char *
short_text(const WireField *field)
{
	char *text;

	if (!is_text(field) || field->value.string.len > ACEMQ_MAX_SHORTSTR)
		return NULL;
	if (field->value.string.len > 0 && memchr(field->value.string.data, '\0', field->value.string.len) != NULL)
		return NULL;
	text = palloc(field->value.string.len + 1);
	memcpy(text, field->value.string.data, field->value.string.len);
	text[field->value.string.len] = '\0';
	return text;
}

/* Nothing but digits. */
static bool
read_decimal(const char *digits, int len, int64 *value)
{
	int64 result = 0;

	if (len == 0)
		return false;
	for (int i = 0; i < len; i++)
	{
		int digit = digits[i] - '0';

		if (digit < 0 || digit > 9 || result > (PG_INT64_MAX - digit) / 10)
			return false;
		result = result * 10 + digit;
	}
	*value = result;
	return true;
}

static const char *
read_due_at(const WireField *field, int64 *due_at_ms)
{
	if (field == NULL)
		return LADDER_HEADER_DUE_AT " is missing";
	switch (field->kind)
	{
		case WIRE_INT8:
		case WIRE_UINT8:
		case WIRE_INT16:
		case WIRE_UINT16:
		case WIRE_INT32:
		case WIRE_UINT32:
		case WIRE_INT64:
			*due_at_ms = field->value.integer;
			break;
		case WIRE_UINT64:
			if (field->value.big_unsigned > (uint64) PG_INT64_MAX)
				return LADDER_HEADER_DUE_AT " is beyond 64 bits";
			*due_at_ms = (int64) field->value.big_unsigned;
			break;
		case WIRE_STRING:
		case WIRE_BYTES:
			if (!read_decimal(field->value.string.data, field->value.string.len, due_at_ms))
				return LADDER_HEADER_DUE_AT " is no whole number of 64 bits";
			break;
		default:
			return LADDER_HEADER_DUE_AT " is no whole number";
	}
	return *due_at_ms < 0 ? LADDER_HEADER_DUE_AT " is negative" : NULL;
}

static const char *
read_content_type(const WireField *field, const char **content_type)
{
	*content_type = LADDER_DEFAULT_CONTENT_TYPE;
	if (field == NULL || field->kind == WIRE_VOID || (is_text(field) && field->value.string.len == 0))
		return NULL;
	*content_type = short_text(field);
	return *content_type == NULL ? LADDER_HEADER_CONTENT_TYPE " is no text of up to 255 bytes" : NULL;
}

/* An id that no property can hold is as good as none. */
static const char *
read_message_id(const BrokerDelivery *delivery)
{
	const char *id = delivery->message_id;

	if (id == NULL || id[0] == '\0')
		id = short_text(find_header(delivery, HEADER_MESSAGE_ID));
	return id != NULL && id[0] != '\0' ? id : NULL;
}

const char *
waiting_message_read(const BrokerDelivery *delivery, WaitingMessage *waiting)
{
	const char *problem;

	waiting->exchange = short_text(find_header(delivery, LADDER_HEADER_EXCHANGE));
	if (waiting->exchange == NULL)
		return LADDER_HEADER_EXCHANGE " is missing, or no text of up to 255 bytes";
	waiting->routing_key = short_text(find_header(delivery, LADDER_HEADER_ROUTING_KEY));
	if (waiting->routing_key == NULL)
		return LADDER_HEADER_ROUTING_KEY " is missing, or no text of up to 255 bytes";
	if (waiting->exchange[0] == '\0' && waiting->routing_key[0] == '\0')
		return LADDER_HEADER_EXCHANGE " and " LADDER_HEADER_ROUTING_KEY " are both empty";
	problem = read_due_at(find_header(delivery, LADDER_HEADER_DUE_AT), &waiting->due_at_ms);
	if (problem == NULL)
		problem = read_content_type(find_header(delivery, LADDER_HEADER_CONTENT_TYPE), &waiting->content_type);
	waiting->message_id = read_message_id(delivery);
	return problem;
}

int64
waiting_message_left_ms(const WaitingMessage *waiting, int64 now_ms)
{
	return waiting->due_at_ms - Max(now_ms, 0);
}

/* ---- building ---- */

static bool
begins_with(const WireField *field, const char *prefix)
{
	int len = (int) strlen(prefix);

	return field->name_len >= len && memcmp(field->name, prefix, len) == 0;
}

static bool
is_called(const WireField *field, const char *name)
{
	return field->name_len == (int) strlen(name) && begins_with(field, name);
}

/*
 * What the broker writes on messages by itself, or routes by: with CC or BCC
 * each hop would put further copies wherever they say, on the ladder too.  The
 * names are case-sensitive, as all are.
 */
static bool
is_brokers_own(const WireField *field)
{
	return is_called(field, "CC") || is_called(field, "BCC") || is_called(field, "x-death") ||
	       is_called(field, "x-delivery-count") || begins_with(field, "x-first-death-") ||
	       begins_with(field, "x-last-death-");
}

static void
copy_headers(WireTable *headers, const BrokerDelivery *delivery, bool with_schedule)
{
	const WireTable *received = &delivery->headers;

	memset(headers, 0, sizeof(*headers));
	for (int i = 0; i < received->count; i++)
	{
		const WireField *field = &received->fields[i];

		if (is_brokers_own(field) || (!with_schedule && begins_with(field, LADDER_HEADER_PREFIX)))
			continue;
		wire_table_add(headers, field->name, field->name_len, field->kind)->value = field->value;
	}
}

/* No expiration: a rung has its own, and what is due has none. */
static void
fill_common(BrokerMessage *message, const WireTable *headers, const BrokerDelivery *delivery,
            const WaitingMessage *waiting)
{
	memset(message, 0, sizeof(*message));
	message->message_id = waiting->message_id;
	message->reply_to = delivery->reply_to;
	message->priority = delivery->priority;
	message->persistent = true;
	message->headers = headers;
	message->body = delivery->body;
	message->body_len = delivery->body_len;
}

void
waiting_message_hop(BrokerMessage *message, WireTable *headers, const BrokerDelivery *delivery,
                    const WaitingMessage *waiting, const LadderRung *rung)
{
	copy_headers(headers, delivery, true);
	fill_common(message, headers, delivery, waiting);
	message->exchange = LADDER_EXCHANGE;
	message->routing_key = rung->queue;
	message->content_type = LADDER_CONTENT_TYPE;
}

void
waiting_message_deliver(BrokerMessage *message, WireTable *headers, const BrokerDelivery *delivery,
                        const WaitingMessage *waiting)
{
	copy_headers(headers, delivery, false);
	fill_common(message, headers, delivery, waiting);
	message->exchange = waiting->exchange;
	message->routing_key = waiting->routing_key;
	message->content_type = waiting->content_type;
}
