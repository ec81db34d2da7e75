/*
 * test_deliver_random.c
 *		Frames of deliveries in orders that are right most of the time: whatever
 *		comes, memory is accounted for and a body that is handed out is whole.
 */
#include "check.h"
#include "script.h"

#define MAX_BODY 1000
#define BUDGET   20000

static Size offsets[BROKER_MAX_CHANNEL + 2];

static void
push_random(void)
{
	int channel = rand() % 8 != 0 ? CHANNEL : rand() % (BROKER_MAX_CHANNEL + 2);
	int dice = rand() % 40;

	if (dice < 12)
		(void) deliver_on(channel, rand() % 100);
	else if (dice < 24)
	{
		(void) header_on(channel, rand() % 10 != 0 ? rand() % 12 : rand() % (2 * MAX_BODY));
		offsets[channel] = 0;
	}
	else if (dice < 36)
	{
		Size len = rand() % 12;

		body_on(channel, offsets[channel], len);
		offsets[channel] += len;
	}
	else if (dice < 37)
		(void) push_method(channel, AMQP_BASIC_CANCEL_METHOD, sizeof(amqp_basic_cancel_t));
	else if (dice < 38)
		(void) push_method(channel, AMQP_BASIC_RETURN_METHOD, sizeof(amqp_basic_return_t));
	else if (dice < 39)
		(void) push_method(channel, AMQP_BASIC_ACK_METHOD, sizeof(amqp_basic_ack_t));
	else
		close_channel(channel);
}

/* As a broker would, most of the time: enough of it has to be right to get anywhere. */
static void
push_likely(void)
{
	Size len = rand() % 20;

	(void) deliver_on(CHANNEL, 1 + rand() % 100);
	if (rand() % 30 == 0)
		push_random();
	(void) header_on(CHANNEL, len);
	offsets[CHANNEL] = 0;
	if (rand() % 30 == 0)
		push_random();
	for (Size offset = 0; offset < len;)
	{
		Size part = Min(len - offset, 1 + rand() % 10);

		body_on(CHANNEL, offsets[CHANNEL], part);
		offsets[CHANNEL] += part;
		offset += part;
	}
}

static int
take_events(BrokerDelivery **kept, int *nkept)
{
	BrokerEvent event;
	int whole = 0;

	while (events_next(&conn->events, &event))
	{
		if (event.kind != BROKER_EVENT_DELIVERY)
			continue;
		CHECK(body_is_right(event.delivery) && event.delivery->body_len <= MAX_BODY);
		whole += event.delivery->state == BROKER_DELIVERY_WHOLE;
		if (*nkept < 20 && rand() % 2 == 0)
			kept[(*nkept)++] = event.delivery;
		else
			broker_delivery_free(conn, event.delivery);
	}
	return whole;
}

static void
test_random(unsigned seed)
{
	int whole = 0;

	srand(seed);
	for (int round = 0; round < 2000; round++)
	{
		BrokerConsumer consumer = {.queue = "q", .tag = "t", .max_body = MAX_BODY, .body_budget = BUDGET};
		BrokerDelivery *kept[20];
		BrokerDenial denial;
		int nkept = 0;

		begin_with(MAX_BODY, BUDGET);
		for (int turn = 0; turn < 30 && !conn->lost; turn++)
		{
			steps = next_step = 0;
			if (rand() % 40 == 0)
				push_random();
			push_likely();
			broker_pump(conn);
			whole += take_events(kept, &nkept);
			if (!conn->lost && !broker_channel_is_open(conn, CHANNEL) && broker_open_channel(conn, CHANNEL))
				(void) broker_consume(conn, CHANNEL, &consumer, &denial);
		}
		for (int i = 0; i < nkept; i++)
			broker_delivery_free(conn, kept[i]);
		if (conn->channels[CHANNEL].consuming.step == DELIVERY_NONE)
			CHECK(conn->channels[CHANNEL].consuming.held == 0);
		end();
	}
	CHECK(whole > 2000);
}

int
main(void)
{
	for (unsigned seed = 1; seed <= 3; seed++)
		RUN(test_random(seed));
	return check_report();
}
