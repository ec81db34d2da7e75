/*
 * outbox_retired.c
 *		What an operator does with retired rows: back into their lane, or away.
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

Datum
acemq_outbox_release(PG_FUNCTION_ARGS)
{
	Datum values[] = {PointerGetDatum(arg_text(fcinfo, 0, "message_id"))};
	AsOwner save;
	uint64 released;

	as_owner_begin(&save);
	SPI_connect();
	saved_plan_run(&release_one, values, NULL);
	released = SPI_processed;
	for (uint64 i = 0; i < released; i++)
		note_released(spi_int64(i, 1));
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
