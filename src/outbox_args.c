/*
 * outbox_args.c
 *		The arguments of the publishing functions: checks and defaults.
 *
 * Lengths are those of the UTF-8 form, in bytes, because that is what the
 * broker counts.  An explicit NULL for an optional argument means its default.
 *
 * May depend on: payload.h, outbox_headers.h, envelope.h, guc.h, utf8.h, uuid.h.
 */
#include "outbox_args.h"

#include "compat.h"
#include "envelope.h"
#include "guc.h"
#include "outbox_headers.h"
#include "utf8.h"
#include "uuid.h"

#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#define MAX_PRIORITY      255
#define MAX_EXPIRATION_MS PG_UINT32_MAX
#define DEFAULT_VERSION   1
#define HUNDRED_YEARS     (INT64CONST(36525) * USECS_PER_DAY)

/* What has to be true of a text argument. */
typedef struct TextRule
{
	const char *name;
	bool required;
	bool empty_is_absent; /* an empty optional header is no header */
	int max_bytes;        /* of the UTF-8 form; 0: no limit but that of the headers as a whole */
} TextRule;

static const TextRule text_rules[] = {
    [ARG_EXCHANGE] = {"exchange", true, false, ACEMQ_MAX_SHORTSTR},
    [ARG_ROUTING_KEY] = {"routing_key", true, false, ACEMQ_MAX_SHORTSTR},
    [ARG_TYPE] = {"type", false, true, 0},
    [ARG_MESSAGE_ID] = {"message_id", false, false, ACEMQ_MAX_SHORTSTR},
    [ARG_CORRELATION_ID] = {"correlation_id", false, true, 0},
    [ARG_CAUSATION_ID] = {"causation_id", false, true, 0},
    [ARG_CONTENT_TYPE] = {"content_type", false, true, ACEMQ_MAX_SHORTSTR},
    [ARG_REPLY_TO] = {"reply_to", false, true, ACEMQ_MAX_SHORTSTR},
    /* Not on the wire, but in an index, whose rows have to fit on a page. */
    [ARG_ORDERING_KEY] = {"ordering_key", false, false, ACEMQ_MAX_SHORTSTR},
};

static void
refuse_null(const char *argument, const char *hint)
{
	ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("argument \"%s\" must not be null", argument),
	                errhint("%s", hint)));
}

static void
check_length(const text *value, const TextRule *rule)
{
	int len;

	(void) utf8_from_server(VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value), &len, rule->name);
	if (rule->max_bytes > 0 && len > rule->max_bytes)
		ereport(ERROR,
		        (errcode(ERRCODE_STRING_DATA_RIGHT_TRUNCATION), errmsg("argument \"%s\" is too long", rule->name),
		         errdetail("It has %d bytes in UTF-8.", len),
		         errhint("Use at most %d bytes; characters outside ASCII have two to four each.", rule->max_bytes)));
}

static text *
read_text(FunctionCallInfo fcinfo, int first, OutboxArg arg)
{
	const TextRule *rule = &text_rules[arg];
	text *value;

	if (PG_ARGISNULL(first + arg))
	{
		if (rule->required)
			refuse_null(rule->name, "Pass an empty string for the default exchange or for no routing key.");
		return NULL;
	}
	value = PG_GETARG_TEXT_PP(first + arg);
	if (rule->empty_is_absent && VARSIZE_ANY_EXHDR(value) == 0)
		return NULL;
	check_length(value, rule);
	return value;
}

static bool
same_text(const text *a, const text *b)
{
	return VARSIZE_ANY_EXHDR(a) == VARSIZE_ANY_EXHDR(b) &&
	       memcmp(VARDATA_ANY(a), VARDATA_ANY(b), VARSIZE_ANY_EXHDR(a)) == 0;
}

