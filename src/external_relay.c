/*
 * external_relay.c
 *		acemq.outbox_mark_published() and acemq.outbox_mark_failed(): a relay
 *		outside the server reports what became of a row it had leased.
 *
 * Finishing needs the lease, and the lease is the name in leased_by: a relay
 * whose time ran out may still finish as long as nobody else took the row,
 * because what it reports is true.  The in-server relay takes a row by holding
 * it in memory, without a write, so that has to be looked at too.
 *
 * May depend on: as_owner.h, saved_plan.h, sql_args.h, fetched.h, backoff.h,
 * guc.h, uuid.h, wake.h.
 */
#include "external_relay.h"

#include "as_owner.h"
#include "backoff.h"
#include "fetched.h"
#include "guc.h"
#include "saved_plan.h"
#include "sql_args.h"
#include "uuid.h"
#include "wake.h"

#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(acemq_outbox_mark_published);
PG_FUNCTION_INFO_V1(acemq_outbox_mark_failed);

static SavedPlan lock_leased = {"SELECT attempts::bigint FROM acemq.outbox WHERE id = $1 AND leased_by = $2"
                                " AND retired_at IS NULL AND published_at IS NULL FOR UPDATE",
                                2,
                                {INT8OID, TEXTOID}};

static SavedPlan delete_row = {"DELETE FROM acemq.outbox WHERE id = $1", 1, {INT8OID}};

static SavedPlan keep_published = {"UPDATE acemq.outbox SET published_at = clock_timestamp(), next_attempt_at = NULL,"
                                   " leased_until = NULL, leased_by = NULL WHERE id = $1",
                                   1,
                                   {INT8OID}};

static SavedPlan write_failure = {"UPDATE acemq.outbox SET attempts = $2, last_error = $3, next_attempt_at = $4,"
                                  " retired_at = CASE WHEN $4 IS NULL THEN clock_timestamp() END,"
                                  " leased_until = NULL, leased_by = NULL WHERE id = $1",
                                  4,
                                  {INT8OID, INT4OID, TEXTOID, TIMESTAMPTZOID}};

/* Random and not the process id, which another process will have tomorrow. */
text *
external_relay_arg(FunctionCallInfo fcinfo, int n)
{
	static char session[UUID_TEXT_LEN + 1];

	if (!PG_ARGISNULL(n))
		return cstring_to_text(arg_words(fcinfo, n, "relay"));
	if (session[0] == '\0')
		uuid_v4(session);
	return cstring_to_text(session);
}

/* The row, locked, if it is still ours to finish. */
static bool
lock_own_row(int64 id, text *relay, int *attempts)
{
	Datum values[] = {Int64GetDatum(id), PointerGetDatum(relay)};
	FetchedIds fetched;

	saved_plan_run_fresh(&lock_leased, values, NULL, false);
	if (SPI_processed == 0)
		return false;
	*attempts = (int) spi_int64(0, 1);
	fetched = fetched_now();
	return !fetched_contains(&fetched, id);
}

void
external_relay_fail(int64 id, int attempts_so_far, const char *reason)
{
	int attempts = attempts_so_far + 1;
	bool retire = attempts >= acemq_max_attempts;
	int64 delay = backoff_delay_ms(attempts, acemq_retry_delay, acemq_retry_delay_max);
	int len = pg_mbcliplen(reason, strlen(reason), ACEMQ_ERROR_TEXT - 1);
	Datum values[] = {Int64GetDatum(id), Int32GetDatum(attempts),
	                  PointerGetDatum(cstring_to_text_with_len(reason, len)),
	                  TimestampTzGetDatum(TimestampTzPlusMilliseconds(GetCurrentTimestamp(), delay))};

	saved_plan_run_fresh(&write_failure, values, retire ? "   n" : NULL, false);
	wake_note_freed(id);
	if (retire)
		wake_note_change(-1, 1);
}

Datum
acemq_outbox_mark_published(PG_FUNCTION_ARGS)
{
	text *relay = external_relay_arg(fcinfo, 1);
	int attempts;
	AsOwner save;
	bool ours;
	Datum values[1];

	arg_not_null(fcinfo, 0, "id");
	values[0] = Int64GetDatum(PG_GETARG_INT64(0));

	as_owner_begin(&save);
	SPI_connect();
	ours = lock_own_row(PG_GETARG_INT64(0), relay, &attempts);
	if (ours)
	{
		saved_plan_run_fresh(acemq_outbox_retention > 0 ? &keep_published : &delete_row, values, NULL, false);
		wake_note_freed(PG_GETARG_INT64(0));
		wake_note_change(-1, 0);
	}
	SPI_finish();
	as_owner_end(&save);
	PG_RETURN_BOOL(ours);
}

Datum
acemq_outbox_mark_failed(PG_FUNCTION_ARGS)
{
	char *reason = arg_words(fcinfo, 1, "reason");
	text *relay = external_relay_arg(fcinfo, 2);
	int attempts;
	AsOwner save;
	bool ours;

	arg_not_null(fcinfo, 0, "id");

	as_owner_begin(&save);
	SPI_connect();
	ours = lock_own_row(PG_GETARG_INT64(0), relay, &attempts);
	if (ours)
		external_relay_fail(PG_GETARG_INT64(0), attempts, reason);
	SPI_finish();
	as_owner_end(&save);
	PG_RETURN_BOOL(ours);
}
