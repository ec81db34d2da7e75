/*-------------------------------------------------------------------------
 *
 * hold.c
 *		Holds: a backend asks that a database's worker stays away.
 *
 * The launcher looks for a hold and marks a slot as launched under one lock,
 * so after a hold has been placed either no worker of that database exists
 * and none will, or the slot says there is one to wait for.
 *
 * May depend on: shmem.h.
 *
 *-------------------------------------------------------------------------
 */
#include "shmem.h"

#include "miscadmin.h"
#include "storage/procarray.h"

bool
acemq_hold_place(Oid database, int nest_level)
{
	AcemqHold *hold = NULL;

	LWLockAcquire(acemq_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < ACEMQ_HOLDS && hold == NULL; i++)
		if (!OidIsValid(acemq_shared->holds[i].database))
			hold = &acemq_shared->holds[i];
	if (hold != NULL)
	{
		hold->database = database;
		hold->holder = MyProcPid;
		hold->nest_level = nest_level;
	}
	LWLockRelease(acemq_shared->lock);
	return hold != NULL;
}

void
acemq_hold_release(int nest_level)
{
	LWLockAcquire(acemq_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < ACEMQ_HOLDS; i++)
	{
		AcemqHold *hold = &acemq_shared->holds[i];

		if (hold->holder == MyProcPid && hold->nest_level >= nest_level)
			memset(hold, 0, sizeof(*hold));
	}
	LWLockRelease(acemq_shared->lock);
	acemq_nudge_launcher();
}

void
acemq_hold_reparent(int nest_level)
{
	LWLockAcquire(acemq_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < ACEMQ_HOLDS; i++)
	{
		AcemqHold *hold = &acemq_shared->holds[i];

		if (hold->holder == MyProcPid && hold->nest_level >= nest_level)
			hold->nest_level = nest_level - 1;
	}
	LWLockRelease(acemq_shared->lock);
}

bool
acemq_is_held(Oid database)
{
	for (int i = 0; i < ACEMQ_HOLDS; i++)
		if (acemq_shared->holds[i].database == database)
			return true;
	return false;
}

void
acemq_hold_drop_dead(void)
{
	LWLockAcquire(acemq_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < ACEMQ_HOLDS; i++)
	{
		AcemqHold *hold = &acemq_shared->holds[i];

		if (OidIsValid(hold->database) && BackendPidGetProc(hold->holder) == NULL)
			memset(hold, 0, sizeof(*hold));
	}
	LWLockRelease(acemq_shared->lock);
}
