/*
 * test_scheduler_message.c
 *		What a waiting message says of itself, and what is published for it.
 */
#include "../../bgworker/scheduler_message.h"

#include "check.h"

#define NOW INT64_C(1700000000000)

static void
put_text(WireTable *headers, const char *name, WireKind kind, const char *data, int len)
{
	WireField *field = wire_table_add(headers, name, (int) strlen(name), kind);

	field->value.string.data = data;
	field->value.string.len = len;
}

static BrokerDelivery
delivery_with(WireTable headers)
{
	BrokerDelivery delivery = {.priority = -1, .message_id = "id-1", .headers = headers, .body = "body", .body_len = 4};

	return delivery;
}

/* The four of them, the time as an int64. */
static WireTable
good_headers(void)
{
	WireTable headers = {0};

	wire_table_add_string(&headers, "x-schedule-exchange", "orders");
	wire_table_add_string(&headers, "x-schedule-routing-key", "order.placed");
	wire_table_add_int(&headers, "x-schedule-due-at", WIRE_INT64, NOW);
	wire_table_add_string(&headers, "x-schedule-content-type", "text/plain");
	return headers;
}

static WireField *
header(WireTable *headers, const char *name)
{
	for (int i = 0; i < headers->count; i++)
	{
		if (headers->fields[i].name_len == (int) strlen(name) &&
		    memcmp(headers->fields[i].name, name, strlen(name)) == 0)
			return &headers->fields[i];
	}
	return NULL;
}

static bool
is_malformed(WireTable headers)
{
	BrokerDelivery delivery = delivery_with(headers);
	WaitingMessage waiting;

	return waiting_message_read(&delivery, &waiting) != NULL;
}

static void
test_good(void)
{
	BrokerDelivery delivery = delivery_with(good_headers());
	WaitingMessage waiting;

	CHECK(waiting_message_read(&delivery, &waiting) == NULL);
	CHECK(strcmp(waiting.exchange, "orders") == 0 && strcmp(waiting.routing_key, "order.placed") == 0);
	CHECK(strcmp(waiting.content_type, "text/plain") == 0 && strcmp(waiting.message_id, "id-1") == 0);
	CHECK(waiting.due_at_ms == NOW);
	CHECK(waiting_message_left_ms(&waiting, NOW - 1500) == 1500);
	CHECK(waiting_message_left_ms(&waiting, NOW + 1500) == -1500);
	waiting.due_at_ms = INT64_MAX;
	CHECK(waiting_message_left_ms(&waiting, NOW) == INT64_MAX - NOW);
	CHECK(waiting_message_left_ms(&waiting, -NOW) == INT64_MAX);
}

static void
test_names(void)
{
	static char longest[257];
	const char *names[] = {"x-schedule-exchange", "x-schedule-routing-key"};
	WireTable headers;

	memset(longest, 'n', 256);
	for (int i = 0; i < 2; i++)
	{
		WireField *field;

		headers = good_headers();
		field = header(&headers, names[i]);
		field->kind = WIRE_BYTES;
		CHECK_CASE(!is_malformed(headers), names[i]);
		field->value.string.len = 0;
		CHECK_CASE(!is_malformed(headers), names[i]);
		field->value.string.data = longest;
		field->value.string.len = 255;
		CHECK_CASE(!is_malformed(headers), names[i]);
		field->value.string.len = 256;
		CHECK_CASE(is_malformed(headers), names[i]);
		field->value.string.data = "a\0b";
		field->value.string.len = 3;
		CHECK_CASE(is_malformed(headers), names[i]);
		field->kind = WIRE_VOID;
		CHECK_CASE(is_malformed(headers), names[i]);
		field->kind = WIRE_INT64;
		CHECK_CASE(is_malformed(headers), names[i]);
		field->kind = WIRE_STRING;
		field->value.string.len = 1;
		field->name = "X-SCHEDULE";
		field->name_len = (int) strlen(field->name);
		CHECK_CASE(is_malformed(headers), names[i]);
	}
	headers = good_headers();
	header(&headers, names[0])->value.string.len = 0;
	header(&headers, names[1])->value.string.len = 0;
	CHECK(is_malformed(headers));
	CHECK(is_malformed((WireTable){0}));
}

