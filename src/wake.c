/*
 * wake.c
 *		What a backend remembers of its transaction, and what it tells the
 *		worker at commit.
 *
 * The commit callback runs when the commit can no longer fail, so nothing in
 * it may: it writes to shared memory that is there already, and all memory it
 * needs was allocated when the rows were added.  A prepared transaction is
 * counted, and the worker is told that there is one; another backend will commit
 * it, so the worker's safety net finds its rows.
 *
 * May depend on: shmem.h.
 */
#include "wake.h"

#include "shmem.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/memutils.h"

/* A transaction that runs for long between others' rows keeps its ids in that many ranges at most. */
#define RANGES_PER_LEVEL 16

/* Reading a few rows twice is cheaper than remembering one more range. */
#define RANGE_SLACK 32

/* One level of the stack of subtransactions that have something to tell. */
typedef struct WakeLevel
{
	struct WakeLevel *parent;
	int nest_level;
	int64 added;
	int64 pending; /* change beyond the rows added */
	int64 retired;
	bool wake_worker;
	bool wake_launcher;
	int nranges;
	AcemqRange ranges[RANGES_PER_LEVEL];
	int nfreed;
	AcemqRange freed[RANGES_PER_LEVEL];
} WakeLevel;

/* Innermost level first.  In TopTransactionContext, which outlives the callbacks. */
static WakeLevel *levels = NULL;

static void
extend_range(AcemqRange *range, uint64 lo, uint64 hi)
{
	range->lo = Min(range->lo, lo);
	range->hi = Max(range->hi, hi);
}

/* How many ids that are not ours the range would cover if it took in lo..hi. */
static uint64
range_growth(const AcemqRange *range, uint64 lo, uint64 hi)
{
	if (lo > range->hi)
		return lo - range->hi;
	if (hi < range->lo)
		return range->lo - hi;
	return 0;
}

/* Put lo..hi into one of at most `max` ranges; the nearest one takes it in when there is no room, or next to no distance. */
static void
add_range(AcemqRange *ranges, int *nranges, int max, uint64 lo, uint64 hi)
{
	int nearest = *nranges - 1;
	int i;

	if (nearest >= 0 && range_growth(&ranges[nearest], lo, hi) <= RANGE_SLACK)
	{
		extend_range(&ranges[nearest], lo, hi);
		return;
	}
	if (*nranges < max)
	{
		ranges[*nranges].lo = lo;
		ranges[*nranges].hi = hi;
		(*nranges)++;
		return;
	}
	for (i = 0; i < max; i++)
	{
		if (range_growth(&ranges[i], lo, hi) < range_growth(&ranges[nearest], lo, hi))
			nearest = i;
	}
	extend_range(&ranges[nearest], lo, hi);
}

/*
 * Ids that the worker's scan may have passed already.  The rows were made
 * visible before this reads the cursor, and the worker raises the cursor before
 * it takes a snapshot; with a full barrier on both sides one of the two sees the other.
 */
static void
report_late(AcemqSlot *slot, const WakeLevel *level)
{
	uint64 cursor;
	int i;

	pg_memory_barrier();
	cursor = pg_atomic_read_u64(&slot->scan_cursor);
	for (i = 0; i < level->nranges; i++)
	{
		uint64 lo = level->ranges[i].lo;
		uint64 hi = Min(level->ranges[i].hi, cursor);

		if (lo > cursor)
			continue; /* the scan will come to it */
		SpinLockAcquire(&slot->late_mutex);
		add_range(slot->late, &slot->nlate, ACEMQ_LATE_RANGES, lo, hi);
		SpinLockRelease(&slot->late_mutex);
	}
}

/* Whatever the cursor says: what holds a lane has been read once, and the scan does not come to a row that is gone. */
static void
report_freed(AcemqSlot *slot, const WakeLevel *level)
{
	SpinLockAcquire(&slot->late_mutex);
	for (int i = 0; i < level->nfreed; i++)
		add_range(slot->freed, &slot->nfreed, ACEMQ_FREED_RANGES, level->freed[i].lo, level->freed[i].hi);
	SpinLockRelease(&slot->late_mutex);
}

void
wake_report_late(int64 id)
{
	AcemqSlot *slot = acemq_my_slot();

	if (slot == NULL || slot->database != MyDatabaseId)
		return;
	SpinLockAcquire(&slot->late_mutex);
	add_range(slot->late, &slot->nlate, ACEMQ_LATE_RANGES, id, id);
	SpinLockRelease(&slot->late_mutex);
	acemq_wake_worker(slot);
}

static void
count_level(AcemqSlot *slot, const WakeLevel *level)
{
	if (level->added > 0)
		pg_atomic_fetch_add_u64(&slot->added, level->added);
	if (level->added + level->pending != 0)
		pg_atomic_fetch_add_u64(&slot->pending, level->added + level->pending);
	if (level->retired != 0)
		pg_atomic_fetch_add_u64(&slot->retired, level->retired);
}