static void
read_destination(FunctionCallInfo fcinfo, int first, OutboxMessage *message)
{
	message->exchange = read_text(fcinfo, first, ARG_EXCHANGE);
	message->routing_key = read_text(fcinfo, first, ARG_ROUTING_KEY);
	if (VARSIZE_ANY_EXHDR(message->exchange) == 0 && VARSIZE_ANY_EXHDR(message->routing_key) == 0)
		ereport(ERROR,
		        (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
		         errmsg("arguments \"exchange\" and \"routing_key\" must not both be empty"),
		         errhint("An empty exchange is the default exchange, where the routing key is the name of a queue.")));
}

static void
read_payload(FunctionCallInfo fcinfo, int first, PayloadKind kind, OutboxMessage *message)
{
	text *content_type = read_text(fcinfo, first, ARG_CONTENT_TYPE);

	if (PG_ARGISNULL(first + ARG_PAYLOAD))
		refuse_null("payload", "Pass 'null' for the JSON value null, or an empty bytea for no content.");
	message->body = payload_body(PG_GETARG_DATUM(first + ARG_PAYLOAD), kind, content_type);
	message->content_type = content_type != NULL ? content_type : cstring_to_text(payload_default_content_type(kind));
}

static void
read_message_id(FunctionCallInfo fcinfo, int first, OutboxMessage *message)
{
	char generated[UUID_TEXT_LEN + 1];

	message->message_id = read_text(fcinfo, first, ARG_MESSAGE_ID);
	message->caller_id = message->message_id != NULL;
	if (!message->caller_id)
	{
		uuid_v4(generated);
		message->message_id = cstring_to_text_with_len(generated, UUID_TEXT_LEN);
	}
	else if (VARSIZE_ANY_EXHDR(message->message_id) == 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("argument \"message_id\" must not be empty"),
		                errhint("Leave it out, and a random UUID is used.")));
}

/* The host's part may come from the configuration file, so it is ASCII or UTF-8, not the encoding of the database. */
static text *
origin_text(void)
{
	const char *origin = acemq_origin_text();

	if (origin[0] == '\0')
		return NULL;
	if (GetDatabaseEncoding() != PG_UTF8)
		origin = pg_any_to_server(origin, strlen(origin), PG_UTF8);
	return cstring_to_text(origin);
}

/* The type a message has when none is stored: see envelope.c. */
static bool
is_default_type(const text *type, const text *routing_key)
{
	if (VARSIZE_ANY_EXHDR(routing_key) > 0)
		return same_text(type, routing_key);
	return VARSIZE_ANY_EXHDR(type) == strlen(ACEMQ_DEFAULT_TYPE) &&
	       memcmp(VARDATA_ANY(type), ACEMQ_DEFAULT_TYPE, strlen(ACEMQ_DEFAULT_TYPE)) == 0;
}

/*
 * RabbitMQ's direct reply-to is a name that stands for a consumer on the
 * channel of the publish.  The relay has none: the broker would close its
 * channel (PRECONDITION_FAILED - fast reply consumer does not exist).
 */
static void
check_reply_to(const text *reply_to)
{
	static const char direct[] = "amq.rabbitmq.reply-to";

	if (reply_to == NULL || VARSIZE_ANY_EXHDR(reply_to) < strlen(direct) ||
	    memcmp(VARDATA_ANY(reply_to), direct, strlen(direct)) != 0)
		return;
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
	                errmsg("argument \"reply_to\" cannot be RabbitMQ's direct reply-to"),
	                errdetail("The reply would go to a consumer of the relay, which has none."),
	                errhint("Name a queue that you consume.")));
}

/* What is the same as its default is not stored. */
static void
read_envelope(FunctionCallInfo fcinfo, int first, OutboxMessage *message)
{
	message->type = read_text(fcinfo, first, ARG_TYPE);
	if (message->type != NULL && is_default_type(message->type, message->routing_key))
		message->type = NULL;
	message->correlation_id = read_text(fcinfo, first, ARG_CORRELATION_ID);
	if (message->correlation_id != NULL && same_text(message->correlation_id, message->message_id))
		message->correlation_id = NULL;
	message->causation_id = read_text(fcinfo, first, ARG_CAUSATION_ID);
	message->reply_to = read_text(fcinfo, first, ARG_REPLY_TO);
	check_reply_to(message->reply_to);
	message->origin = origin_text();
	message->headers = PG_ARGISNULL(first + ARG_HEADERS) ? NULL : PG_GETARG_JSONB_P(first + ARG_HEADERS);
}

