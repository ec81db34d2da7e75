/*
 * idempotency_claim.c
 *		acemq.idempotency_claim(), acemq.idempotency_first_time(): may I do the
 *		work of this key?
 *
 * The answer never waits for another transaction.  A key that somebody is at,
 * whatever will come of it, is in progress; that answer cannot lose the
 * message, because its caller tries again.
 *
 * May depend on: idempotency_args.h, idempotency_table.h, idempotency_write.h.
 */
#include "idempotency_args.h"
#include "idempotency_table.h"
#include "idempotency_write.h"

#include "catalog/pg_enum.h"
#include "miscadmin.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

PG_FUNCTION_INFO_V1(acemq_idempotency_claim);
PG_FUNCTION_INFO_V1(acemq_idempotency_first_time);

typedef enum Claim
{
	CLAIMED,
	DUPLICATE,
	IN_PROGRESS
} Claim;

static const char *const labels[] = {[CLAIMED] = "claimed", [DUPLICATE] = "duplicate", [IN_PROGRESS] = "in_progress"};

/*
 * The time is taken after the look: a claim must not begin before the one it
 * follows has ended.
 */
static bool
try_to_claim(IdempotencyTable *table, text *key, IdempotencyLook found, TimeOffset lease, text *owner)
{
	TimestampTz now = GetCurrentTimestamp();
	IdempotencyRow row = {IDEMPOTENCY_CLAIMED, owner, now, now + lease};

	if (found == LOOK_NOTHING)
		return idempotency_insert(table, key, &row) == WRITE_DONE;
	return idempotency_replace(table, key, &row, false) == WRITE_DONE;
}

static Claim
claim(text *key, TimeOffset lease, text *owner)
{
	IdempotencyTable table;
	IdempotencyLook found;
	Claim answer = IN_PROGRESS;

	idempotency_open(&table, RowExclusiveLock);
	found = idempotency_look(&table, key, GetCurrentTimestamp(), NULL);
	if (found == LOOK_NOTHING || found == LOOK_EXPIRED)
	{
		if (try_to_claim(&table, key, found, lease, owner))
			answer = CLAIMED;
		else
			found = idempotency_look(&table, key, GetCurrentTimestamp(), NULL);
	}
	if (answer != CLAIMED && found == LOOK_CONFIRMED)
		answer = DUPLICATE;
	idempotency_close(&table);
	return answer;
}

static Claim
claim_for_call(FunctionCallInfo fcinfo, const char *function)
{
	text *key = idempotency_key_arg(fcinfo);
	TimeOffset lease = idempotency_lease_arg(fcinfo, 1);
	text *owner = idempotency_owner_arg(fcinfo, 2);

	PreventCommandIfReadOnly(function);
	return claim(key, lease, owner);
}

/* Looked up by name, because CREATE TYPE gave out the OIDs. */
static Oid
label_oid(FunctionCallInfo fcinfo, Claim answer)
{
	Oid *oids = fcinfo->flinfo->fn_extra;

	if (oids == NULL)
		fcinfo->flinfo->fn_extra = oids =
		    MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt, sizeof(Oid) * lengthof(labels));
	if (!OidIsValid(oids[answer]))
		oids[answer] = GetSysCacheOid2(ENUMTYPOIDNAME, Anum_pg_enum_oid,
		                               ObjectIdGetDatum(get_func_rettype(fcinfo->flinfo->fn_oid)),
		                               CStringGetDatum(labels[answer]));
	if (!OidIsValid(oids[answer]))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
		                errmsg("type \"acemq.claim\" has no value \"%s\"", labels[answer])));
	return oids[answer];
}

Datum
acemq_idempotency_claim(PG_FUNCTION_ARGS)
{
	PG_RETURN_OID(label_oid(fcinfo, claim_for_call(fcinfo, "acemq.idempotency_claim()")));
}

Datum
acemq_idempotency_first_time(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(claim_for_call(fcinfo, "acemq.idempotency_first_time()") == CLAIMED);
}
