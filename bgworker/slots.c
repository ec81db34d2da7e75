/*-------------------------------------------------------------------------
 *
 * slots.c
 *		Who a slot belongs to.
 *
 * May depend on: src/shmem.h, src/guc.h.
 *
 *-------------------------------------------------------------------------
 */
#include "slots.h"

#include "guc.h"

#include <signal.h>

#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/timestamp.h"

static AcemqSlot *attached = NULL;
static volatile sig_atomic_t end_was_requested = false;

static AcemqSlot *free_slot_for(Oid database);
static int count_served(void);
static void detach(int code, Datum arg);

AcemqSlot *
slot_begin_launch(Oid database)
{
	AcemqSlot *slot = NULL;

	LWLockAcquire(acemq_shared->lock, LW_EXCLUSIVE);
	if (!acemq_is_held(database))
	{
		slot = acemq_slot_of(database);
		if (slot == NULL)
			slot = free_slot_for(database);
	}
	if (slot != NULL)
	{
		slot->launched = true;
		slot->ended_on_request = false;
		if (slot->finding != ACEMQ_FOUND_SERVED)
			slot->finding = ACEMQ_FOUND_NOTHING_YET;
	}
	LWLockRelease(acemq_shared->lock);
	return slot;
}

/* Backends find a slot by its database without a lock, so that is written last. */
static AcemqSlot *
free_slot_for(Oid database)
{
	for (int i = 0; i < acemq_shared->nslots; i++)
	{
		AcemqSlot *slot = &acemq_shared->slots[i];

		if (!OidIsValid(slot->database))
		{
			acemq_slot_reset(slot);
			slot->finding = ACEMQ_FOUND_NOTHING_YET;
			pg_write_barrier();
			slot->database = database;
			return slot;
		}
	}
	return NULL;
}

AcemqFinding
slot_end_launch(AcemqSlot *slot, bool *on_request)
{
	AcemqFinding finding;

	LWLockAcquire(acemq_shared->lock, LW_EXCLUSIVE);
	slot->launched = false;
	*on_request = slot->ended_on_request;
	finding = slot->finding;
	LWLockRelease(acemq_shared->lock);

	ConditionVariableBroadcast(&acemq_shared->worker_gone);
	return finding;
}

void
slot_free(AcemqSlot *slot)
{
	LWLockAcquire(acemq_shared->lock, LW_EXCLUSIVE);
	slot->database = InvalidOid;
	slot->finding = ACEMQ_FOUND_NOTHING_YET;
	LWLockRelease(acemq_shared->lock);

	/* Nobody will settle anything here any more: let those who wait for it look again. */
	ConditionVariableBroadcast(&slot->progress);
}

bool
slot_seat_is_free(void)
{
	bool result;

	LWLockAcquire(acemq_shared->lock, LW_SHARED);
	result = count_served() < acemq_max_databases;
	LWLockRelease(acemq_shared->lock);
	return result;
}

static int
count_served(void)
{
	int count = 0;

	for (int i = 0; i < acemq_shared->nslots; i++)
		if (OidIsValid(acemq_shared->slots[i].database) && acemq_shared->slots[i].finding == ACEMQ_FOUND_SERVED)
			count++;
	return count;
}

/*
 * Called before the process connects to its database: registered first, the
 * detaching runs last, when the transaction that was open has been aborted.
 * So a successor never meets the locks of its predecessor.
 */
AcemqSlot *
slot_attach(Oid database)
{
	AcemqSlot *slot;

	before_shmem_exit(detach, (Datum) 0);

	LWLockAcquire(acemq_shared->lock, LW_EXCLUSIVE);
	slot = acemq_slot_of(database);
	if (slot != NULL && slot->launched && slot->worker_pid == 0 && !acemq_is_held(database))
	{
		/* Whatever asked us to look again before this point, we are about to look. */
		pg_atomic_write_u32(&slot->leave, 0);
		slot->worker_pid = MyProcPid;
		slot->worker_latch = MyLatch;
		slot->worker_started_at = GetCurrentTimestamp();
		attached = slot;
	}
	LWLockRelease(acemq_shared->lock);
	return attached;
}

/*
 * The entries of `fetched` stay: their rows may be on the wire, and until the
 * next worker has looked nobody may be told that they are not.  Reading rows,
 * however, has ended with us.
 */
static void
detach(int code, Datum arg)
{
	AcemqSlot *slot = attached;

	if (slot != NULL)
	{
		attached = NULL;
		LWLockAcquire(acemq_shared->lock, LW_EXCLUSIVE);
		slot->worker_pid = 0;
		slot->worker_latch = NULL;
		slot->ended_on_request |= end_was_requested;
		LWLockRelease(acemq_shared->lock);

		if (pg_atomic_read_u32(&slot->fetch_epoch) % 2 == 1)
		{
			pg_atomic_fetch_add_u32(&slot->fetch_epoch, 1);
			ConditionVariableBroadcast(&slot->fetch_done);
		}
		pg_atomic_write_u64(&slot->in_flight, 0);
		pg_atomic_write_u32(&slot->worker_settings, 0); /* the next one may have others */
		acemq_slot_set_state(slot, ACEMQ_STATE_STARTING);
	}
	acemq_nudge_launcher();
}

void
slot_note_request(void)
{
	end_was_requested = true;
}

/*
 * The launcher allows only so many workers at a time that have not reported.
 * A database that was served keeps its seat while its extension is busy.
 */
void
slot_report(AcemqSlot *slot, AcemqFinding finding)
{
	LWLockAcquire(acemq_shared->lock, LW_EXCLUSIVE);
	if (finding != ACEMQ_FOUND_BUSY || slot->finding != ACEMQ_FOUND_SERVED)
		slot->finding = finding;
	LWLockRelease(acemq_shared->lock);
	acemq_nudge_launcher();
}

bool
slot_take_seat(AcemqSlot *slot)
{
	LWLockAcquire(acemq_shared->lock, LW_EXCLUSIVE);
	if (slot->finding != ACEMQ_FOUND_SERVED)
		slot->finding = count_served() < acemq_max_databases ? ACEMQ_FOUND_SERVED : ACEMQ_FOUND_OVER_LIMIT;
	LWLockRelease(acemq_shared->lock);
	acemq_nudge_launcher();
	return slot->finding == ACEMQ_FOUND_SERVED;
}
