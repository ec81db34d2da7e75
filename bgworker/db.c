/*-------------------------------------------------------------------------
 *
 * db.c
 *		The transaction bracket of our processes.
 *
 * No transaction and no snapshot may be open while bytes travel, and the
 * worker must never wait for a lock that somebody else holds: a user's
 * LOCK TABLE or a DROP EXTENSION in progress makes us skip the turn.  Both
 * rules live here, so that the relay cannot forget them.
 *
 * Holding the extension object itself (AccessShareLock) for the length of the
 * transaction means that the extension cannot vanish under us: DROP EXTENSION
 * takes AccessExclusiveLock on the same object.
 *
 * May depend on: src/compat.h.
 *
 *-------------------------------------------------------------------------
 */
#include "db.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/lmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

static DbExtension lock_extension(Oid *owner);
static bool read_extension(Oid extension, bool *version_fits);
static Oid table_owner(Oid table);
static bool is_internal_error(int sqlerrcode);
static bool is_passing_error(int sqlerrcode);

static char failure[ACEMQ_ERROR_TEXT];

DbExtension
db_check_extension(void)
{
	DbExtension result;
	Oid owner;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	result = lock_extension(&owner);
	PopActiveSnapshot();
	CommitTransactionCommand();
	return result;
}

DbResult
db_run(void (*work)(void *arg), void *arg, const char *activity)
{
	MemoryContext caller = CurrentMemoryContext;
	volatile DbResult result = DB_DONE;

	PG_TRY();
	{
		Oid owner = InvalidOid;
		Oid saved_user;
		int saved_context;

		SetCurrentStatementStartTimestamp();
		pgstat_report_activity(STATE_RUNNING, activity);
		StartTransactionCommand();
		PushActiveSnapshot(GetTransactionSnapshot());

		switch (lock_extension(&owner))
		{
			case DB_EXTENSION_PRESENT:
				break;
			case DB_BUSY:
				result = DB_SKIPPED;
				break;
			default:
				result = DB_GONE;
				break;
		}

		if (result == DB_DONE)
		{
			GetUserIdAndSecContext(&saved_user, &saved_context);
			SetUserIdAndSecContext(owner, saved_context | SECURITY_RESTRICTED_OPERATION);
			SPI_connect();
			work(arg);
			SPI_finish();
			SetUserIdAndSecContext(saved_user, saved_context);
		}

		PopActiveSnapshot();
		CommitTransactionCommand();
	}
	PG_CATCH();
	{
		ErrorData *error;

		MemoryContextSwitchTo(caller);
		error = CopyErrorData();
		if (is_internal_error(error->sqlerrcode))
			PG_RE_THROW();

		/* AbortCurrentTransaction also restores the user id and closes SPI. */
		FlushErrorState();
		AbortCurrentTransaction();
		ereport(DEBUG1, (errcode(error->sqlerrcode), errmsg_internal("acemq: turn skipped: %s", error->message)));
		result = is_passing_error(error->sqlerrcode) ? DB_SKIPPED : DB_FAILED;
		strlcpy(failure, error->message, sizeof(failure));
		FreeErrorData(error);
	}
	PG_END_TRY();

	MemoryContextSwitchTo(caller);
	pgstat_report_stat(false);
	pgstat_report_activity(STATE_IDLE, NULL);
	return result;
}

const char *
db_failure(void)
{
	return failure;
}

/* What must not happen: a fresh process is worth more than what this one knows. */
static bool
is_internal_error(int sqlerrcode)
{
	return ERRCODE_TO_CATEGORY(sqlerrcode) == ERRCODE_INTERNAL_ERROR ||
	       ERRCODE_TO_CATEGORY(sqlerrcode) == ERRCODE_SYSTEM_ERROR;
}

