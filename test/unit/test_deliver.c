/*
 * test_deliver.c
 *		Deliveries put together from frames, in the orders a broker keeps to and
 *		in the others.
 */
#include "check.h"
#include "script.h"

#define MAX_BODY 1000
#define BUDGET   20000

static void
begin(void)
{
	begin_with(MAX_BODY, BUDGET);
}

/* ---- what comes of it ---- */

static BrokerEvent
next_event(void)
{
	BrokerEvent event = {.kind = -1};

	(void) events_next(&conn->events, &event);
	return event;
}

static bool
nothing_more(void)
{
	BrokerEvent event;

	return !events_next(&conn->events, &event);
}

/* The next event is a delivery like this. */
static BrokerDelivery *
expect(BrokerDeliveryState state, Size body_len)
{
	BrokerEvent event = next_event();

	CHECK(event.kind == BROKER_EVENT_DELIVERY && event.channel == CHANNEL && event.delivery != NULL);
	if (event.delivery == NULL)
		return NULL;
	CHECK(event.delivery->state == state && event.delivery->body_len == body_len);
	CHECK((event.delivery->body != NULL) == (state == BROKER_DELIVERY_WHOLE));
	CHECK(body_is_right(event.delivery));
	return event.delivery;
}

static void
deliver(uint64 tag, Size body_len)
{
	(void) deliver_on(CHANNEL, tag);
	(void) header_on(CHANNEL, body_len);
	if (body_len > 0)
		body_on(CHANNEL, 0, body_len);
}

static Size
held(void)
{
	return conn->channels[CHANNEL].consuming.held;
}

/* ---- tests ---- */

static void
test_everything_is_copied(void)
{
	amqp_table_entry_t entries[] = {{amqp_cstring_bytes("k"), {.kind = AMQP_FIELD_KIND_I32, .value.i32 = -5}},
	                                {amqp_cstring_bytes("k"), {.kind = AMQP_FIELD_KIND_UTF8}}};
	amqp_basic_properties_t *properties;
	BrokerDelivery *delivery;

	begin();
	deliver_on(CHANNEL, 7)->redelivered = 1;
	properties = header_on(CHANNEL, 10);
	properties->_flags = AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_PRIORITY_FLAG |
	                     AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_HEADERS_FLAG;
	properties->content_type = amqp_cstring_bytes("text/plain");
	properties->message_id = amqp_empty_bytes;
	properties->reply_to = amqp_cstring_bytes("not flagged");
	properties->priority = 9;
	properties->delivery_mode = 2;
	properties->headers = (amqp_table_t){2, entries};
	body_on(CHANNEL, 0, 4);
	body_on(CHANNEL, 4, 0);
	body_on(CHANNEL, 4, 6);
	broker_pump(conn);
	memset(entries, 0, sizeof(entries));

	delivery = expect(BROKER_DELIVERY_WHOLE, 10);
	CHECK(strcmp(delivery->exchange, "some exchange") == 0 && strcmp(delivery->routing_key, "key") == 0);
	CHECK(strcmp(delivery->content_type, "text/plain") == 0 && strcmp(delivery->message_id, "") == 0);
	CHECK(delivery->reply_to == NULL && delivery->priority == 9 && delivery->persistent && delivery->redelivered);
	CHECK(delivery->headers.count == 2 && delivery->headers.fields[0].value.integer == -5);
	CHECK(delivery->headers.fields[1].kind == WIRE_STRING && delivery->headers.fields[1].name[0] == 'k');
	CHECK(held() == delivery->memory);
	broker_delivery_free(conn, delivery);
	CHECK(held() == 0);
	end();
}

static void
test_nothing_is_there(void)
{
	BrokerDelivery *delivery;

	begin();
	deliver(1, 0);
	broker_pump(conn);
	delivery = expect(BROKER_DELIVERY_WHOLE, 0);
	CHECK(delivery->headers.count == 0 && delivery->content_type == NULL && delivery->message_id == NULL);
	CHECK(delivery->priority == -1 && !delivery->persistent && !delivery->redelivered);
	CHECK(nothing_more() && !conn->lost);
	end();
}

