/*
 * schedule.c
 *		acemq.schedule_at() and schedule_in(): record a message that is to be
 *		delivered later.
 *
 * Two ways to wait: the row stays in the outbox until it is due (not_before),
 * or it goes out at once onto the ladder of rung queues, where it waits in the
 * broker (ladder_due_at).  The relay knows what either means.
 *
 * May depend on: outbox_args.h, outbox_headers.h, outbox_insert.h, ladder.h, compat.h.
 */
#include "acemq.h"

#include "compat.h"
#include "ladder.h"
#include "outbox_args.h"
#include "outbox_headers.h"
#include "outbox_insert.h"

#include <math.h>

#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(acemq_schedule_at_text);
PG_FUNCTION_INFO_V1(acemq_schedule_at_json);
PG_FUNCTION_INFO_V1(acemq_schedule_at_jsonb);
PG_FUNCTION_INFO_V1(acemq_schedule_at_bytea);
PG_FUNCTION_INFO_V1(acemq_schedule_in_text);
PG_FUNCTION_INFO_V1(acemq_schedule_in_json);
PG_FUNCTION_INFO_V1(acemq_schedule_in_jsonb);
PG_FUNCTION_INFO_V1(acemq_schedule_in_bytea);

/* The time, then the arguments of outbox_add without not_before, then via. */
#define FIRST_OUTBOX_ARG 1
#define OUTBOX_ARGS      ARG_NOT_BEFORE
#define VIA_ARG          (FIRST_OUTBOX_ARG + OUTBOX_ARGS)

/* Of each part of an interval: more is out of range anyhow, and would overflow when added. */
#define MOST_YEARS 200

static bool
goes_onto_ladder(FunctionCallInfo fcinfo)
{
	char *via;

	if (PG_ARGISNULL(VIA_ARG))
		return false;
	via = text_to_cstring(PG_GETARG_TEXT_PP(VIA_ARG));
	if (strcmp(via, "ladder") == 0)
		return true;
	if (strcmp(via, "outbox") != 0)
		ereport(ERROR,
		        (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("argument \"via\" cannot be \"%s\"", via),
		         errhint("Use 'outbox' (the default: the message waits in the table), or 'ladder' (it waits in the "
		                 "broker).")));
	return false;
}

/*
 * Every hop writes the message anew and may be made by any AceMQ library:
 * these two are not carried along, and a rung has a time to live of its own.
 */
static void
refuse_what_the_ladder_drops(const OutboxMessage *message)
{
	if (message->expiration >= 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
		                errmsg("argument \"expiration\" cannot be given together with via => 'ladder'"),
		                errdetail("A message on the ladder would expire on its way."),
		                errhint("Leave out via: the message then waits in the outbox and keeps its expiration.")));
	if (!message->persistent)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
		                errmsg("argument \"persistent\" cannot be false together with via => 'ladder'"),
		                errdetail("Messages on the ladder are persistent."),
		                errhint("Leave out via: the message then waits in the outbox.")));
}

/* The ladder's messages have a type of their own; a routing key given as the type is a type that was given. */
static void
put_onto_ladder(FunctionCallInfo fcinfo, TimestampTz due, OutboxMessage *message)
{
	int type = FIRST_OUTBOX_ARG + ARG_TYPE;

	refuse_what_the_ladder_drops(message);
	if (PG_ARGISNULL(type) || VARSIZE_ANY_EXHDR(PG_GETARG_TEXT_PP(type)) == 0)
		message->type = cstring_to_text(LADDER_TYPE);
	message->on_ladder = true;
	message->ladder_due_at = due;
	outbox_headers_check(message);
}

/* Months and days are steps in the calendar of the session's time zone, as in `timestamptz + interval`. */
static TimestampTz
after_delay(TimestampTz now, Interval *delay)
{
	double years = Max(Max(fabs(delay->month / (double) MONTHS_PER_YEAR), fabs(delay->day / 366.0)),
	                   fabs(delay->time / ((double) USECS_PER_DAY * 366)));

	if (INTERVAL_NOT_FINITE(delay) || years > MOST_YEARS)
		return DT_NOEND;
	return DatumGetTimestampTz(
	    DirectFunctionCall2(timestamptz_pl_interval, TimestampTzGetDatum(now), IntervalPGetDatum(delay)));
}

static TimestampTz
due_time(FunctionCallInfo fcinfo, const char *argument, bool from_now, TimestampTz now)
{
	TimestampTz due;

	if (PG_ARGISNULL(0))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("argument \"%s\" must not be null", argument),
		                errhint("Call acemq.outbox_add() for a message that is to leave at once.")));
	due = from_now ? after_delay(now, PG_GETARG_INTERVAL_P(0)) : PG_GETARG_TIMESTAMPTZ(0);
	outbox_args_check_time(due, now, argument);
	return due;
}

static void
schedule(FunctionCallInfo fcinfo, PayloadKind kind, TimestampTz due, OutboxMessage *message)
{
	bool ladder = goes_onto_ladder(fcinfo);

	outbox_args_read(fcinfo, FIRST_OUTBOX_ARG, OUTBOX_ARGS, kind, message);
	if (ladder)
		put_onto_ladder(fcinfo, due, message);
	else
	{
		message->delayed = true;
		message->not_before = due;
	}
	outbox_record(message);
}

static Datum
schedule_at(FunctionCallInfo fcinfo, PayloadKind kind)
{
	OutboxMessage message;

	outbox_refuse_read_only("acemq.schedule_at()");
	schedule(fcinfo, kind, due_time(fcinfo, "due", false, GetCurrentTimestamp()), &message);
	PG_RETURN_TEXT_P(message.message_id);
}

static Datum
schedule_in(FunctionCallInfo fcinfo, PayloadKind kind)
{
	OutboxMessage message;

	outbox_refuse_read_only("acemq.schedule_in()");
	schedule(fcinfo, kind, due_time(fcinfo, "delay", true, GetCurrentTimestamp()), &message);
	PG_RETURN_TEXT_P(message.message_id);
}

Datum
acemq_schedule_at_text(PG_FUNCTION_ARGS)
{
	return schedule_at(fcinfo, PAYLOAD_TEXT);
}

Datum
acemq_schedule_at_json(PG_FUNCTION_ARGS)
{
	return schedule_at(fcinfo, PAYLOAD_JSON);
}

Datum
acemq_schedule_at_jsonb(PG_FUNCTION_ARGS)
{
	return schedule_at(fcinfo, PAYLOAD_JSONB);
}

Datum
acemq_schedule_at_bytea(PG_FUNCTION_ARGS)
{
	return schedule_at(fcinfo, PAYLOAD_BYTEA);
}

Datum
acemq_schedule_in_text(PG_FUNCTION_ARGS)
{
	return schedule_in(fcinfo, PAYLOAD_TEXT);
}

Datum
acemq_schedule_in_json(PG_FUNCTION_ARGS)
{
	return schedule_in(fcinfo, PAYLOAD_JSON);
}

Datum
acemq_schedule_in_jsonb(PG_FUNCTION_ARGS)
{
	return schedule_in(fcinfo, PAYLOAD_JSONB);
}

Datum
acemq_schedule_in_bytea(PG_FUNCTION_ARGS)
{
	return schedule_in(fcinfo, PAYLOAD_BYTEA);
}
