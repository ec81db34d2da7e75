/*-------------------------------------------------------------------------
 *
 * worker_control.c
 *		SQL functions about the processes: restart, version, first start.
 *
 * May depend on: shmem.h, wake.h.
 *
 *-------------------------------------------------------------------------
 */
#include "acemq.h"

#include "shmem.h"
#include "wake.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/indexing.h"
#include "catalog/pg_extension.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(acemq_worker_restart);
PG_FUNCTION_INFO_V1(acemq_version);
PG_FUNCTION_INFO_V1(acemq_extension_created);

static bool end_worker(AcemqSlot *slot);
static char *sql_version(void);

/*
 * acemq.worker_restart() -> boolean
 *
 * End the worker of this database; the launcher starts a new one at once, also
 * where none was running.  True if there was one.
 */
Datum
acemq_worker_restart(PG_FUNCTION_ARGS)
{
	AcemqSlot *slot = acemq_my_slot();
	bool ended;

	if (acemq_shared == NULL)
		ereport(ERROR, (errcode(ERRCODE_ACEMQ_NO_RELAY), errmsg("the library acemq was not loaded at server start"),
		                errhint("Add acemq to \"shared_preload_libraries\" and restart the server.")));

	ended = slot != NULL && end_worker(slot);
	acemq_wake_launcher();
	PG_RETURN_BOOL(ended);
}

/* Under the lock no successor can attach and take the request for one to itself. */
static bool
end_worker(AcemqSlot *slot)
{
	bool found;

	LWLockAcquire(acemq_shared->lock, LW_SHARED);
	found = slot->database == MyDatabaseId && slot->worker_pid != 0;
	if (found)
		acemq_ask_to_leave(slot);
	LWLockRelease(acemq_shared->lock);
	return found;
}

/* acemq.version() -> text: "library 0.1.0, SQL 0.1.0" */
Datum
acemq_version(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(psprintf("library %s, SQL %s", ACEMQ_VERSION, sql_version())));
}

/* By scan: not every version of the server has a system cache for extensions. */
static char *
sql_version(void)
{
	Relation rel = table_open(ExtensionRelationId, AccessShareLock);
	char *version = "none";
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple tuple;

	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ, CStringGetDatum(ACEMQ_EXTENSION));
	scan = systable_beginscan(rel, ExtensionNameIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool isnull;
		Datum value = heap_getattr(tuple, Anum_pg_extension_extversion, RelationGetDescr(rel), &isnull);

		if (!isnull)
			version = text_to_cstring(DatumGetTextPP(value));
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return version;
}

/* Called by the install script: when it commits, the launcher starts a worker for this database. */
Datum
acemq_extension_created(PG_FUNCTION_ARGS)
{
	wake_launcher_at_commit();
	PG_RETURN_VOID();
}
