/*
 * idempotency_purge.c
 *		acemq.idempotency_purge(): remove rows that count for nothing any more.
 *
 * The worker does the same in the background, with a statement of its own
 * (bgworker/idempotency_purge.c).
 *
 * May depend on: as_owner.h, saved_plan.h, store_table.h.
 */
#include "as_owner.h"
#include "saved_plan.h"
#include "store_table.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(acemq_idempotency_purge);

/*
 * A thousand rows at a time, each batch with a snapshot of its own and from
 * where the last one ended, so that it does not walk over the rows that are
 * gone.  What somebody is taking over, or looking at FOR UPDATE, is passed over.
 */
static SavedPlan purge_plan = {
    "WITH gone AS (DELETE FROM ONLY acemq.idempotency WHERE ctid = ANY (ARRAY("
    "SELECT ctid FROM ONLY acemq.idempotency "
    "WHERE expires_at >= $1 AND expires_at <= $2 ORDER BY expires_at LIMIT 1000 FOR UPDATE SKIP LOCKED)) "
    "RETURNING expires_at) SELECT count(*), max(expires_at) FROM gone",
    2,
    {TIMESTAMPTZOID, TIMESTAMPTZOID}};

/* The order of the index is all that counts: not how many rows there were when the table was last analyzed. */
static void
plan_for_the_index(void)
{
	static const char *const off[] = {"enable_seqscan", "enable_bitmapscan", "enable_sort"};

	for (int i = 0; i < lengthof(off); i++)
		(void) set_config_option(off[i], "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

static int64
purge_expired(void)
{
	Datum values[] = {TimestampTzGetDatum(DT_NOBEGIN), TimestampTzGetDatum(GetCurrentTimestamp())};
	int64 purged = 0;
	int64 batch;

	do
	{
		bool isnull;

		CHECK_FOR_INTERRUPTS();
		(void) saved_plan_run_fresh(&purge_plan, values, NULL, false);
		batch = spi_int64(0, 1);
		purged += batch;
		if (batch > 0)
			values[0] = spi_value(0, 2, &isnull);
		SPI_freetuptable(SPI_tuptable);
	} while (batch > 0);
	return purged;
}

Datum
acemq_idempotency_purge(PG_FUNCTION_ARGS)
{
	AsOwner save;
	int64 purged;

	PreventCommandIfReadOnly("acemq.idempotency_purge()");
	store_table_check(&store_idempotency);
	as_owner_begin(&save);
	plan_for_the_index();
	SPI_connect();
	purged = purge_expired();
	SPI_finish();
	as_owner_end(&save);
	PG_RETURN_INT64(purged);
}
