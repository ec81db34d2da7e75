/*-------------------------------------------------------------------------
 *
 * housekeeping.c
 *		What the worker does now and then whether it relays or not: remove
 *		what has expired from the stores.
 *
 * A step is one batch.  After a full one the next may come four times as long
 * after it as it took: so a million expired rows go in a few minutes, and
 * the relay has the worker, and the disk, for most of the time.
 *
 * May depend on: idempotency_purge.h.
 *
 *-------------------------------------------------------------------------
 */
#include "housekeeping.h"

#include "utils/timestamp.h"

#include "idempotency_purge.h"

/* Between two looks: longer each time nothing was found, so that an idle worker stays idle. */
#define LOOK_AFTER_MS     10000
#define LOOK_AFTER_MS_MAX 600000
#define AFTER_TROUBLE_MS  600000
#define SWEEP_EVERY_MS    600000
#define BATCH_ROWS        500
#define PAUSE_PER_WORK    4

static TimestampTz next_at = 0;
static int64 look_after_ms = LOOK_AFTER_MS;

/*
 * The batches go up the index and do not walk over the rows that are gone:
 * vacuum may take its time over those.  What they passed, because somebody had
 * locked it or because it was put in with a time long ago, is found by a sweep from the beginning.
 */
static TimestampTz purged_upto = DT_NOBEGIN;
static TimestampTz sweep_at = 0;

static TimestampTz
ms_after(TimestampTz at, int64 ms)
{
	return at + ms * 1000;
}

TimestampTz
housekeeping_next_deadline(void)
{
	return next_at;
}

void
housekeeping_step(void)
{
	TimestampTz begun = GetCurrentTimestamp();

	/* Further away than we ever put it: the clock has been set back. */
	if (begun < next_at && next_at <= ms_after(begun, AFTER_TROUBLE_MS))
		return;
	if (begun >= sweep_at || sweep_at > ms_after(begun, SWEEP_EVERY_MS))
	{
		purged_upto = DT_NOBEGIN;
		sweep_at = ms_after(begun, SWEEP_EVERY_MS);
	}

	switch (idempotency_purge_batch(BATCH_ROWS, &purged_upto))
	{
		case PURGE_FULL_BATCH:
			next_at = GetCurrentTimestamp();
			next_at += (next_at - begun) * PAUSE_PER_WORK;
			return;
		case PURGE_LAST_BATCH:
			look_after_ms = LOOK_AFTER_MS;
			break;
		case PURGE_NOTHING:
			look_after_ms = Min(look_after_ms * 2, LOOK_AFTER_MS_MAX);
			break;
		case PURGE_FAILED:
			next_at = ms_after(begun, AFTER_TROUBLE_MS);
			return;
	}
	next_at = ms_after(begun, look_after_ms);
}
