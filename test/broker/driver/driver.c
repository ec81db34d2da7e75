/*
 * driver.c
 *		The broker client by hand: one SQL function that runs its calls in a
 *		backend, so that tests can hold it against a real broker.
 *
 * drive(VARIADIC text[]) takes the name of a call and its arguments and returns
 * what came of it as text.  Connection and deliveries live as long as the
 * session.  Not a part of the extension.
 *
 * May depend on: src/amqp/broker.h.
 */
#include "postgres.h"

#include <sys/resource.h>

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "amqp/broker.h"

PG_MODULE_MAGIC;
PG_FUNCTION_INFO_V1(drive);

#define MAX_DELIVERIES 1000

/* Of the client library, whose headers are for src/amqp only. */
extern uint32 amqp_version_number(void);

static BrokerConn *conn = NULL;
static BrokerDelivery *deliveries[MAX_DELIVERIES];
static int ndeliveries = 0;

typedef struct Call
{
	int count;
	char *words[16];
	StringInfo out;
} Call;

static int
number(Call *call, int i)
{
	return i < call->count ? atoi(call->words[i]) : 0;
}

static void
connect_broker(Call *call)
{
	BrokerEndpoint *endpoints = NULL;
	const char *problem = NULL;
	BrokerOptions options = {.io_timeout_ms = 5000, .connect_timeout_ms = 5000, .heartbeat_s = 10};
	BrokerError error;

	broker_process_init();
	if (broker_url_parse(call->words[1], &endpoints, &problem) < 1)
		elog(ERROR, "bad URL: %s", problem);
	if (conn != NULL)
		broker_disconnect(conn, true);
	ndeliveries = 0;
	conn = broker_connect(TopMemoryContext, &endpoints[0], &options, &error);
	appendStringInfoString(call->out, conn != NULL ? broker_server_text(conn) : error.text);
}

/* True: ask again. */
static bool
is_pending(BrokerRequest result)
{
	if (result != BROKER_PENDING)
		return false;
	(void) WaitLatchOrSocket(MyLatch, WL_SOCKET_READABLE | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, broker_socket(conn), 100,
	                         PG_WAIT_EXTENSION);
	CHECK_FOR_INTERRUPTS();
	broker_pump(conn);
	return true;
}

static void
say_request(Call *call, BrokerRequest result, const BrokerDenial *denial)
{
	static const char *const words[] = {"done", "denied", "blocked", "lost"};

	appendStringInfoString(call->out, words[result]);
	if (result == BROKER_DENIED)
		appendStringInfo(call->out, " %d: %s", denial->code, denial->text);
}

/* declare_queue CHANNEL NAME [TTL DLX KEY] */
static void
declare_queue(Call *call)
{
	WireTable arguments = {0};
	BrokerDenial denial;
	BrokerRequest result;

	if (call->count > 3)
	{
		wire_table_add_int(&arguments, "x-message-ttl", WIRE_INT64, number(call, 3));
		wire_table_add_string(&arguments, "x-dead-letter-exchange", call->words[4]);
		wire_table_add_string(&arguments, "x-dead-letter-routing-key", call->words[5]);
	}
	do
		result =
		    broker_declare_queue(conn, number(call, 1), call->words[2], call->count > 3 ? &arguments : NULL, &denial);
	while (is_pending(result));
	say_request(call, result, &denial);
}

/* declare_exchange CHANNEL NAME TYPE */
static void
declare_exchange(Call *call)
{
	BrokerDenial denial;
	BrokerRequest result;

	do
		result = broker_declare_exchange(conn, number(call, 1), call->words[2], call->words[3], &denial);
	while (is_pending(result));
	say_request(call, result, &denial);
}

/* bind CHANNEL QUEUE EXCHANGE KEY */
static void
bind_queue(Call *call)
{
	BrokerDenial denial;
	BrokerRequest result;

	do
		result = broker_bind_queue(conn, number(call, 1), call->words[2], call->words[3], call->words[4], &denial);
	while (is_pending(result));
	say_request(call, result, &denial);
}

/* consume CHANNEL QUEUE PREFETCH MAX_BODY BUDGET [exclusive] */
static void
consume(Call *call)
{
	BrokerConsumer consumer = {.queue = call->words[2],
	                           .tag = "driver",
	                           .prefetch = number(call, 3),
	                           .max_body = number(call, 4),
	                           .body_budget = number(call, 5),
	                           .exclusive = call->count > 6};
	BrokerDenial denial;

	say_request(call, broker_consume(conn, number(call, 1), &consumer, &denial), &denial);
}

static void
inspect(Call *call)
{
	uint32 consumers;
	uint32 messages;
	BrokerDenial denial;
	BrokerRequest result;

	do
		result = broker_inspect_queue(conn, number(call, 1), call->words[2], &consumers, &messages, &denial);
	while (is_pending(result));
	say_request(call, result, &denial);
	appendStringInfo(call->out, " %u %u", consumers, messages);
}

