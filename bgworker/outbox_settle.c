/*-------------------------------------------------------------------------
 *
 * outbox_settle.c
 *		Writing to the outbox: what became of a row.
 *
 * A confirmed row is deleted; there is no other write on the happy path.  A
 * row that somebody else has locked must not hold up the worker: the plain
 * statement runs into lock_timeout (a few ms, set in worker.c), the turn is
 * skipped, and the next one takes the careful statement, which asks for each
 * row lock first and leaves out what it cannot have.
 *
 * May depend on: outbox_store.h, db.h, src/guc.h.
 *
 *-------------------------------------------------------------------------
 */
#include "outbox_store.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "guc.h"

/* Set before a plain settle and cleared after it: still set means that the last one did not come to its end. */
static bool be_careful = false;

static int lock_rows(const int64 *ids, int count, int64 *locked);
static void mark_absent_done(const int64 *ids, int count, bool *done);
static void remove_rows(const int64 *ids, int count);
static void require_removed(const int64 *ids, int count);

void
store_settle(const int64 *ids, int count, bool *done)
{
	if (be_careful)
	{
		int64 *locked = palloc(sizeof(int64) * count);
		int nlocked = lock_rows(ids, count, locked);

		remove_rows(locked, nlocked);
		mark_absent_done(ids, count, done);
		be_careful = false;
		return;
	}

	be_careful = true;
	remove_rows(ids, count);
	be_careful = false;
	memset(done, true, sizeof(bool) * count);
}

static void
remove_rows(const int64 *ids, int count)
{
	static DbStatement delete_rows = {
	    "DELETE FROM acemq.outbox WHERE id OPERATOR(pg_catalog.=) ANY ($1)", 1, {INT8ARRAYOID}};
	static DbStatement mark_rows = {
	    "UPDATE acemq.outbox SET published_at = pg_catalog.clock_timestamp(), next_attempt_at = NULL"
	    " WHERE id OPERATOR(pg_catalog.=) ANY ($1) AND published_at IS NULL",
	    1,
	    {INT8ARRAYOID}};
	Datum values[] = {db_int8_array(ids, count)};
	uint64 removed;

	if (acemq_outbox_retention > 0)
		removed = db_execute(&mark_rows, values, NULL, 0, SPI_OK_UPDATE);
	else
		removed = db_execute(&delete_rows, values, NULL, 0, SPI_OK_DELETE);
	if (removed < (uint64) count)
		require_removed(ids, count);
}

/* Fewer than there were: somebody else has removed the others, or a trigger has kept them, and they would be sent again. */
static void
require_removed(const int64 *ids, int count)
{
	bool *done = palloc(sizeof(bool) * count);

	mark_absent_done(ids, count, done);
	for (int i = 0; i < count; i++)
		if (!done[i])
			ereport(ERROR, (errcode(ERRCODE_TRIGGERED_DATA_CHANGE_VIOLATION),
			                errmsg("a trigger has kept the published row with id " INT64_FORMAT, ids[i])));
	pfree(done);
}

static int
lock_rows(const int64 *ids, int count, int64 *locked)
{
	static DbStatement statement = {
	    "SELECT id FROM acemq.outbox WHERE id OPERATOR(pg_catalog.=) ANY ($1) ORDER BY id FOR UPDATE SKIP LOCKED",
	    1,
	    {INT8ARRAYOID}};
	Datum values[] = {db_int8_array(ids, count)};
	int nlocked = (int) db_execute(&statement, values, NULL, 0, SPI_OK_SELECT);
	bool isnull;

	for (int i = 0; i < nlocked; i++)
		locked[i] = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull));
	return nlocked;
}

/* Done is what is not pending any more: removed by us just now, or gone before. */
static void
mark_absent_done(const int64 *ids, int count, bool *done)
{
	static DbStatement statement = {
	    "SELECT id FROM acemq.outbox WHERE id OPERATOR(pg_catalog.=) ANY ($1) AND published_at IS NULL",
	    1,
	    {INT8ARRAYOID}};
	Datum values[] = {db_int8_array(ids, count)};
	uint64 nleft = db_execute(&statement, values, NULL, 0, SPI_OK_SELECT);

	memset(done, true, sizeof(bool) * count);
	for (uint64 left = 0; left < nleft; left++)
	{
		bool isnull;
		int64 id = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[left], SPI_tuptable->tupdesc, 1, &isnull));

		for (int i = 0; i < count; i++)
			if (ids[i] == id)
				done[i] = false;
	}
}

bool
store_fail(const StoreFailure *failure)
{
	static DbStatement statement = {
	    "UPDATE acemq.outbox SET attempts = $2, last_error = $3, next_attempt_at = $4,"
	    " leased_until = NULL, leased_by = NULL,"
	    " retired_at = CASE WHEN $5 THEN pg_catalog.clock_timestamp() END,"
	    " ladder_due_at = CASE WHEN NOT $6 THEN ladder_due_at END WHERE id OPERATOR(pg_catalog.=) $1",
	    6,
	    {INT8OID, INT4OID, TEXTOID, TIMESTAMPTZOID, BOOLOID, BOOLOID}};
	Datum values[] = {Int64GetDatum(failure->id),          Int32GetDatum(failure->attempts),
	                  CStringGetTextDatum(failure->error), TimestampTzGetDatum(failure->next_attempt_at),
	                  BoolGetDatum(failure->retire),       BoolGetDatum(failure->off_ladder)};
	int64 locked;

	if (lock_rows(&failure->id, 1, &locked) == 0)
	{
		bool gone;

		mark_absent_done(&failure->id, 1, &gone);
		return gone;
	}
	db_execute(&statement, values, failure->retire ? "   n  " : NULL, 0, SPI_OK_UPDATE);
	return true;
}

bool
store_requeue_due(int64 id)
{
	static DbStatement statement = {"UPDATE acemq.outbox SET id = "
	                                "pg_catalog.nextval('acemq.outbox_id_seq'::pg_catalog.regclass), not_before = NULL,"
	                                " next_attempt_at = not_before"
	                                " WHERE id OPERATOR(pg_catalog.=) $1",
	                                1,
	                                {INT8OID}};
	Datum values[] = {Int64GetDatum(id)};
	int64 locked;

	if (lock_rows(&id, 1, &locked) == 0)
		return false;
	db_execute(&statement, values, NULL, 0, SPI_OK_UPDATE);
	return true;
}

int
store_purge_published(int limit)
{
	static DbStatement statement = {
	    "DELETE FROM acemq.outbox WHERE id OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT id FROM acemq.outbox"
	    " WHERE published_at OPERATOR(pg_catalog.<) $1 ORDER BY published_at LIMIT $2 FOR UPDATE SKIP LOCKED))",
	    2,
	    {TIMESTAMPTZOID, INT8OID}};
	TimestampTz before = GetCurrentTimestamp() - (int64) acemq_outbox_retention * USECS_PER_SEC;
	Datum values[] = {TimestampTzGetDatum(before), Int64GetDatum(limit)};

	return (int) db_execute(&statement, values, NULL, 0, SPI_OK_DELETE);
}