/* Errors that say "not now" about the moment and nothing about the data. */
static bool
is_passing_error(int sqlerrcode)
{
	return sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE || sqlerrcode == ERRCODE_QUERY_CANCELED ||
	       sqlerrcode == ERRCODE_T_R_DEADLOCK_DETECTED || sqlerrcode == ERRCODE_T_R_SERIALIZATION_FAILURE;
}

/*
 * Lock the extension and the outbox for this transaction.  A second look after
 * the lock tells a dropped and recreated extension from the one we found.
 */
static DbExtension
lock_extension(Oid *owner)
{
	Oid extension;
	Oid schema;
	Oid outbox;
	bool version_fits;

	extension = get_extension_oid(ACEMQ_EXTENSION, true);
	if (!OidIsValid(extension))
		return DB_EXTENSION_ABSENT;
	if (!ConditionalLockDatabaseObject(ExtensionRelationId, extension, 0, AccessShareLock))
		return DB_BUSY;
	if (!read_extension(extension, &version_fits))
		return DB_BUSY;
	if (!version_fits)
		return DB_EXTENSION_OTHER_VERSION;

	schema = get_namespace_oid(ACEMQ_SCHEMA, true);
	outbox = OidIsValid(schema) ? get_relname_relid("outbox", schema) : InvalidOid;
	if (!OidIsValid(outbox))
		return DB_BUSY;
	if (!ConditionalLockRelationOid(outbox, RowExclusiveLock))
		return DB_BUSY;
	*owner = table_owner(outbox);
	return OidIsValid(*owner) ? DB_EXTENSION_PRESENT : DB_BUSY;
}

/*
 * Whose rights our statements run with.  The owner of the table and not of the
 * extension: triggers and index expressions that the owner has put on the table
 * must not get more than the owner has.
 */
static Oid
table_owner(Oid table)
{
	HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(table));
	Oid owner;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	return owner;
}

/*
 * pg_extension has no syscache by oid in all supported versions, hence the
 * scan.  The SQL fits when it has the library's own version: releases that
 * accept an older one will widen this test.
 */
static bool
read_extension(Oid extension, bool *version_fits)
{
	Relation rel = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple tuple;
	bool found = false;

	ScanKeyInit(&key, Anum_pg_extension_oid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(extension));
	scan = systable_beginscan(rel, ExtensionOidIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool isnull;
		Datum version = heap_getattr(tuple, Anum_pg_extension_extversion, RelationGetDescr(rel), &isnull);

		*version_fits = !isnull && strcmp(text_to_cstring(DatumGetTextPP(version)), ACEMQ_VERSION) == 0;
		found = true;
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return found;
}

static uint64
execute(DbStatement *statement, Datum *values, const char *nulls, bool read_only, long limit, int expected)
{
	int rc;

	if (statement->plan == NULL)
	{
		statement->plan = SPI_prepare(statement->text, statement->nargs, statement->argtypes);
		if (statement->plan == NULL)
			elog(ERROR, "could not prepare \"%s\": %s", statement->text, SPI_result_code_string(SPI_result));
		SPI_keepplan(statement->plan);
	}

	rc = SPI_execute_plan(statement->plan, values, nulls, read_only, limit);
	if (rc != expected)
		elog(ERROR, "unexpected result of \"%s\": %s", statement->text, SPI_result_code_string(rc));
	return SPI_processed;
}

uint64
db_execute(DbStatement *statement, Datum *values, const char *nulls, long limit, int expected)
{
	return execute(statement, values, nulls, false, limit, expected);
}

uint64
db_select(DbStatement *statement, Datum *values, const char *nulls)
{
	return execute(statement, values, nulls, true, 0, SPI_OK_SELECT);
}

Datum
db_int8_array(const int64 *ids, int count)
{
	Datum *elements = palloc(sizeof(Datum) * Max(count, 1));

	for (int i = 0; i < count; i++)
		elements[i] = Int64GetDatum(ids[i]);
	return PointerGetDatum(construct_array(elements, count, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}