static void
test_interleaved_with_other_channels(void)
{
	begin();
	(void) deliver_on(CHANNEL, 1);
	(void) push_method(BROKER_CHANNEL_MAIN, AMQP_BASIC_ACK_METHOD, sizeof(amqp_basic_ack_t));
	(void) push_method(0, AMQP_CONNECTION_BLOCKED_METHOD, sizeof(amqp_connection_blocked_t));
	(void) header_on(CHANNEL, 5);
	broker_pump(conn);
	CHECK(next_event().kind == BROKER_EVENT_BLOCKED && nothing_more());
	body_on(CHANNEL, 0, 5);
	deliver(2, 3);
	broker_pump(conn);
	(void) expect(BROKER_DELIVERY_WHOLE, 5);
	(void) expect(BROKER_DELIVERY_WHOLE, 3);
	end();
}

static void
test_too_long(void)
{
	BrokerDelivery *delivery;

	begin();
	deliver(1, MAX_BODY);
	(void) deliver_on(CHANNEL, 2);
	(void) header_on(CHANNEL, MAX_BODY + 1);
	body_on(CHANNEL, 0, MAX_BODY);
	body_on(CHANNEL, MAX_BODY, 1);

	/* What it claims is not believed. */
	(void) deliver_on(CHANNEL, 3);
	(void) header_on(CHANNEL, UINT64_MAX);
	body_on(CHANNEL, 0, MAX_BODY);
	broker_pump(conn);
	(void) expect(BROKER_DELIVERY_WHOLE, MAX_BODY);
	delivery = expect(BROKER_DELIVERY_TOO_LONG, 0);
	CHECK(strcmp(delivery->routing_key, "key") == 0);
	CHECK(nothing_more() && !conn->lost && held() < 4 * MAX_BODY + BUDGET);
	end();
}

static void
test_budget(void)
{
	BrokerDelivery *two[2];
	BrokerDelivery *refused;

	/* Room for two of them. */
	begin_with(MAX_BODY, 8000);
	deliver(1, MAX_BODY);
	deliver(2, MAX_BODY);
	deliver(3, MAX_BODY);
	broker_pump(conn);
	two[0] = expect(BROKER_DELIVERY_WHOLE, MAX_BODY);
	two[1] = expect(BROKER_DELIVERY_WHOLE, MAX_BODY);
	refused = expect(BROKER_DELIVERY_OVER_BUDGET, 0);
	CHECK(refused->headers.count == 0);
	broker_delivery_free(conn, two[0]);
	broker_delivery_free(conn, refused);
	deliver(4, MAX_BODY);
	broker_pump(conn);
	broker_delivery_free(conn, expect(BROKER_DELIVERY_WHOLE, MAX_BODY));

	/* Also what is left of an earlier opening of the channel counts. */
	close_channel(CHANNEL);
	broker_pump(conn);
	CHECK(next_event().kind == BROKER_EVENT_CHANNEL_CLOSED && held() == two[1]->memory);
	broker_delivery_free(conn, two[1]);
	CHECK(held() == 0);
	end();
}

static void
test_budget_of_one(void)
{
	amqp_field_value_t voids[500] = {{0}};
	amqp_table_entry_t entry = {amqp_cstring_bytes("list"), {.kind = AMQP_FIELD_KIND_ARRAY}};
	amqp_basic_properties_t *properties;
	BrokerDelivery *delivery;

	for (int i = 0; i < (int) lengthof(voids); i++)
		voids[i].kind = AMQP_FIELD_KIND_VOID;
	entry.value.value.array = (amqp_array_t){lengthof(voids), voids};

	/* Headers count with the memory they take; one alone is let in, whatever the budget. */
	begin_with(MAX_BODY, 1);
	for (int i = 0; i < 2; i++)
	{
		(void) deliver_on(CHANNEL, i + 1);
		properties = header_on(CHANNEL, 0);
		properties->_flags = AMQP_BASIC_HEADERS_FLAG;
		properties->headers = (amqp_table_t){1, &entry};
	}
	broker_pump(conn);
	delivery = expect(BROKER_DELIVERY_WHOLE, 0);
	CHECK(delivery->headers.fields[0].value.list.count == 500 && delivery->memory > 500 * sizeof(WireField));
	CHECK(expect(BROKER_DELIVERY_OVER_BUDGET, 0)->headers.count == 0);
	end();
}

static void
test_out_of_memory(void)
{
	begin();
	deliver(1, 10);
	deliver(2, 10);
	standin_fail_after(0);
	broker_pump(conn);
	standin_fail_after(-1);
	(void) expect(BROKER_DELIVERY_OVER_BUDGET, 0);
	(void) expect(BROKER_DELIVERY_WHOLE, 10);
	end();
}

