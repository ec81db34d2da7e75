/*
 * idempotency_confirm.c
 *		What becomes of a claim: acemq.idempotency_confirm(), _forget() and
 *		_confirmed().
 *
 * May depend on: idempotency_args.h, idempotency_table.h, idempotency_write.h, as_owner.h, saved_plan.h, store_table.h.
 */
#include "idempotency_args.h"
#include "idempotency_table.h"
#include "idempotency_write.h"

#include "as_owner.h"
#include "saved_plan.h"
#include "store_table.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "storage/lmgr.h"

PG_FUNCTION_INFO_V1(acemq_idempotency_confirm);
PG_FUNCTION_INFO_V1(acemq_idempotency_forget);
PG_FUNCTION_INFO_V1(acemq_idempotency_confirmed);

/* Work that is done stays done: unlike a claim, this has to wait until it can be written. */
static void
wait_for(IdempotencyTable *table, IdempotencyBusy *busy)
{
	if (busy->speculative_token != 0)
		SpeculativeInsertionWait(busy->xid, busy->speculative_token);
	else
		XactLockTableWait(busy->xid, table->rel, &busy->tid, XLTW_Update);
}

/*
 * Whoever holds the claim: the work is done, so nobody must do it again.  The
 * version that is replaced is the one that was looked at, else it is looked at
 * again.  Returns whether that was the owner's claim.
 */
static bool
confirm(IdempotencyTable *table, text *key, TimeOffset retention, text *owner)
{
	for (;;)
	{
		IdempotencyBusy busy;
		IdempotencyLook found = idempotency_look(table, key, GetCurrentTimestamp(), &busy);
		TimestampTz now = GetCurrentTimestamp();
		IdempotencyRow row = {IDEMPOTENCY_CONFIRMED, NULL, now, now + retention};
		bool held = false;
		IdempotencyWrite written;

		CHECK_FOR_INTERRUPTS();
		if (found == LOOK_BUSY)
		{
			wait_for(table, &busy);
			continue;
		}
		if (found == LOOK_NOTHING)
			written = idempotency_insert(table, key, &row);
		else
		{
			held = idempotency_row_is_claim_of(table, owner);
			written = idempotency_replace(table, key, &row, true);
		}
		if (written != WRITE_LOST)
			return held && written == WRITE_DONE;
	}
}

Datum
acemq_idempotency_confirm(PG_FUNCTION_ARGS)
{
	text *key = idempotency_key_arg(fcinfo);
	TimeOffset retention = idempotency_retention_arg(fcinfo, 1);
	text *owner = idempotency_owner_arg(fcinfo, 2);
	IdempotencyTable table;
	bool held;

	PreventCommandIfReadOnly("acemq.idempotency_confirm()");
	idempotency_open(&table, RowExclusiveLock);
	held = confirm(&table, key, retention, owner);
	idempotency_close(&table);
	PG_RETURN_BOOL(held);
}

static SavedPlan forget_plan = {
    "DELETE FROM acemq.idempotency WHERE message_id = $1 AND state = 'CLAIMED' AND claimed_by = $2",
    2,
    {TEXTOID, TEXTOID}};

Datum
acemq_idempotency_forget(PG_FUNCTION_ARGS)
{
	Datum values[] = {PointerGetDatum(idempotency_key_arg(fcinfo)), PointerGetDatum(idempotency_owner_arg(fcinfo, 1))};
	AsOwner save;
	bool forgotten;

	PreventCommandIfReadOnly("acemq.idempotency_forget()");
	store_table_check(&store_idempotency);
	as_owner_begin(&save);
	SPI_connect();
	(void) saved_plan_run_fresh(&forget_plan, values, NULL, false);
	forgotten = SPI_processed > 0;
	SPI_finish();
	as_owner_end(&save);
	PG_RETURN_BOOL(forgotten);
}

Datum
acemq_idempotency_confirmed(PG_FUNCTION_ARGS)
{
	text *key = idempotency_key_arg(fcinfo);
	IdempotencyTable table;
	bool confirmed;

	idempotency_open(&table, AccessShareLock);
	confirmed = idempotency_is_confirmed(&table, key, GetCurrentTimestamp());
	idempotency_close(&table);
	PG_RETURN_BOOL(confirmed);
}