static void
test_content_type(void)
{
	static char longest[257];
	WireTable headers = good_headers();
	BrokerDelivery delivery;
	WaitingMessage waiting;
	WireField *field = header(&headers, "x-schedule-content-type");

	memset(longest, 'n', 256);
	field->value.string.data = longest;
	field->value.string.len = 256;
	CHECK(is_malformed(headers));
	field->value.string.len = 255;
	CHECK(!is_malformed(headers));
	field->kind = WIRE_INT64;
	CHECK(is_malformed(headers));

	field->kind = WIRE_STRING;
	for (int i = 0; i < 3; i++)
	{
		if (i == 0)
			field->value.string.len = 0;
		else if (i == 1)
			field->kind = WIRE_VOID;
		else
			headers.count--;
		delivery = delivery_with(headers);
		CHECK(waiting_message_read(&delivery, &waiting) == NULL);
		CHECK(strcmp(waiting.content_type, "application/json") == 0);
	}
}

/* -1: malformed. */
static int64
due_at(WireKind kind, int64 integer, uint64 big, const char *digits)
{
	WireTable headers = good_headers();
	WireField *field = header(&headers, "x-schedule-due-at");
	BrokerDelivery delivery;
	WaitingMessage waiting;

	field->kind = kind;
	if (digits != NULL)
	{
		field->value.string.data = digits;
		field->value.string.len = (int) strlen(digits);
	}
	else if (kind == WIRE_UINT64 || kind == WIRE_TIMESTAMP)
		field->value.big_unsigned = big;
	else
		field->value.integer = integer;
	delivery = delivery_with(headers);
	return waiting_message_read(&delivery, &waiting) == NULL ? waiting.due_at_ms : -1;
}

static void
test_due_at(void)
{
	const WireKind integers[] = {WIRE_INT8, WIRE_UINT8, WIRE_INT16, WIRE_UINT16, WIRE_INT32, WIRE_UINT32, WIRE_INT64};
	const WireKind others[] = {WIRE_DOUBLE, WIRE_FLOAT, WIRE_BOOL, WIRE_TIMESTAMP, WIRE_DECIMAL, WIRE_VOID};
	const char *not_numbers[] = {"",
	                             " 1",
	                             "1 ",
	                             "+1",
	                             "-1",
	                             "1.0",
	                             "1e3",
	                             "0x1",
	                             "9223372036854775808",
	                             "18446744073709551616",
	                             "99999999999999999999999999"};
	WireTable headers;

	for (int i = 0; i < (int) lengthof(integers); i++)
	{
		CHECK(due_at(integers[i], 100, 0, NULL) == 100);
		CHECK(due_at(integers[i], 0, 0, NULL) == 0);
		CHECK(due_at(integers[i], -1, 0, NULL) == -1);
	}
	CHECK(due_at(WIRE_INT64, INT64_MAX, 0, NULL) == INT64_MAX);
	CHECK(due_at(WIRE_INT64, INT64_MIN, 0, NULL) == -1);
	CHECK(due_at(WIRE_UINT64, 0, NOW, NULL) == NOW);
	CHECK(due_at(WIRE_UINT64, 0, INT64_MAX, NULL) == INT64_MAX);
	CHECK(due_at(WIRE_UINT64, 0, (uint64) INT64_MAX + 1, NULL) == -1);

	CHECK(due_at(WIRE_STRING, 0, 0, "1700000000000") == NOW);
	CHECK(due_at(WIRE_BYTES, 0, 0, "9223372036854775807") == INT64_MAX);
	CHECK(due_at(WIRE_STRING, 0, 0, "000000000000000000000000000017") == 17);
	for (int i = 0; i < (int) lengthof(not_numbers); i++)
		CHECK_CASE(due_at(WIRE_STRING, 0, 0, not_numbers[i]) == -1, not_numbers[i]);
	for (int i = 0; i < (int) lengthof(others); i++)
		CHECK(due_at(others[i], 1, 1, NULL) == -1);

	headers = good_headers();
	header(&headers, "x-schedule-due-at")->name_len--;
	CHECK(is_malformed(headers));
}