static void
test_nested_too_deeply(void)
{
	amqp_field_value_t levels[ACEMQ_MAX_HEADER_DEPTH + 1] = {{0}};
	amqp_table_entry_t entry = {amqp_cstring_bytes("deep"), {0}};
	amqp_basic_properties_t *properties;
	BrokerDelivery *delivery;

	for (int i = 0; i < (int) lengthof(levels); i++)
	{
		levels[i].kind = AMQP_FIELD_KIND_ARRAY;
		if (i + 1 < (int) lengthof(levels))
			levels[i].value.array = (amqp_array_t){1, &levels[i + 1]};
	}
	for (int i = 0; i < 2; i++)
	{
		begin();
		entry.value = levels[i];
		(void) deliver_on(CHANNEL, 1);
		properties = header_on(CHANNEL, 5);
		properties->_flags = AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_MESSAGE_ID_FLAG;
		properties->message_id = amqp_cstring_bytes("id");
		properties->headers = (amqp_table_t){1, &entry};
		body_on(CHANNEL, 0, 5);
		deliver(2, 1);
		broker_pump(conn);
		delivery = i == 0 ? expect(BROKER_DELIVERY_UNREADABLE, 0) : expect(BROKER_DELIVERY_WHOLE, 5);
		CHECK(delivery->headers.count == i && strcmp(delivery->message_id, "id") == 0);
		(void) expect(BROKER_DELIVERY_WHOLE, 1);
		end();
	}
}

/* The frames pushed since begin() lose the connection, with nothing handed out before that. */
static void
expect_loss(const char *what)
{
	broker_pump(conn);
	CHECK_CASE(conn->lost, what);
	CHECK_CASE(next_event().kind == BROKER_EVENT_LOST && nothing_more(), what);
	end();
}

static void
test_wrong_orders(void)
{
	begin();
	(void) header_on(CHANNEL, 5);
	expect_loss("header without deliver");
	begin();
	body_on(CHANNEL, 0, 5);
	expect_loss("body without anything");
	begin();
	(void) deliver_on(CHANNEL, 1);
	body_on(CHANNEL, 0, 5);
	expect_loss("body without header");
	begin();
	(void) deliver_on(CHANNEL, 1);
	(void) deliver_on(CHANNEL, 2);
	expect_loss("two delivers");
	begin();
	(void) deliver_on(CHANNEL, 1);
	(void) header_on(CHANNEL, 5);
	body_on(CHANNEL, 0, 3);
	(void) deliver_on(CHANNEL, 2);
	expect_loss("deliver in a body");
	begin();
	(void) deliver_on(CHANNEL, 1);
	(void) header_on(CHANNEL, 5);
	(void) header_on(CHANNEL, 5);
	expect_loss("two headers");
	begin();
	(void) deliver_on(CHANNEL, 1);
	(void) header_on(CHANNEL, 5);
	body_on(CHANNEL, 0, 6);
	expect_loss("body longer than announced");
	begin();
	(void) deliver_on(CHANNEL, 1);
	(void) header_on(CHANNEL, MAX_BODY + 1);
	body_on(CHANNEL, 0, MAX_BODY + 2);
	expect_loss("body longer than announced, and not kept");
	begin();
	(void) deliver_on(CHANNEL, 1);
	(void) header_on(CHANNEL, 5);
	script[steps - 1].frame.payload.properties.class_id = AMQP_TX_CLASS;
	expect_loss("header of another class");
	begin();
	(void) deliver_on(BROKER_CHANNEL_MAIN, 1);
	expect_loss("deliver where nobody consumes");
	begin();
	(void) deliver_on(CHANNEL, UINT64_MAX);
	expect_loss("a tag beyond all that will ever come");
}

static void
test_body_after_the_end(void)
{
	begin();
	deliver(1, 5);
	body_on(CHANNEL, 5, 1);
	broker_pump(conn);
	(void) expect(BROKER_DELIVERY_WHOLE, 5);
	CHECK(next_event().kind == BROKER_EVENT_LOST);
	end();
}