static void
say_event(Call *call, const BrokerEvent *event)
{
	static const char *const names[] = {"confirmed", "nacked",    "returned", "unsettled", "channel_closed",
	                                    "blocked",   "unblocked", "delivery", "cancelled", "lost"};
	static const char *const states[] = {"whole", "too_long", "over_budget", "unreadable"};
	const BrokerDelivery *delivery = event->delivery;

	if (delivery == NULL)
		appendStringInfo(call->out, "%s %d %d %s\n", names[event->kind], event->channel, event->code, event->text);
	else
	{
		appendStringInfo(call->out, "delivery %d %s %d %d %s\n", ndeliveries, states[delivery->state],
		                 delivery->headers.count, (int) delivery->body_len,
		                 delivery->message_id != NULL ? delivery->message_id : "-");
		deliveries[ndeliveries++ % MAX_DELIVERIES] = event->delivery;
	}
}

/* pump COUNT MILLISECONDS: until so many events have come, or time is up, or the connection is lost. */
static void
pump(Call *call)
{
	TimestampTz end = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), number(call, 2));
	BrokerEvent event;
	int seen = 0;

	for (;;)
	{
		long left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), end);

		broker_pump(conn);
		while (broker_next_event(conn, &event))
		{
			say_event(call, &event);
			seen++;
		}
		if (seen >= number(call, 1) || left <= 0 || broker_is_lost(conn))
			break;
		(void) WaitLatchOrSocket(MyLatch, WL_SOCKET_READABLE | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, broker_socket(conn),
		                         left, PG_WAIT_EXTENSION);
		CHECK_FOR_INTERRUPTS();
	}
}

/* publish DELIVERY QUEUE: the same headers and body to a queue, confirmed. */
static void
publish(Call *call)
{
	const BrokerDelivery *delivery = deliveries[number(call, 1)];
	BrokerMessage message = {.exchange = "",
	                         .routing_key = call->words[2],
	                         .message_id = delivery->message_id != NULL ? delivery->message_id : "none",
	                         .content_type = delivery->content_type,
	                         .reply_to = delivery->reply_to,
	                         .priority = delivery->priority,
	                         .persistent = delivery->persistent,
	                         .headers = &delivery->headers,
	                         .body = delivery->body,
	                         .body_len = delivery->body_len};
	BrokerError error;

	appendStringInfo(call->out, "%d", broker_publish(conn, BROKER_CHANNEL_MAIN, &message, 1, &error));
}

/* limit_stack SOFT HARD, in MB; 0: no limit */
static void
limit_stack(Call *call)
{
	struct rlimit limit;

	limit.rlim_cur = (rlim_t) number(call, 1) * 1024 * 1024;
	limit.rlim_max = number(call, 2) > 0 ? (rlim_t) number(call, 2) * 1024 * 1024 : RLIM_INFINITY;
	if (setrlimit(RLIMIT_STACK, &limit) != 0)
		elog(ERROR, "could not limit the stack: %m");
}

static void
run(Call *call)
{
	const char *name = call->words[0];
	BrokerDelivery *delivery = call->count > 1 ? deliveries[number(call, 1) % MAX_DELIVERIES] : NULL;
	const char *why;

	if (strcmp(name, "connect") == 0)
		connect_broker(call);
	else if (strcmp(name, "may_consume") == 0)
		appendStringInfoString(call->out, broker_may_consume(&why) ? "yes" : why);
	else if (strcmp(name, "library_version") == 0)
		appendStringInfo(call->out, "%u", amqp_version_number());
	else if (strcmp(name, "limit_stack") == 0)
		limit_stack(call);
	else if (strcmp(name, "open") == 0)
		appendStringInfo(call->out, "%d", broker_open_channel(conn, number(call, 1)));
	else if (strcmp(name, "is_open") == 0)
		appendStringInfo(call->out, "%d", broker_channel_is_open(conn, number(call, 1)));
	else if (strcmp(name, "declare_exchange") == 0)
		declare_exchange(call);
	else if (strcmp(name, "declare_queue") == 0)
		declare_queue(call);
	else if (strcmp(name, "bind") == 0)
		bind_queue(call);
	else if (strcmp(name, "inspect") == 0)
		inspect(call);
	else if (strcmp(name, "consume") == 0)
		consume(call);
	else if (strcmp(name, "pump") == 0)
		pump(call);
	else if (strcmp(name, "publish") == 0)
		publish(call);
	else if (strcmp(name, "ack") == 0)
		appendStringInfo(call->out, "%d", broker_ack(conn, delivery->channel, delivery->tag));
	else if (strcmp(name, "reject") == 0)
		appendStringInfo(call->out, "%d", broker_reject(conn, delivery->channel, delivery->tag, number(call, 2)));
	else if (strcmp(name, "free") == 0)
		broker_delivery_free(conn, delivery);
	else if (strcmp(name, "body") == 0)
		appendBinaryStringInfo(call->out, delivery->body, (int) delivery->body_len);
	else if (strcmp(name, "lost") == 0)
		appendStringInfo(call->out, "%d %s", broker_is_lost(conn), broker_lost_reason(conn));
	else
		elog(ERROR, "no such call: %s", name);
}

Datum
drive(PG_FUNCTION_ARGS)
{
	Datum *words;
	int count;
	Call call = {0};

	deconstruct_array(PG_GETARG_ARRAYTYPE_P(0), TEXTOID, -1, false, 'i', &words, NULL, &count);
	call.count = Min(count, lengthof(call.words));
	for (int i = 0; i < call.count; i++)
		call.words[i] = TextDatumGetCString(words[i]);
	call.out = makeStringInfo();
	run(&call);
	PG_RETURN_TEXT_P(cstring_to_text_with_len(call.out->data, call.out->len));
}
