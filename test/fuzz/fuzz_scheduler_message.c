/*
 * fuzz_scheduler_message.c
 *		A message in the control queue, which anybody can put there: what is
 *		published for it can be sent.
 */
#include "table.h"

#include "amqp/message.h"
#include "scheduler_message.h"

#define FRAME_MAX RABBIT_FRAME_MAX

static uint8 buffer[SHORT_MESSAGE_MAX];

static bool
has_header(const WireTable *headers, const char *prefix)
{
	for (int i = 0; i < headers->count; i++)
	{
		if (headers->fields[i].name_len >= (int) strlen(prefix) &&
		    memcmp(headers->fields[i].name, prefix, strlen(prefix)) == 0)
			return true;
	}
	return false;
}

static void
check_sendable(const BrokerMessage *message)
{
	amqp_basic_properties_t properties;
	Size size;

	MUST(strlen(message->exchange) <= ACEMQ_MAX_SHORTSTR && strlen(message->routing_key) <= ACEMQ_MAX_SHORTSTR);
	MUST(message->content_type == NULL || strlen(message->content_type) <= ACEMQ_MAX_SHORTSTR);
	MUST(strlen(message->message_id) <= ACEMQ_MAX_SHORTSTR);
	MUST(message->exchange[0] != '\0' || message->routing_key[0] != '\0');
	MUST(!has_header(message->headers, "x-first-death-") && !has_header(message->headers, "x-last-death-"));
	if (wire_headers_problem(message->headers) != NULL)
		return; /* refused before a byte is sent */
	properties = message_properties(message);
	size = message_properties_size(message);
	if (message_is_short(message, size, FRAME_MAX))
	{
		int len = message_encode_short(buffer, BROKER_CHANNEL_CONSUME, message, &properties);

		MUST(len > 0 && (Size) len <= MESSAGE_OVERHEAD + size + message->body_len);
	}
}

static void
check_delivery(const BrokerDelivery *delivery, int64 now)
{
	WaitingMessage waiting;
	const LadderRung *rung;

	if (waiting_message_read(delivery, &waiting) != NULL)
		return;
	MUST(waiting.due_at_ms >= 0 && waiting.content_type != NULL);
	rung = ladder_rung_for(waiting_message_left_ms(&waiting, now));
	for (int i = 0; i < 2; i++)
	{
		BrokerMessage message = {0};
		WireTable headers = {0};

		if (i == 0)
			waiting_message_hop(&message, &headers, delivery, &waiting, rung != NULL ? rung : ladder_detour());
		else
			waiting_message_deliver(&message, &headers, delivery, &waiting);
		MUST(i == 0 || !has_header(&headers, LADDER_HEADER_PREFIX));
		if (message.message_id == NULL)
			message.message_id = "made";
		check_sendable(&message);
	}
}

void
fuzz_one(Input *input)
{
	BrokerDelivery delivery = {.state = BROKER_DELIVERY_WHOLE, .priority = -1};
	uint8 flags = input_byte(input);
	int64 now = (int64) input_byte(input) << (input_byte(input) % 56);
	amqp_pool_t pool;
	amqp_table_t native;
	bool is_read;
	Size len;
	char *bytes;

	delivery.exchange = delivery.routing_key = "";
	/* As a short string of the wire, so never longer than one can be. */
	delivery.content_type = (flags & 1) != 0 ? input_text(input, input_byte(input)) : NULL;
	delivery.message_id = (flags & 2) != 0 ? input_text(input, input_byte(input)) : NULL;
	delivery.reply_to = (flags & 4) != 0 ? input_text(input, input_byte(input)) : NULL;
	if ((flags & 8) != 0)
		delivery.priority = input_byte(input);
	delivery.persistent = (flags & 16) != 0;
	delivery.body = input_bytes(input, input_byte(input), &delivery.body_len);
	bytes = input_bytes(input, input->left, &len);

	init_amqp_pool(&pool, 4096);
	is_read = table_decode(bytes, len, &pool, &native) && wire_headers_read(&native, &delivery.headers);
	empty_amqp_pool(&pool);
	if (is_read)
		check_delivery(&delivery, now);
}