/* Settling goes to the broker only while the channel is the one the delivery came on. */
static void
test_channel_closed_in_the_middle(void)
{
	BrokerConsumer consumer = {.queue = "q", .tag = "t", .max_body = MAX_BODY, .body_budget = BUDGET};
	BrokerDelivery *old;
	BrokerDelivery *new;
	BrokerDenial denial;

	begin();
	deliver(1, 5);
	broker_pump(conn);
	old = expect(BROKER_DELIVERY_WHOLE, 5);
	CHECK(broker_ack(conn, CHANNEL, old->tag) && nsent == 1 && sent_tag == 1);
	for (int cut = 1; cut <= 3; cut++)
	{
		(void) deliver_on(CHANNEL, 2);
		if (cut > 1)
			(void) header_on(CHANNEL, 5);
		if (cut > 2)
			body_on(CHANNEL, 0, 2);
		close_channel(CHANNEL);
		body_on(CHANNEL, 2, 3);
		(void) header_on(CHANNEL, 2);
		(void) deliver_on(CHANNEL, 3);
		broker_pump(conn);
		CHECK(next_event().kind == BROKER_EVENT_CHANNEL_CLOSED && nothing_more() && !conn->lost);
		CHECK(held() == old->memory);
		CHECK(broker_ack(conn, CHANNEL, old->tag) && sent_methods[nsent - 1] == (int) AMQP_CHANNEL_CLOSE_OK_METHOD);
		CHECK(broker_open_channel(conn, CHANNEL));
		CHECK(broker_consume(conn, CHANNEL, &consumer, &denial) == BROKER_DONE);
	}

	deliver(1, 5);
	broker_pump(conn);
	new = expect(BROKER_DELIVERY_WHOLE, 5);
	nsent = 0;
	CHECK(broker_ack(conn, CHANNEL, old->tag) && broker_reject(conn, CHANNEL, old->tag, true) && nsent == 0);
	CHECK(broker_ack(conn, BROKER_CHANNEL_MAIN, new->tag) && broker_ack(conn, 99, new->tag) && nsent == 0);
	CHECK(broker_reject(conn, CHANNEL, new->tag, true) && nsent == 1 && sent_tag == 1);
	conn->lost = true;
	CHECK(!broker_ack(conn, CHANNEL, new->tag) && nsent == 1);
	end();
}

static void
test_cancelled_by_the_broker(void)
{
	for (int nowait = 0; nowait <= 1; nowait++)
	{
		amqp_basic_cancel_t *method;

		begin();
		method = push_method(CHANNEL, AMQP_BASIC_CANCEL_METHOD, sizeof(*method));
		method->nowait = nowait;
		(void) push_method(CHANNEL, AMQP_BASIC_RECOVER_OK_METHOD, sizeof(amqp_basic_recover_ok_t));
		deliver(1, 1);
		broker_pump(conn);
		CHECK(next_event().kind == BROKER_EVENT_CONSUMER_CANCELLED);
		CHECK(nsent == 1 - nowait && (nowait || sent_methods[0] == (int) AMQP_BASIC_CANCEL_OK_METHOD));
		(void) expect(BROKER_DELIVERY_WHOLE, 1);
		CHECK(nothing_more() && !conn->lost);
		end();
	}
}

/* A header the library does not take: the message is given another chance, and then rejected. */
static void
test_unreadable_for_the_library(void)
{
	for (int redelivered = 0; redelivered <= 1; redelivered++)
	{
		begin();
		deliver_on(CHANNEL, 9)->redelivered = redelivered;
		push(AMQP_FRAME_HEADER, CHANNEL, 0)->status = AMQP_STATUS_BAD_AMQP_DATA;
		broker_pump(conn);
		CHECK(nsent == redelivered && (!redelivered || sent_tag == 9));
		if (redelivered)
			(void) expect(BROKER_DELIVERY_UNREADABLE, 0);
		CHECK(next_event().kind == BROKER_EVENT_LOST && nothing_more());
		end();
	}
}

int
main(void)
{
	RUN(test_everything_is_copied());
	RUN(test_nothing_is_there());
	RUN(test_interleaved_with_other_channels());
	RUN(test_too_long());
	RUN(test_budget());
	RUN(test_budget_of_one());
	RUN(test_out_of_memory());
	RUN(test_nested_too_deeply());
	RUN(test_wrong_orders());
	RUN(test_body_after_the_end());
	RUN(test_channel_closed_in_the_middle());
	RUN(test_cancelled_by_the_broker());
	RUN(test_unreadable_for_the_library());
	return check_report();
}