/* Months count 30 days and days 24 hours.  Rounded up: a message lives at least as long as asked. */
static int64
expiration_ms(const Interval *span)
{
	double days = span->month * (double) DAYS_PER_MONTH + span->day;
	double us = days * USECS_PER_DAY + span->time;

	if (INTERVAL_NOT_FINITE(span) || us < 0 || us > MAX_EXPIRATION_MS * 1000.0)
		ereport(ERROR, (errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE), errmsg("argument \"expiration\" is out of range"),
		                errhint("Use an interval from 0 to %lld milliseconds, which is 49 days and 17 hours.",
		                        (long long) MAX_EXPIRATION_MS)));
	return ((int64) us + 999) / 1000;
}

static void
read_properties(FunctionCallInfo fcinfo, int first, OutboxMessage *message)
{
	message->version = PG_ARGISNULL(first + ARG_VERSION) ? DEFAULT_VERSION : PG_GETARG_INT32(first + ARG_VERSION);
	if (message->version < 1)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
		                errmsg("argument \"version\" must be at least 1, not %d", message->version),
		                errhint("Versions of a payload's schema are counted from 1.")));

	message->persistent = PG_ARGISNULL(first + ARG_PERSISTENT) || PG_GETARG_BOOL(first + ARG_PERSISTENT);

	message->priority = PG_ARGISNULL(first + ARG_PRIORITY) ? -1 : PG_GETARG_INT32(first + ARG_PRIORITY);
	if (!PG_ARGISNULL(first + ARG_PRIORITY) && (message->priority < 0 || message->priority > MAX_PRIORITY))
		ereport(ERROR,
		        (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
		         errmsg("argument \"priority\" must be between 0 and %d, not %d", MAX_PRIORITY, message->priority),
		         errhint("Leave it out for a message without a priority.")));

	message->expiration =
	    PG_ARGISNULL(first + ARG_EXPIRATION) ? -1 : expiration_ms(PG_GETARG_INTERVAL_P(first + ARG_EXPIRATION));
}

void
outbox_args_check_time(TimestampTz time, TimestampTz now, const char *argument)
{
	if (TIMESTAMP_NOT_FINITE(time) || time > now + HUNDRED_YEARS || time < now - HUNDRED_YEARS)
		ereport(ERROR,
		        (errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE), errmsg("argument \"%s\" is out of range", argument),
		         errhint("Use a finite time at most 100 years away.")));
}

static void
read_not_before(FunctionCallInfo fcinfo, int position, OutboxMessage *message)
{
	message->delayed = !PG_ARGISNULL(position);
	if (!message->delayed)
		return;
	message->not_before = PG_GETARG_TIMESTAMPTZ(position);
	outbox_args_check_time(message->not_before, message->created_at, "not_before");
}

void
outbox_args_read(FunctionCallInfo fcinfo, int first, int nargs, PayloadKind kind, OutboxMessage *message)
{
	memset(message, 0, sizeof(*message));
	message->created_at = GetCurrentTimestamp();

	read_destination(fcinfo, first, message);
	read_payload(fcinfo, first, kind, message);
	read_message_id(fcinfo, first, message);
	read_envelope(fcinfo, first, message);
	read_properties(fcinfo, first, message);
	message->ordering_key = read_text(fcinfo, first, ARG_ORDERING_KEY);
	if (nargs > ARG_NOT_BEFORE)
		read_not_before(fcinfo, first + ARG_NOT_BEFORE, message);

	outbox_headers_check(message);
}
