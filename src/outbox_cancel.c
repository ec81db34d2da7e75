/*
 * outbox_cancel.c
 *		acemq.outbox_cancel(): take a message back before the relay has it.
 *
 * May depend on: as_owner.h, saved_plan.h, sql_args.h, fetched.h, given_back.h, wake.h.
 */
#include "postgres.h"

#include "as_owner.h"
#include "fetched.h"
#include "given_back.h"
#include "saved_plan.h"
#include "sql_args.h"
#include "wake.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "utils/resowner.h"

PG_FUNCTION_INFO_V1(acemq_outbox_cancel);

/*
 * The three lookups go from cheap to dear; each WHERE clause is the predicate
 * of the index that serves it, the last one has none.  A row kept after it was
 * published, or leased to a relay outside the server, can no longer be taken
 * back: `out` says so.  An expired lease counts too, because nobody knows what
 * its holder did before it vanished.
 */
#define LOOKUP(condition)                                                                                              \
	"SELECT id, retired_at IS NOT NULL, published_at IS NOT NULL OR leased_until IS NOT NULL, "                        \
	"next_attempt_at IS NOT NULL "                                                                                     \
	"FROM acemq.outbox WHERE message_id = $1 AND " condition " FOR UPDATE"

static SavedPlan lookups[] = {
    {LOOKUP("caller_id"), 1, {TEXTOID}},
    {LOOKUP("NOT caller_id AND (not_before IS NOT NULL OR retired_at IS NOT NULL)"), 1, {TEXTOID}},
    {LOOKUP("NOT caller_id AND not_before IS NULL AND retired_at IS NULL AND published_at IS NULL"), 1, {TEXTOID}}};

static SavedPlan delete_row = {"DELETE FROM acemq.outbox WHERE id = $1", 1, {INT8OID}};

typedef struct Cancelled
{
	int pending;
	int retired;
} Cancelled;

/*
 * Lock every row of that message id.  There is one, except that rows written
 * past outbox_add() may share a generated id; then all of them are the message.
 */
static bool
lock_rows(text *message_id)
{
	Datum values[] = {PointerGetDatum(message_id)};

	for (int i = 0; i < lengthof(lookups); i++)
	{
		saved_plan_run_fresh(&lookups[i], values, NULL, false);
		if (SPI_processed > 0)
			return true;
		SPI_freetuptable(SPI_tuptable);
	}
	return false;
}

/* The rows of the last result, unless the relay or another one has some of them. */
static bool
delete_rows(Cancelled *cancelled)
{
	SPITupleTable *rows = SPI_tuptable;
	uint64 nrows = SPI_processed;
	FetchedIds fetched;

	for (uint64 i = 0; i < nrows; i++)
		given_back_on_abort(spi_int64(i, 1));
	fetched = fetched_now();
	for (uint64 i = 0; i < nrows; i++)
		if (spi_bool(i, 3) || fetched_contains(&fetched, spi_int64(i, 1)))
			return false;

	for (uint64 i = 0; i < nrows; i++)
	{
		Datum values[1];

		SPI_tuptable = rows;
		values[0] = Int64GetDatum(spi_int64(i, 1));
		if (spi_bool(i, 2))
			cancelled->retired++;
		else
			cancelled->pending++;
		/* It has failed, and its lane waits for it. */
		if (spi_bool(i, 4))
			wake_note_freed(spi_int64(i, 1));
		saved_plan_run_fresh(&delete_row, values, NULL, false);
	}
	return true;
}

/* The subtransaction is ours, so a caller that catches the error must not find it still open. */
static void
rollback_and_throw(MemoryContext context, ResourceOwner owner)
{
	ErrorData *error;

	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	FlushErrorState();
	RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	ReThrowError(error);
}

/*
 * In a subtransaction, so that a refusal gives the row lock back at once: the
 * relay passes over a row that is locked.
 */
static bool
cancel_rows(text *message_id, Cancelled *cancelled)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile bool done = false;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		done = lock_rows(message_id) && delete_rows(cancelled);
		if (done)
			ReleaseCurrentSubTransaction();
		else
			RollbackAndReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		rollback_and_throw(context, owner);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return done;
}

Datum
acemq_outbox_cancel(PG_FUNCTION_ARGS)
{
	text *message_id = arg_text(fcinfo, 0, "message_id");
	Cancelled cancelled = {0, 0};
	AsOwner save;
	bool done;

	as_owner_begin(&save);
	SPI_connect();
	done = cancel_rows(message_id, &cancelled);
	SPI_finish();
	as_owner_end(&save);

	if (done)
		wake_note_change(-cancelled.pending, -cancelled.retired);
	PG_RETURN_BOOL(done);
}
