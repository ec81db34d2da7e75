/*
 * outbox_add.c
 *		acemq.outbox_add(): record a message in the caller's transaction.
 *
 * Never talks to the network, takes no lock that another caller would wait
 * for, and needs neither the worker nor the library to be preloaded.
 *
 * May depend on: outbox_args.h, outbox_insert.h.
 */
#include "acemq.h"

#include "outbox_args.h"
#include "outbox_insert.h"

#include "fmgr.h"

PG_FUNCTION_INFO_V1(acemq_outbox_add_text);
PG_FUNCTION_INFO_V1(acemq_outbox_add_json);
PG_FUNCTION_INFO_V1(acemq_outbox_add_jsonb);
PG_FUNCTION_INFO_V1(acemq_outbox_add_bytea);

static Datum
add(FunctionCallInfo fcinfo, PayloadKind kind)
{
	OutboxMessage message;

	outbox_refuse_read_only("acemq.outbox_add()");
	outbox_args_read(fcinfo, 0, PG_NARGS(), kind, &message);
	outbox_record(&message);
	PG_RETURN_TEXT_P(message.message_id);
}

Datum
acemq_outbox_add_text(PG_FUNCTION_ARGS)
{
	return add(fcinfo, PAYLOAD_TEXT);
}

Datum
acemq_outbox_add_json(PG_FUNCTION_ARGS)
{
	return add(fcinfo, PAYLOAD_JSON);
}

Datum
acemq_outbox_add_jsonb(PG_FUNCTION_ARGS)
{
	return add(fcinfo, PAYLOAD_JSONB);
}

Datum
acemq_outbox_add_bytea(PG_FUNCTION_ARGS)
{
	return add(fcinfo, PAYLOAD_BYTEA);
}
