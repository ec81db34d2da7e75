/*
 * fuzz_frames.c
 *		Frames on a connection that publishes and consumes: right ones, with
 *		anything in them, and bytes that are none.
 *
 * The input is a row of steps.  Whatever comes, every publish has one outcome at
 * most, what is delivered keeps to the limits, and nothing happens after the loss.
 */
#include "peer.h"

#define MAX_BODY   300
#define BUDGET     (64 * 1024)
#define MOST_HELD  32
#define MOST_STEPS 300

static BrokerConn *conn;
static int asked_on; /* channel of the pending request; 0: none */
static BrokerDelivery *held[MOST_HELD];
static int nheld;
static uint64 published;
static uint64 settled;
static bool seen[MOST_STEPS + 1];
static bool lost;

/* In place of the real one: we are in at once, and requests whose answer is not there yet fail. */
bool
broker_login(BrokerConn *c, const BrokerEndpoint *endpoint, const BrokerOptions *options, BrokerError *error)
{
	struct timeval at_once = {0, 1};

	return amqp_set_rpc_timeout(c->rabbit, &at_once) == AMQP_STATUS_OK;
}

/* ---- what comes out ---- */

static void
take_delivery(BrokerDelivery *delivery)
{
	bool whole = delivery->state == BROKER_DELIVERY_WHOLE;

	MUST(whole == (delivery->body != NULL));
	MUST(!whole || delivery->body_len <= MAX_BODY);
	MUST(delivery->exchange != NULL && delivery->routing_key != NULL);
	if (nheld < MOST_HELD)
		held[nheld++] = delivery;
	else
		broker_delivery_free(conn, delivery);
}

static void
take_events(void)
{
	BrokerEvent event;

	while (broker_next_event(conn, &event))
	{
		MUST(!lost);
		MUST(event.text == NULL || strlen(event.text) < ACEMQ_ERROR_TEXT);
		switch (event.kind)
		{
			case BROKER_EVENT_CONFIRMED:
			case BROKER_EVENT_NACKED:
			case BROKER_EVENT_RETURNED:
			case BROKER_EVENT_UNSETTLED:
				MUST(event.token >= 1 && event.token <= published && !seen[event.token]);
				seen[event.token] = true;
				settled++;
				break;
			case BROKER_EVENT_DELIVERY:
				take_delivery(event.delivery);
				break;
			case BROKER_EVENT_LOST:
				lost = true;
				break;
			default:
				break;
		}
	}
	MUST(lost == broker_is_lost(conn));
}

/* ---- steps ---- */

static int
some_channel(Input *input)
{
	static const int likely[] = {BROKER_CHANNEL_CONSUME, BROKER_CHANNEL_MAIN,  BROKER_CHANNEL_CONSUME,
	                             BROKER_CHANNEL_MAIN,    BROKER_CHANNEL_PROBE, 0};
	uint8 which = input_byte(input);

	return which < 240 ? likely[which % lengthof(likely)] : which - 240;
}

static amqp_bytes_t
some_bytes(Input *input)
{
	Size len;
	char *bytes = input_bytes(input, input_byte(input), &len);

	return (amqp_bytes_t){len, bytes};
}

static void
say_frame(Input *input)
{
	static const int types[] = {AMQP_FRAME_METHOD, AMQP_FRAME_HEADER, AMQP_FRAME_BODY, AMQP_FRAME_HEARTBEAT};
	uint8 type = input_byte(input);
	int channel = some_channel(input);
	amqp_bytes_t payload = some_bytes(input);

	peer_frame(type < 252 ? types[type % lengthof(types)] : type, channel, payload.bytes, payload.len);
}

static void
publish(Input *input)
{
	char id[20];
	BrokerError error;
	WireTable headers = {0};
	Size body_len;
	char *body = input_bytes(input, input_byte(input), &body_len);
	int channel = (input_byte(input) & 1) != 0 ? BROKER_CHANNEL_MAIN : BROKER_CHANNEL_PROBE;
	BrokerMessage message = {
	    .exchange = "e", .routing_key = "k", .message_id = id, .priority = -1, .headers = &headers};
	BrokerPublish outcome;

	snprintf(id, sizeof(id), "m%d", (int) (published + 1));
	message.body = body;
	message.body_len = body_len;
	outcome = broker_publish(conn, channel, &message, published + 1, &error);
	/* A token that was not sent may be used again, as the relay does. */
	if (outcome == BROKER_SENT)
		published++;
	else if (outcome == BROKER_LOST)
		MUST(broker_is_lost(conn));
}

