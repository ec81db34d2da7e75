/*-------------------------------------------------------------------------
 *
 * acemq.c
 *		_PG_init: the order of initialisation and nothing else.
 *
 * The library works without being preloaded (functions, dump and restore);
 * then there is no shared memory and no relay.  In a pg_upgrade neither
 * settings nor processes are wanted: rows must stay where they are.
 *
 * The launcher is known here by its name only: nothing of src/ depends on
 * what our processes run.
 *
 * May depend on: all of src/.
 *
 *-------------------------------------------------------------------------
 */
#include "acemq.h"

#include "compat.h"
#include "ddl_watch.h"
#include "guc.h"
#include "shmem.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "utils/guc.h"

compat_module_magic;

PGDLLEXPORT void _PG_init(void);

static void register_launcher(void);

void
_PG_init(void)
{
	if (IsBinaryUpgrade)
		return;

	acemq_guc_init(process_shared_preload_libraries_in_progress);
	if (!process_shared_preload_libraries_in_progress)
		return;

	MarkGUCPrefixReserved("acemq");
	acemq_shmem_init();
	ddl_watch_init();
	register_launcher();
}

static void
register_launcher(void)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	strlcpy(worker.bgw_name, "acemq launcher", sizeof(worker.bgw_name));
	strlcpy(worker.bgw_type, "acemq launcher", sizeof(worker.bgw_type));
	strlcpy(worker.bgw_library_name, "acemq", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "acemq_launcher_main", sizeof(worker.bgw_function_name));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	/* Not on a standby; the postmaster starts it at promotion. */
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = 5;
	RegisterBackgroundWorker(&worker);
}
