/*
 * claim_check_store.c
 *		The table of payloads that are checked in.
 *
 * May depend on: as_owner.h, saved_plan.h, store_table.h.
 */
#include "claim_check_store.h"

#include "as_owner.h"
#include "saved_plan.h"
#include "store_table.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"

static SavedPlan insert_payload = {
    "INSERT INTO acemq.claim_check (key, payload) VALUES ($1, $2)", 2, {TEXTOID, BYTEAOID}};

static SavedPlan find_payload = {"SELECT payload FROM acemq.claim_check WHERE key = $1", 1, {TEXTOID}};

static SavedPlan delete_payload = {"DELETE FROM acemq.claim_check WHERE key = $1", 1, {TEXTOID}};

/*
 * The payload is not detoasted here: what comes out of another table still
 * compressed is stored as it is.
 */
void
claim_check_store_put(const char *key, Datum payload)
{
	Datum values[] = {CStringGetTextDatum(key), payload};
	AsOwner save;

	store_table_check(&store_claim_check);
	as_owner_begin(&save);
	SPI_connect();
	saved_plan_run(&insert_payload, values, NULL);
	/* Only a trigger of the table's owner can do that; the key is on its way to a receiver already. */
	if (SPI_processed != 1)
		ereport(ERROR, (errcode(ERRCODE_TRIGGERED_ACTION_EXCEPTION),
		                errmsg("a trigger or rule of table \"%s.claim_check\" has dropped the payload", ACEMQ_SCHEMA)));
	SPI_finish();
	as_owner_end(&save);
}

/*
 * A large payload is in the TOAST table, and is fetched after the snapshot it
 * was found with is gone.  The caller's own snapshot, which is older, keeps it
 * there until then.
 */
bytea *
claim_check_store_get(text *key)
{
	Datum values[] = {PointerGetDatum(key)};
	MemoryContext caller = CurrentMemoryContext;
	bytea *payload = NULL;
	AsOwner save;

	store_table_check(&store_claim_check);
	as_owner_begin(&save);
	SPI_connect();
	saved_plan_run_fresh(&find_payload, values, NULL, true);
	if (SPI_processed > 0)
	{
		bool isnull;
		Datum value = spi_value(0, 1, &isnull);
		MemoryContext spi = MemoryContextSwitchTo(caller);

		payload = (bytea *) PG_DETOAST_DATUM_COPY(value);
		MemoryContextSwitchTo(spi);
	}
	SPI_finish();
	as_owner_end(&save);
	return payload;
}

bool
claim_check_store_delete(text *key)
{
	Datum values[] = {PointerGetDatum(key)};
	AsOwner save;
	bool deleted;

	store_table_check(&store_claim_check);
	as_owner_begin(&save);
	SPI_connect();
	saved_plan_run_fresh(&delete_payload, values, NULL, false);
	deleted = SPI_processed > 0;
	SPI_finish();
	as_owner_end(&save);
	return deleted;
}