static void
say_confirm(Input *input)
{
	uint8 how = input_byte(input);
	uint64 tag = how < 250 ? input_byte(input) : UINT64_MAX - input_byte(input);
	amqp_basic_ack_t ack = {.delivery_tag = tag, .multiple = how & 1};
	amqp_basic_nack_t nack = {.delivery_tag = tag, .multiple = how & 1};
	int channel = (how & 4) != 0 ? BROKER_CHANNEL_PROBE : BROKER_CHANNEL_MAIN;

	if ((how & 2) != 0)
		peer_method(channel, AMQP_BASIC_NACK_METHOD, &nack);
	else
		peer_method(channel, AMQP_BASIC_ACK_METHOD, &ack);
}

/* Header and body of a message; often, but not always, as long as it was said to be. */
static void
say_content(Input *input, int channel, const char *id)
{
	uint8 how = input_byte(input);
	amqp_bytes_t body = some_bytes(input);
	amqp_basic_properties_t properties = {0};

	if (id != NULL || (how & 1) != 0)
	{
		properties._flags |= AMQP_BASIC_MESSAGE_ID_FLAG;
		properties.message_id = id != NULL ? amqp_cstring_bytes(id) : some_bytes(input);
	}
	if ((how & 2) != 0)
	{
		properties._flags |= AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_REPLY_TO_FLAG | AMQP_BASIC_PRIORITY_FLAG;
		properties.content_type = some_bytes(input);
		properties.reply_to = properties.content_type;
		properties.priority = 3;
	}
	if ((how & 12) == 12)
		body.len = MAX_BODY + how; /* more is said than comes */
	peer_header(channel, body.len, &properties);
	if ((how & 12) == 12 || body.len == 0)
		return;
	for (Size offset = 0, part; offset < body.len; offset += part)
	{
		part = (how & 16) != 0 ? Min(body.len - offset, 7) : body.len;
		peer_frame(AMQP_FRAME_BODY, channel, (char *) body.bytes + offset, part);
	}
}

static void
say_return(Input *input)
{
	char id[20];
	int channel = (input_byte(input) & 1) != 0 ? BROKER_CHANNEL_PROBE : BROKER_CHANNEL_MAIN;
	amqp_basic_return_t method = {.reply_code = 312,
	                              .reply_text = amqp_cstring_bytes("NO_ROUTE"),
	                              .exchange = amqp_cstring_bytes("e"),
	                              .routing_key = amqp_cstring_bytes("k")};

	snprintf(id, sizeof(id), "m%d", (int) input_byte(input));
	peer_method(channel, AMQP_BASIC_RETURN_METHOD, &method);
	say_content(input, channel, id);
}

static void
say_delivery(Input *input)
{
	amqp_basic_deliver_t method = {.consumer_tag = amqp_cstring_bytes("t"),
	                               .delivery_tag = input_byte(input),
	                               .exchange = some_bytes(input),
	                               .routing_key = amqp_cstring_bytes("k")};

	peer_method(BROKER_CHANNEL_CONSUME, AMQP_BASIC_DELIVER_METHOD, &method);
	say_content(input, BROKER_CHANNEL_CONSUME, NULL);
}

static void
say_end(Input *input)
{
	uint8 how = input_byte(input);
	int channel = some_channel(input);
	amqp_channel_close_t close_channel = {.reply_code = 404, .reply_text = some_bytes(input)};
	amqp_connection_close_t close_connection = {.reply_code = 320, .reply_text = close_channel.reply_text};
	amqp_connection_blocked_t blocked = {.reason = close_channel.reply_text};
	amqp_connection_unblocked_t unblocked = {0};
	amqp_basic_cancel_t cancel = {.consumer_tag = amqp_cstring_bytes("t"), .nowait = how & 1};

	switch (how % 8)
	{
		case 0:
		case 1:
			peer_method(channel, AMQP_CHANNEL_CLOSE_METHOD, &close_channel);
			break;
		case 2:
			peer_method(0, AMQP_CONNECTION_CLOSE_METHOD, &close_connection);
			break;
		case 3:
			peer_method(0, AMQP_CONNECTION_BLOCKED_METHOD, &blocked);
			break;
		case 4:
		case 5:
			peer_method(0, AMQP_CONNECTION_UNBLOCKED_METHOD, &unblocked);
			break;
		default:
			peer_method(BROKER_CHANNEL_CONSUME, AMQP_BASIC_CANCEL_METHOD, &cancel);
	}
}

