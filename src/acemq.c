/*-------------------------------------------------------------------------
 *
 * acemq.c
 *		_PG_init: the order of initialisation and nothing else.
 *
 * The library works without being preloaded (functions, dump and restore);
 * then there is no shared memory and no relay.  In a pg_upgrade neither
 * settings nor processes are wanted: rows must stay where they are.
 *
 * May depend on: everything.
 *
 *-------------------------------------------------------------------------
 */
#include "acemq.h"

#include "compat.h"
#include "ddl_watch.h"
#include "guc.h"
#include "launcher.h"
#include "shmem.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/guc.h"

compat_module_magic;

PGDLLEXPORT void _PG_init(void);

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
	launcher_register();
}
