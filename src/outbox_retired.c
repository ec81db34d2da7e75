/*
 * outbox_retired.c
 *		What an operator does with rows that failed: retired ones go back into
 *		their lane, or away; one that backs off is tried now.
 *
 * May depend on: as_owner.h, batches.h, sql_args.h, wake.h.
 */
#include "postgres.h"

#include "as_owner.h"
#include "batches.h"
#include "sql_args.h"
#include "wake.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(acemq_outbox_release);
PG_FUNCTION_INFO_V1(acemq_outbox_release_all);
PG_FUNCTION_INFO_V1(acemq_outbox_discard);

/* Spelled out twice so that each half is served by a partial index. */
#define RETIRED_BY_MESSAGE_ID                                                                                          \
	"SELECT id FROM acemq.outbox WHERE message_id = $1 AND caller_id AND retired_at IS NOT NULL "                      \
	"UNION ALL "                                                                                                       \
	"SELECT id FROM acemq.outbox WHERE message_id = $1 AND NOT caller_id AND retired_at IS NOT NULL"

#define MAKE_PENDING                                                                                                   \
	"UPDATE acemq.outbox SET attempts = 0, last_error = NULL, retired_at = NULL, next_attempt_at = NULL "

static SavedPlan release_one = {MAKE_PENDING "WHERE id = ANY (ARRAY(" RETIRED_BY_MESSAGE_ID
                                             ")) AND retired_at IS NOT NULL RETURNING id",
                                1,
                                {TEXTOID}};

/*
 * Of the rows that wait only those that back off: another one gains nothing.
 * From cheap to dear, as in outbox_cancel: a generated id has no index while its
 * row waits.
 */
#define BACKS_OFF "retired_at IS NULL AND published_at IS NULL AND attempts > 0 AND next_attempt_at > clock_timestamp()"

static SavedPlan retry_one[] = {
    {MAKE_PENDING "WHERE message_id = $1 AND caller_id AND " BACKS_OFF " RETURNING id", 1, {TEXTOID}},
    {MAKE_PENDING "WHERE message_id = $1 AND NOT caller_id AND not_before IS NOT NULL AND " BACKS_OFF " RETURNING id",
     1,
     {TEXTOID}},
    {MAKE_PENDING "WHERE message_id = $1 AND NOT caller_id AND not_before IS NULL AND " BACKS_OFF " RETURNING id",
     1,
     {TEXTOID}}};

static SavedPlan find_backing_off = {
    "SELECT id FROM acemq.outbox WHERE " BACKS_OFF " AND ($1 IS NULL OR exchange = $1) ORDER BY id", 1, {TEXTOID}};

static SavedPlan retry_many = {MAKE_PENDING "WHERE id = ANY ($1) AND " BACKS_OFF " RETURNING id", 1, {INT8ARRAYOID}};

static SavedPlan find_retired = {
    "SELECT id FROM acemq.outbox WHERE retired_at IS NOT NULL AND ($1 IS NULL OR exchange = $1) ORDER BY id",
    1,
    {TEXTOID}};

static SavedPlan release_many = {
    MAKE_PENDING "WHERE id = ANY ($1) AND retired_at IS NOT NULL RETURNING id", 1, {INT8ARRAYOID}};

static SavedPlan discard_one = {"DELETE FROM acemq.outbox WHERE id = ANY (ARRAY(" RETIRED_BY_MESSAGE_ID
                                ")) AND retired_at IS NOT NULL "
                                "RETURNING id, exchange, routing_key, attempts, last_error",
                                1,
                                {TEXTOID}};

/*
 * The worker has long read past a row that comes back, so it has to be told
 * like one that was added late.
 */
static void
note_released(int64 id)
{
	wake_note_added(id);
	wake_note_change(0, -1);
}

/* The same for one that backs off, except that it has been counted as pending all the time. */
static void
note_retried(int64 id)
{
	wake_note_added(id);
	wake_note_freed(id); /* it may be cancelled before the worker has come to it */
	wake_note_change(-1, 0);
}

static uint64
change_one(SavedPlan *statement, Datum *values, void (*each)(int64 id))
{
	uint64 changed;

	saved_plan_run(statement, values, NULL);
	changed = SPI_processed;
	for (uint64 i = 0; i < changed; i++)
		each(spi_int64(i, 1));
	SPI_freetuptable(SPI_tuptable);
	return changed;
}

Datum
acemq_outbox_release(PG_FUNCTION_ARGS)
{
	Datum values[] = {PointerGetDatum(arg_text(fcinfo, 0, "message_id"))};
	AsOwner save;
	uint64 released;

	as_owner_begin(&save);
	SPI_connect();
	released = change_one(&release_one, values, note_released);
	for (int i = 0; i < lengthof(retry_one) && released == 0; i++)
		released = change_one(&retry_one[i], values, note_retried);
	SPI_finish();
	as_owner_end(&save);
	PG_RETURN_BOOL(released > 0);
}

Datum
acemq_outbox_release_all(PG_FUNCTION_ARGS)
{
	Datum values[] = {PG_ARGISNULL(0) ? (Datum) 0 : PointerGetDatum(PG_GETARG_TEXT_PP(0))};
	const char *nulls = PG_ARGISNULL(0) ? "n" : NULL;
	AsOwner save;
	int64 released;

	as_owner_begin(&save);
	SPI_connect();
	released = run_in_batches(&find_retired, values, nulls, &release_many, note_released);
	released += run_in_batches(&find_backing_off, values, nulls, &retry_many, note_retried);
	SPI_finish();
	as_owner_end(&save);
	PG_RETURN_INT64(released);
}

/* One line per row in the server's log: it is all that will be left of the message. */
static void
log_discarded(const char *message_id, const char *reason, Oid role)
{
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		char *error = spi_text(i, 5);

		ereport(
		    LOG,
		    (errmsg("acemq: role \"%s\" discards retired message \"%s\" for exchange \"%s\", routing key \"%s\": %s",
		            GetUserNameFromId(role, false), message_id, spi_text(i, 2), spi_text(i, 3), reason),
		     errdetail("It had failed %s times; the last error was: %s", spi_text(i, 4), error ? error : "unknown"),
		     errhidestmt(true)));
	}
}

Datum
acemq_outbox_discard(PG_FUNCTION_ARGS)
{
	text *message_id = arg_text(fcinfo, 0, "message_id");
	char *reason = arg_words(fcinfo, 1, "reason");
	Datum values[] = {PointerGetDatum(message_id)};
	AsOwner save;
	uint64 discarded;

	as_owner_begin(&save);
	SPI_connect();
	saved_plan_run(&discard_one, values, NULL);
	discarded = SPI_processed;
	log_discarded(TextDatumGetCString(values[0]), reason, save.user);
	SPI_finish();
	as_owner_end(&save);

	if (discarded > 0)
		wake_note_change(0, -(int64) discarded);
	PG_RETURN_BOOL(discarded > 0);
}