static void
settle_delivery(Input *input)
{
	uint8 how = input_byte(input);
	BrokerDelivery *delivery;

	if (nheld == 0)
		return;
	delivery = held[--nheld];
	if ((how & 1) != 0)
		(void) broker_ack(conn, delivery->channel, delivery->tag);
	else
		(void) broker_reject(conn, delivery->channel, delivery->tag, (how & 2) != 0);
	broker_delivery_free(conn, delivery);
}

static void
answer_opening(int channel)
{
	amqp_channel_open_ok_t open = {.channel_id = amqp_empty_bytes};
	amqp_confirm_select_ok_t select = {0};

	peer_method(channel, AMQP_CHANNEL_OPEN_OK_METHOD, &open);
	peer_method(channel, AMQP_CONFIRM_SELECT_OK_METHOD, &select);
}

/* As broker_consume() leaves it: its second answer would have to come while it waits. */
static void
consume(void)
{
	Consumption *consuming = &conn->channels[BROKER_CHANNEL_CONSUME].consuming;

	consuming->max_body = MAX_BODY;
	consuming->budget = BUDGET;
	consuming->started = true;
}

/* Asking, with the answer there or not, right or not. */
static void
ask(Input *input)
{
	uint8 how = input_byte(input);
	uint32 consumers;
	uint32 messages;
	BrokerDenial denial;
	int channel = (how & 1) != 0 ? BROKER_CHANNEL_CONSUME : BROKER_CHANNEL_MAIN;
	amqp_queue_declare_ok_t found = {.queue = some_bytes(input)};

	if ((how & 6) == 0 || !broker_channel_is_open(conn, channel))
	{
		if ((how & 8) != 0)
			answer_opening(channel);
		(void) broker_open_channel(conn, channel);
		return;
	}
	if ((how & 6) == 2 && channel == BROKER_CHANNEL_CONSUME)
	{
		consume();
		return;
	}
	/* One at a time: the first one's answer is asked for until it is there. */
	if (asked_on != 0)
		channel = asked_on;
	if ((how & 8) != 0)
		peer_method(channel, AMQP_QUEUE_DECLARE_OK_METHOD, &found);
	asked_on = channel;
	if (broker_inspect_queue(conn, channel, "q", &consumers, &messages, &denial) != BROKER_PENDING)
		asked_on = 0;
}

static void
step(Input *input)
{
	uint8 which = input_byte(input);
	amqp_bytes_t raw;

	switch (which % 12)
	{
		case 0:
			raw = some_bytes(input);
			peer_say(raw.bytes, raw.len);
			break;
		case 1:
			say_frame(input);
			break;
		case 2:
		case 3:
			publish(input);
			break;
		case 4:
			say_confirm(input);
			break;
		case 5:
			say_return(input);
			break;
		case 6:
		case 7:
			say_delivery(input);
			break;
		case 8:
			say_end(input);
			break;
		case 9:
			settle_delivery(input);
			break;
		case 10:
			ask(input);
			break;
		default:
			broker_pump(conn);
	}
	take_events();
}

void
fuzz_one(Input *input)
{
	BrokerError error = {0};

	nheld = 0;
	published = settled = 0;
	lost = false;
	memset(seen, 0, sizeof(seen));
	peer_greeting = NULL;
	conn = peer_connect(&error);
	asked_on = 0;
	MUST(conn != NULL);
	for (int i = 0; i < 3; i++)
	{
		static const int channels[] = {BROKER_CHANNEL_CONSUME, BROKER_CHANNEL_MAIN, BROKER_CHANNEL_PROBE};

		answer_opening(channels[i]);
		MUST(broker_open_channel(conn, channels[i]));
	}
	consume();

	for (int i = 0; i < MOST_STEPS && input->left > 0; i++)
		step(input);
	broker_pump(conn);
	take_events();
	MUST(settled + broker_in_flight(conn, BROKER_CHANNEL_MAIN) + broker_in_flight(conn, BROKER_CHANNEL_PROBE) ==
	         published ||
	     lost);

	while (nheld > 0)
		broker_delivery_free(conn, held[--nheld]);
	MUST(conn->channels[BROKER_CHANNEL_CONSUME].consuming.step != DELIVERY_NONE ||
	     conn->channels[BROKER_CHANNEL_CONSUME].consuming.held == 0);
	peer_end();
	broker_pump(conn);
	take_events();
	MUST(lost);
	broker_disconnect(conn, false);
}
