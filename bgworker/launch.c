/*-------------------------------------------------------------------------
 *
 * launch.c
 *		Starting a worker, telling it to end, and seeing that it has.
 *
 * A worker the server started for us has a handle, and the server tells us
 * when it has ended.  One that outlived an earlier launcher has none: it is
 * known by its process id in the slot.
 *
 * May depend on: launch.h, slots.h, src/shmem.h.
 *
 *-------------------------------------------------------------------------
 */
#include "launch.h"

#include "slots.h"

#include <signal.h>

#include "miscadmin.h"
#include "storage/procarray.h"
#include "utils/timestamp.h"

/* A worker that was asked for by an earlier launcher either attaches within this time or never will. */
#define ADOPTION_MS 10000

static bool register_worker(Database *database);
static bool adopted_is_running(Database *database);
static void ask_to_leave(AcemqSlot *slot);
static bool terminate(Database *database);

LaunchResult
launch_worker(Database *database, TimestampTz now)
{
	bool was_assigned = database->slot != NULL;
	AcemqSlot *slot = slot_begin_launch(database->oid);
	bool on_request;

	if (slot == NULL)
		return LAUNCH_NOT_NOW;

	database->slot = slot;
	if (!register_worker(database))
	{
		(void) slot_end_launch(slot, &on_request);
		if (!was_assigned)
		{
			slot_free(slot);
			database->slot = NULL;
		}
		return LAUNCH_EXHAUSTED;
	}
	database->state = DATABASE_LAUNCHED;
	database->launched_at = now;
	return LAUNCH_DONE;
}

static bool
register_worker(Database *database)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	snprintf(worker.bgw_name, sizeof(worker.bgw_name), "acemq worker %s", database->name);
	strlcpy(worker.bgw_type, "acemq worker", sizeof(worker.bgw_type));
	strlcpy(worker.bgw_library_name, "acemq", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "acemq_worker_main", sizeof(worker.bgw_function_name));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_main_arg = ObjectIdGetDatum(database->oid);
	worker.bgw_notify_pid = MyProcPid;
	return RegisterDynamicBackgroundWorker(&worker, &database->handle);
}

int
launch_count_probes(void)
{
	int count = 0;

	LWLockAcquire(acemq_shared->lock, LW_SHARED);
	for (int i = 0; i < acemq_shared->nslots; i++)
		if (acemq_shared->slots[i].launched && acemq_shared->slots[i].finding == ACEMQ_FOUND_NOTHING_YET)
			count++;
	LWLockRelease(acemq_shared->lock);
	return count;
}

bool
launch_is_running(Database *database)
{
	pid_t pid;

	if (database->handle == NULL)
		return adopted_is_running(database);
	/* Stopped may also mean that it could not be forked: it has ended, and is tried again like any other. */
	return GetBackgroundWorkerPid(database->handle, &pid) != BGWH_STOPPED;
}

/* After it has detached it is still a session of its database for a moment. */
static bool
adopted_is_running(Database *database)
{
	pid_t pid;

	LWLockAcquire(acemq_shared->lock, LW_SHARED);
	pid = database->slot->worker_pid;
	LWLockRelease(acemq_shared->lock);

	if (pid != 0)
	{
		database->adopted_pid = pid;
		return true;
	}
	if (database->adopted_pid != 0)
		return BackendPidGetProc(database->adopted_pid) != NULL;
	return GetCurrentTimestamp() < TimestampTzPlusMilliseconds(database->launched_at, ADOPTION_MS);
}

/* One that has not attached yet will begin by clearing the flag, which then is of an earlier one. */
bool
launch_is_leaving(Database *database)
{
	AcemqSlot *slot = database->slot;
	bool leaving;

	LWLockAcquire(acemq_shared->lock, LW_SHARED);
	leaving = slot->worker_pid != 0 && pg_atomic_read_u32(&slot->leave) != 0;
	LWLockRelease(acemq_shared->lock);
	return leaving;
}

TimestampTz
launch_stop(Database *database, TimestampTz now)
{
	TimestampTz patience;

	if (database->asked_to_leave_at == 0)
	{
		database->asked_to_leave_at = now;
		ask_to_leave(database->slot);
	}
	patience = TimestampTzPlusMilliseconds(database->asked_to_leave_at, ACEMQ_LEAVE_MS);
	if (now >= patience && !database->terminated)
		database->terminated = terminate(database);
	return now < patience ? patience : 0;
}

static void
ask_to_leave(AcemqSlot *slot)
{
	LWLockAcquire(acemq_shared->lock, LW_EXCLUSIVE);
	slot->ended_on_request = true;
	acemq_ask_to_leave(slot);
	LWLockRelease(acemq_shared->lock);
}

/* False: it was started by an earlier launcher and has not attached.  The launcher keeps an eye on those. */
static bool
terminate(Database *database)
{
	pid_t pid;

	if (database->handle != NULL)
	{
		TerminateBackgroundWorker(database->handle);
		return true;
	}
	LWLockAcquire(acemq_shared->lock, LW_SHARED);
	pid = database->slot->worker_pid;
	if (pid != 0)
		(void) kill(pid, SIGTERM);
	LWLockRelease(acemq_shared->lock);
	return pid != 0;
}

void
launch_forget(Database *database)
{
	if (database->handle != NULL)
		pfree(database->handle);
	database->handle = NULL;
	database->adopted_pid = 0;
	database->asked_to_leave_at = 0;
	database->terminated = false;
	database->asked_again = false;
}

/* The names, and whether the databases are still there, come with the first scan. */
void
launch_adopt_workers(void)
{
	for (int i = 0; i < acemq_shared->nslots; i++)
	{
		AcemqSlot *slot = &acemq_shared->slots[i];
		Database *database;

		if (!OidIsValid(slot->database))
			continue;
		database = databases_add(slot->database, "");
		database->slot = slot;
		if (slot->launched)
		{
			database->state = DATABASE_LAUNCHED;
			database->launched_at = GetCurrentTimestamp();
		}
	}
}
