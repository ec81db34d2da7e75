/*
 * outbox_purge.c
 *		acemq.outbox_purge(): remove published rows that were kept for a while.
 *
 * May depend on: as_owner.h, batches.h, sql_args.h.
 */
#include "postgres.h"

#include "as_owner.h"
#include "batches.h"
#include "sql_args.h"

#include "catalog/pg_type.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(acemq_outbox_purge);

/*
 * A row that somebody else is purging, or looking at FOR UPDATE, is passed
 * over: two purges never wait for each other, let alone deadlock.  Published
 * is a row's last state, so a row that was found need not be tested again.
 */
static SavedPlan find_published = {
    "SELECT id FROM acemq.outbox WHERE published_at < $1 ORDER BY published_at FOR UPDATE SKIP LOCKED",
    1,
    {TIMESTAMPTZOID}};

static SavedPlan delete_published = {"DELETE FROM acemq.outbox WHERE id = ANY ($1) RETURNING id", 1, {INT8ARRAYOID}};

Datum
acemq_outbox_purge(PG_FUNCTION_ARGS)
{
	int64 older_than_ms = arg_interval_ms(fcinfo, 0, "older_than", 0);
	Datum values[] = {TimestampTzGetDatum(TimestampTzPlusMilliseconds(GetCurrentTimestamp(), -older_than_ms))};
	AsOwner save;
	int64 purged;

	as_owner_begin(&save);
	SPI_connect();
	purged = run_in_batches(&find_published, values, NULL, &delete_published, NULL);
	SPI_finish();
	as_owner_end(&save);
	PG_RETURN_INT64(purged);
}