static void
test_message_id(void)
{
	WireTable headers = good_headers();
	BrokerDelivery delivery = delivery_with(headers);
	WaitingMessage waiting;

	delivery.message_id = NULL;
	CHECK(waiting_message_read(&delivery, &waiting) == NULL && waiting.message_id == NULL);
	wire_table_add_string(&headers, "x-acemq-id", "of-the-header");
	delivery = delivery_with(headers);
	CHECK(waiting_message_read(&delivery, &waiting) == NULL && strcmp(waiting.message_id, "id-1") == 0);
	delivery.message_id = "";
	CHECK(waiting_message_read(&delivery, &waiting) == NULL && strcmp(waiting.message_id, "of-the-header") == 0);
	header(&headers, "x-acemq-id")->value.string.len = 0;
	CHECK(waiting_message_read(&delivery, &waiting) == NULL && waiting.message_id == NULL);
	header(&headers, "x-acemq-id")->kind = WIRE_INT64;
	CHECK(waiting_message_read(&delivery, &waiting) == NULL && waiting.message_id == NULL);
}

/* Headers of every kind go on as they are; those that the broker or the scheduler wrote do not. */
static void
test_building(void)
{
	const char *notes[] = {"x-death", "x-delivery-count", "x-first-death-queue", "x-first-death-reason",
	                       "x-last-death-exchange"};
	const char *kept[] = {"X-Death", "x-deaths", "x-first-deat", "x-delivery-counts", "x-acemq-id", "trace"};
	WireTable received = good_headers();
	WireTable headers;
	BrokerDelivery delivery;
	WaitingMessage waiting;
	BrokerMessage message;
	WireField *field;

	for (int i = 0; i < (int) lengthof(notes); i++)
		put_text(&received, notes[i], WIRE_STRING, "x", 1);
	for (int i = 0; i < (int) lengthof(kept); i++)
		wire_table_add(&received, kept[i], (int) strlen(kept[i]), WIRE_UINT8)->value.integer = i;
	put_text(&received, "x-schedule-of-tomorrow", WIRE_BYTES, "\0\xff", 2);
	delivery = delivery_with(received);
	delivery.priority = 4;
	delivery.reply_to = "answers";
	CHECK(waiting_message_read(&delivery, &waiting) == NULL);

	waiting_message_hop(&message, &headers, &delivery, &waiting, ladder_detour());
	CHECK(strcmp(message.exchange, "acemq.schedule") == 0);
	CHECK(strcmp(message.routing_key, "acemq.schedule.10s") == 0);
	CHECK(strcmp(message.content_type, "application/octet-stream") == 0);
	CHECK(message.expiration == NULL && message.persistent && message.priority == 4);
	CHECK(strcmp(message.reply_to, "answers") == 0 && strcmp(message.message_id, "id-1") == 0);
	CHECK(message.body == delivery.body && message.body_len == 4 && message.headers == &headers);
	CHECK(headers.count == received.count - (int) lengthof(notes));
	field = header(&headers, "x-schedule-of-tomorrow");
	CHECK(field != NULL && field->kind == WIRE_BYTES && memcmp(field->value.string.data, "\0\xff", 2) == 0);
	CHECK(header(&headers, "x-schedule-due-at")->value.integer == NOW);

	waiting_message_deliver(&message, &headers, &delivery, &waiting);
	CHECK(strcmp(message.exchange, "orders") == 0 && strcmp(message.routing_key, "order.placed") == 0);
	CHECK(strcmp(message.content_type, "text/plain") == 0);
	CHECK(message.expiration == NULL && message.persistent && message.priority == 4);
	CHECK(headers.count == (int) lengthof(kept));
	for (int i = 0; i < (int) lengthof(kept); i++)
	{
		field = header(&headers, kept[i]);
		CHECK_CASE(field != NULL && field->kind == WIRE_UINT8 && field->value.integer == i, kept[i]);
	}
}

int
main(void)
{
	RUN(test_good());
	RUN(test_names());
	RUN(test_content_type());
	RUN(test_due_at());
	RUN(test_message_id());
	RUN(test_building());
	return check_report();
}
