/*
 * deliver.c
 *		A message that the broker delivers, put together from its frames.
 *
 * What the header frame says of the length of the body is a claim: memory is
 * taken only within the consumer's limits, and a body that turns out longer
 * than it was said to be loses the connection.
 *
 * May depend on: conn_internal.h, wire_headers.h.
 */
#include "conn_internal.h"

#include "utils/memutils.h"
#include "wire_headers.h"

#define PERSISTENT 2

/* What a delivery takes besides its headers and its body, roughly. */
#define DELIVERY_OVERHEAD 2048

static Consumption *
consumption(BrokerConn *conn, int channel)
{
	return &conn_channel(conn, channel)->consuming;
}

/* Zero-terminated, in the current context.  A zero byte inside, which no AceMQ library writes, ends it. */
static char *
copy_text(amqp_bytes_t bytes)
{
	char *text = palloc(bytes.len + 1);

	if (bytes.len > 0)
		memcpy(text, bytes.bytes, bytes.len);
	text[bytes.len] = '\0';
	return text;
}

/* ---- method ---- */

static BrokerDelivery *
make_delivery(BrokerConn *conn, int channel, const amqp_basic_deliver_t *method)
{
	MemoryContext context = AllocSetContextCreate(conn->context, "acemq delivery", ALLOCSET_SMALL_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	BrokerDelivery *delivery = palloc0(sizeof(BrokerDelivery));

	delivery->context = context;
	delivery->memory = DELIVERY_OVERHEAD;
	delivery->channel = channel;
	delivery->tag = DELIVERY_TAG(conn->channels[channel].opening, method->delivery_tag);
	delivery->redelivered = method->redelivered;
	delivery->exchange = copy_text(method->exchange);
	delivery->routing_key = copy_text(method->routing_key);
	delivery->priority = -1;
	MemoryContextSwitchTo(caller);
	return delivery;
}

void
delivery_begin(BrokerConn *conn, int channel, const amqp_basic_deliver_t *method)
{
	BrokerChannel *ch = conn_channel(conn, channel);

	if (ch == NULL || !ch->open)
		return;
	if (!ch->consuming.started || method->delivery_tag > DELIVERY_TAG_MAX)
	{
		conn_lost(conn, "the broker delivered a message that nobody had asked for");
		return;
	}
	ch->consuming.delivery = make_delivery(conn, channel, method);
	ch->consuming.held += ch->consuming.delivery->memory;
	ch->consuming.step = DELIVERY_WANTS_HEADER;
}

/* ---- end ---- */

void
broker_delivery_free(BrokerConn *conn, BrokerDelivery *delivery)
{
	consumption(conn, delivery->channel)->held -= delivery->memory;
	MemoryContextDelete(delivery->context);
}

void
delivery_drop(BrokerConn *conn, int channel)
{
	Consumption *consuming = consumption(conn, channel);

	if (consuming->step != DELIVERY_NONE)
		broker_delivery_free(conn, consuming->delivery);
	consuming->delivery = NULL;
	consuming->step = DELIVERY_NONE;
}

/* There it is. */
static void
hand_over(BrokerConn *conn, int channel)
{
	Consumption *consuming = consumption(conn, channel);

	events_push(&conn->events, BROKER_EVENT_DELIVERY, channel, NULL)->delivery = consuming->delivery;
	consuming->delivery = NULL;
	consuming->step = DELIVERY_NONE;
}

/* ---- header ---- */

static void
copy_properties(BrokerDelivery *delivery, const amqp_basic_properties_t *properties)
{
	const amqp_flags_t flags = properties->_flags;

	if (flags & AMQP_BASIC_CONTENT_TYPE_FLAG)
		delivery->content_type = copy_text(properties->content_type);
	if (flags & AMQP_BASIC_MESSAGE_ID_FLAG)
		delivery->message_id = copy_text(properties->message_id);
	if (flags & AMQP_BASIC_REPLY_TO_FLAG)
		delivery->reply_to = copy_text(properties->reply_to);
	if (flags & AMQP_BASIC_PRIORITY_FLAG)
		delivery->priority = properties->priority;
	delivery->persistent = (flags & AMQP_BASIC_DELIVERY_MODE_FLAG) != 0 && properties->delivery_mode == PERSISTENT;
}

/* Set aside what headers and body take; one delivery may always be there, whatever it takes. */
static bool
within_budget(Consumption *consuming, Size memory)
{
	bool alone = consuming->held == consuming->delivery->memory;

	if (!alone && (consuming->held > consuming->budget || memory > consuming->budget - consuming->held))
		return false;
	consuming->delivery->memory += memory;
	consuming->held += memory;
	return true;
}

/* Decide what of headers and body is kept, and take the memory for it. */
static BrokerDeliveryState
take_in(Consumption *consuming, const amqp_table_t *headers, uint64 body_size)
{
	BrokerDelivery *delivery = consuming->delivery;
	bool keep_body = body_size <= consuming->max_body;
	Size headers_memory;
	char *body = NULL;

	if (!wire_headers_measure(headers, &headers_memory))
		return BROKER_DELIVERY_UNREADABLE;
	if (!within_budget(consuming, headers_memory + (keep_body ? (Size) body_size : 0)))
		return BROKER_DELIVERY_OVER_BUDGET;
	if (keep_body)
	{
		body = palloc_extended(Max(body_size, 1), MCXT_ALLOC_HUGE | MCXT_ALLOC_NO_OOM);
		if (body == NULL)
			return BROKER_DELIVERY_OVER_BUDGET;
	}
	delivery->body = body;
	wire_headers_read(headers, &delivery->headers);
	return keep_body ? BROKER_DELIVERY_WHOLE : BROKER_DELIVERY_TOO_LONG;
}

void
delivery_header(BrokerConn *conn, int channel, const amqp_frame_t *frame)
{
	static const amqp_table_t no_headers = {0, NULL};
	const amqp_basic_properties_t *properties = frame->payload.properties.decoded;
	bool has_headers = (properties->_flags & AMQP_BASIC_HEADERS_FLAG) != 0;
	Consumption *consuming = consumption(conn, channel);
	MemoryContext caller = MemoryContextSwitchTo(consuming->delivery->context);

	copy_properties(consuming->delivery, properties);
	consuming->body_left = frame->payload.properties.body_size;
	consuming->delivery->state =
	    take_in(consuming, has_headers ? &properties->headers : &no_headers, consuming->body_left);
	consuming->step = DELIVERY_WANTS_BODY;
	MemoryContextSwitchTo(caller);
	if (consuming->body_left == 0)
		hand_over(conn, channel);
}

/* ---- body ---- */

void
delivery_body(BrokerConn *conn, int channel, const amqp_frame_t *frame)
{
	Consumption *consuming = consumption(conn, channel);
	BrokerDelivery *delivery = consuming->delivery;
	amqp_bytes_t fragment = frame->payload.body_fragment;

	if (fragment.len > consuming->body_left)
	{
		conn_lost(conn, "the broker sent more of a message than it had announced");
		return;
	}
	if (delivery->body != NULL && fragment.len > 0)
	{
		memcpy(unconstify(char *, delivery->body) + delivery->body_len, fragment.bytes, fragment.len);
		delivery->body_len += fragment.len;
	}
	consuming->body_left -= fragment.len;
	if (consuming->body_left == 0)
		hand_over(conn, channel);
}

/* ---- what the library cannot read ---- */

/*
 * A library that refuses headers nested too deeply takes the connection with
 * them, each time the broker delivers the message again.  So the second time it
 * is rejected, which needs no more than the tag that came before its header.
 */
void
delivery_unreadable(BrokerConn *conn)
{
	for (int i = 1; i <= BROKER_MAX_CHANNEL; i++)
	{
		Consumption *consuming = &conn->channels[i].consuming;

		if (!conn->channels[i].open || consuming->step != DELIVERY_WANTS_HEADER || !consuming->delivery->redelivered)
			continue;
		if (broker_reject(conn, i, consuming->delivery->tag, false))
		{
			consuming->delivery->state = BROKER_DELIVERY_UNREADABLE;
			hand_over(conn, i);
		}
	}
}
