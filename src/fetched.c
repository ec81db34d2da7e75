/*
 * fetched.c
 *		Which rows the relay holds in memory.
 *
 * May depend on: shmem.h.
 */
#include "fetched.h"

#include "miscadmin.h"
#include "utils/wait_event.h"

/* How often a waiter makes sure that the worker it waits for still exists. */
#define LOOK_AGAIN_MS 100

static int
compare_ids(const void *a, const void *b)
{
	int64 x = *(const int64 *) a;
	int64 y = *(const int64 *) b;

	return (x > y) - (x < y);
}

/*
 * A reading that begins after ours sees our locks, so only the one that is
 * under way matters: the wait ends when the epoch has changed, not when it is
 * even.  A worker that died while reading has sent nothing of what it read.
 */
static void
wait_for_reader(AcemqSlot *slot)
{
	uint32 epoch = pg_atomic_read_u32(&slot->fetch_epoch);

	if ((epoch & 1) == 0)
		return;
	while (pg_atomic_read_u32(&slot->fetch_epoch) == epoch && slot->worker_pid != 0 && slot->database == MyDatabaseId)
		ConditionVariableTimedSleep(&slot->fetch_done, LOOK_AGAIN_MS, PG_WAIT_EXTENSION);
	ConditionVariableCancelSleep();
}

FetchedIds
fetched_now(void)
{
	FetchedIds fetched = {0, NULL};
	AcemqSlot *slot;

	/* The caller's locks have to be visible to the relay before we read what it holds. */
	pg_memory_barrier();
	slot = acemq_my_slot();
	if (slot == NULL)
		return fetched;

	wait_for_reader(slot);
	pg_memory_barrier();

	fetched.ids = palloc(sizeof(int64) * ACEMQ_MAX_ROWS_IN_MEMORY);
	for (int i = 0; i < ACEMQ_MAX_ROWS_IN_MEMORY; i++)
	{
		int64 id = (int64) pg_atomic_read_u64(&slot->fetched[i]);

		if (id != 0)
			fetched.ids[fetched.count++] = id;
	}
	qsort(fetched.ids, fetched.count, sizeof(int64), compare_ids);
	return fetched;
}

bool
fetched_contains(const FetchedIds *fetched, int64 id)
{
	return fetched->count > 0 && bsearch(&id, fetched->ids, fetched->count, sizeof(int64), compare_ids) != NULL;
}
