/*
 * outbox_add.c
 *		acemq.outbox_add(): record a message in the caller's transaction.
 *
 * Never talks to the network, takes no lock that another caller would wait
 * for, and needs neither the worker nor the library to be preloaded.
 *
 * May depend on: outbox_args.h, outbox_insert.h, wake.h, shmem.h.
 */
#include "acemq.h"

#include "outbox_args.h"
#include "outbox_insert.h"
#include "shmem.h"
#include "wake.h"

#include "fmgr.h"
#include "miscadmin.h"

PG_FUNCTION_INFO_V1(acemq_outbox_add_text);
PG_FUNCTION_INFO_V1(acemq_outbox_add_json);
PG_FUNCTION_INFO_V1(acemq_outbox_add_jsonb);
PG_FUNCTION_INFO_V1(acemq_outbox_add_bytea);

/* The row is safe, but nobody in this server will send it. */
static void
warn_if_not_preloaded(void)
{
	static bool warned = false;

	if (acemq_shared != NULL || warned)
		return;
	warned = true;
	ereport(WARNING,
	        (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("acemq is not in shared_preload_libraries"),
	         errdetail("Messages are recorded, but no relay of this server sends them."),
	         errhint("Set shared_preload_libraries = 'acemq' and restart the server.")));
}

static Datum
add(FunctionCallInfo fcinfo, PayloadKind kind)
{
	OutboxMessage message;
	int64 id;

	/* One message for all ways of writing; the executor would say it in the words of an INSERT nobody wrote. */
	PreventCommandIfReadOnly("acemq.outbox_add()");
	PreventCommandIfParallelMode("acemq.outbox_add()");
	PreventCommandDuringRecovery("acemq.outbox_add()");

	outbox_args_read(fcinfo, 0, PG_NARGS(), kind, &message);
	if (outbox_insert(&message, &id))
		wake_note_added(id);
	warn_if_not_preloaded();
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