static void
tell_worker(const WakeLevel *level)
{
	AcemqSlot *slot = acemq_my_slot();

	if (slot == NULL || slot->database != MyDatabaseId)
		return;

	if (level->added > 0)
		report_late(slot, level);
	if (level->nfreed > 0)
		report_freed(slot, level);
	count_level(slot, level);
	if (level->added > 0 || level->nfreed > 0 || level->wake_worker)
		acemq_wake_worker(slot);
}

/*
 * Another backend will commit the rows and know nothing of them: the worker has
 * to look for itself.  They are counted now, as if that were certain; the worker
 * counts again when no prepared transaction is left.
 */
static void
announce_prepared(const WakeLevel *level)
{
	AcemqSlot *slot = acemq_my_slot();

	if (slot == NULL || slot->database != MyDatabaseId)
		return;
	count_level(slot, level);
	pg_atomic_write_u32(&slot->prepared, 1);
	acemq_wake_worker(slot);
}

static void
at_transaction_end(XactEvent event, void *arg)
{
	WakeLevel *level = levels;

	switch (event)
	{
		case XACT_EVENT_COMMIT:
			levels = NULL;
			if (level == NULL)
				return;
			Assert(level->parent == NULL);
			tell_worker(level);
			if (level->wake_launcher)
				acemq_wake_launcher();
			break;
		case XACT_EVENT_PREPARE:
			levels = NULL;
			if (level != NULL && (level->added > 0 || level->pending != 0 || level->retired != 0))
				announce_prepared(level);
			break;
		case XACT_EVENT_ABORT:
			levels = NULL;
			break;
		default:
			break;
	}
}

static void
merge_into_parent(WakeLevel *child)
{
	WakeLevel *parent = child->parent;
	int i;

	for (i = 0; i < child->nranges; i++)
		add_range(parent->ranges, &parent->nranges, RANGES_PER_LEVEL, child->ranges[i].lo, child->ranges[i].hi);
	for (i = 0; i < child->nfreed; i++)
		add_range(parent->freed, &parent->nfreed, RANGES_PER_LEVEL, child->freed[i].lo, child->freed[i].hi);
	parent->added += child->added;
	parent->pending += child->pending;
	parent->retired += child->retired;
	parent->wake_worker |= child->wake_worker;
	parent->wake_launcher |= child->wake_launcher;
}

static void
at_subtransaction_end(SubXactEvent event, SubTransactionId subid, SubTransactionId parent_subid, void *arg)
{
	WakeLevel *level = levels;

	if (event != SUBXACT_EVENT_COMMIT_SUB && event != SUBXACT_EVENT_ABORT_SUB)
		return;
	if (level == NULL || level->nest_level < GetCurrentTransactionNestLevel())
		return;

	/* Nothing to merge with: the level simply becomes the parent's. */
	if (event == SUBXACT_EVENT_COMMIT_SUB &&
	    (level->parent == NULL || level->parent->nest_level < level->nest_level - 1))
	{
		level->nest_level--;
		return;
	}
	if (event == SUBXACT_EVENT_COMMIT_SUB)
		merge_into_parent(level);
	levels = level->parent;
	pfree(level);
}

/* Once per backend: a registration lasts until the backend ends. */
static void
register_callbacks(void)
{
	static bool registered = false;

	if (registered)
		return;
	RegisterXactCallback(at_transaction_end, NULL);
	RegisterSubXactCallback(at_subtransaction_end, NULL);
	registered = true;
}

static WakeLevel *
current_level(void)
{
	int nest_level = GetCurrentTransactionNestLevel();
	WakeLevel *level = levels;

	if (level != NULL && level->nest_level == nest_level)
		return level;

	register_callbacks();
	level = MemoryContextAllocZero(TopTransactionContext, sizeof(WakeLevel));
	level->nest_level = nest_level;
	level->parent = levels;
	levels = level;
	return level;
}

void
wake_note_added(int64 id)
{
	WakeLevel *level;

	if (acemq_shared == NULL)
		return;
	level = current_level();
	level->added++;
	add_range(level->ranges, &level->nranges, RANGES_PER_LEVEL, id, id);
}

void
wake_note_freed(int64 id)
{
	WakeLevel *level;

	if (acemq_shared == NULL)
		return;
	level = current_level();
	add_range(level->freed, &level->nfreed, RANGES_PER_LEVEL, id, id);
}

void
wake_note_change(int64 pending, int64 retired)
{
	WakeLevel *level;

	if (acemq_shared == NULL)
		return;
	level = current_level();
	level->pending += pending;
	level->retired += retired;
}

void
wake_worker_at_commit(void)
{
	if (acemq_shared != NULL)
		current_level()->wake_worker = true;
}

void
wake_launcher_at_commit(void)
{
	if (acemq_shared != NULL)
		current_level()->wake_launcher = true;
}
