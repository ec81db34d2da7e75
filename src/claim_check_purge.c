/*
 * claim_check_purge.c
 *		acemq.claim_check_purge(): remove payloads that nobody will ask for.
 *
 * May depend on: as_owner.h, claim_check_frame.h, saved_plan.h, sql_args.h, store_table.h.
 */
#include "acemq.h"

#include "as_owner.h"
#include "claim_check_frame.h"
#include "saved_plan.h"
#include "sql_args.h"
#include "store_table.h"

#include "catalog/pg_type.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(acemq_claim_check_purge);

/*
 * A body that refers to a payload has 4 to 131 bytes.  The length of a body is
 * known without fetching it, and CASE sees to it that only short ones are
 * looked into.  Bytes are compared, so that a malformed key in a body is none of
 * ours, not an error.
 *
 * A payload that somebody is deleting is passed over: this never waits.  No
 * string with a backslash in here: what it means is the caller's setting.
 */
static SavedPlan purge = {
    "WITH unused AS MATERIALIZED ("
    " SELECT c.key FROM acemq.claim_check c WHERE c.created_at <= $1 AND NOT EXISTS ("
    "  SELECT FROM acemq.outbox o WHERE o.published_at IS NULL"
    "  AND CASE WHEN octet_length(o.body) BETWEEN 4 AND 131 THEN substr(o.body, 1, 3) = $2 ELSE false END"
    "  AND substr(o.body, 4) = convert_to(c.key, 'SQL_ASCII'))"
    " FOR UPDATE OF c SKIP LOCKED) "
    "DELETE FROM acemq.claim_check c USING unused u WHERE c.key = u.key",
    2,
    {TIMESTAMPTZOID, BYTEAOID}};

/*
 * Rows of the outbox that a policy hides are referred to all the same: better an
 * error than a payload that is missed.  Planned at every call: a plan that was made while the outbox was empty would
 * go through all of it for every payload.  As the owner, whose settings end
 * with as_owner_end().
 */
static void
see_everything_and_plan_anew(void)
{
	(void) set_config_option("row_security", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	(void) set_config_option("plan_cache_mode", "force_custom_plan", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true,
	                         0, false);
}

Datum
acemq_claim_check_purge(PG_FUNCTION_ARGS)
{
	int64 older_than_ms = arg_interval_ms(fcinfo, 0, "older_than", 0);
	Datum values[] = {TimestampTzGetDatum(TimestampTzPlusMilliseconds(GetCurrentTimestamp(), -older_than_ms)),
	                  PointerGetDatum(claim_check_framed(CLAIM_CHECK_CHECKED, "", 0))};
	AsOwner save;
	int64 purged;

	store_table_check(&store_claim_check);
	as_owner_begin(&save);
	see_everything_and_plan_anew();
	SPI_connect();
	/* With a snapshot of now: a message that has been committed meanwhile keeps its payload. */
	saved_plan_run_fresh(&purge, values, NULL, false);
	purged = (int64) SPI_processed;
	SPI_finish();
	as_owner_end(&save);
	PG_RETURN_INT64(purged);
}
