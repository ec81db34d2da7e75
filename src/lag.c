/*-------------------------------------------------------------------------
 *
 * lag.c
 *		Histogram of the time from add to confirm: four buckets per
 *		doubling, so a quantile is right within a fifth.
 *
 * Two halves: one is filled for five minutes while the other keeps the five
 * minutes before, so that a reader always sees between five and ten minutes.
 * Only the worker writes; readers take what they find.
 *
 * May depend on: shmem.h.
 *
 *-------------------------------------------------------------------------
 */
#include "shmem.h"

#include <math.h>

#include "utils/timestamp.h"

#define HALF_LENGTH     (5 * USECS_PER_MINUTE)
#define FIRST_BUCKET_US 10.0

static void turn_halves(AcemqSlot *slot, TimestampTz now);
static double bucket_start(int bucket);

void
acemq_slot_note_lag(AcemqSlot *slot, int64 lag_us, TimestampTz now)
{
	int bucket = 0;
	pg_atomic_uint32 *count;

	if (now - (TimestampTz) pg_atomic_read_u64(&slot->lag_since) >= HALF_LENGTH)
		turn_halves(slot, now);
	if (lag_us > FIRST_BUCKET_US)
		bucket = Min((int) (4.0 * log2(lag_us / FIRST_BUCKET_US)), ACEMQ_LAG_BUCKETS - 1);

	count = &slot->lag[pg_atomic_read_u32(&slot->lag_half)][bucket];
	pg_atomic_write_u32(count, pg_atomic_read_u32(count) + 1);
}

/* After a pause longer than a half neither half is recent. */
static void
turn_halves(AcemqSlot *slot, TimestampTz now)
{
	uint32 next = 1 - pg_atomic_read_u32(&slot->lag_half);
	bool both = now - (TimestampTz) pg_atomic_read_u64(&slot->lag_since) >= 2 * HALF_LENGTH;

	for (int i = 0; i < ACEMQ_LAG_BUCKETS; i++)
	{
		pg_atomic_write_u32(&slot->lag[next][i], 0);
		if (both)
			pg_atomic_write_u32(&slot->lag[1 - next][i], 0);
	}
	pg_atomic_write_u32(&slot->lag_half, next);
	pg_atomic_write_u64(&slot->lag_since, now);
}

double
acemq_slot_lag_quantile(AcemqSlot *slot, double q)
{
	uint64 counts[ACEMQ_LAG_BUCKETS];
	uint64 total = 0;
	double below = 0;

	for (int i = 0; i < ACEMQ_LAG_BUCKETS; i++)
	{
		counts[i] = (uint64) pg_atomic_read_u32(&slot->lag[0][i]) + pg_atomic_read_u32(&slot->lag[1][i]);
		total += counts[i];
	}
	if (total == 0)
		return -1;

	for (int i = 0; i < ACEMQ_LAG_BUCKETS; i++)
	{
		if (counts[i] > 0 && below + counts[i] >= q * total)
		{
			double share = (q * total - below) / counts[i];
			double start = bucket_start(i);

			return (start + share * (bucket_start(i + 1) - start)) / USECS_PER_SEC;
		}
		below += counts[i];
	}
	return bucket_start(ACEMQ_LAG_BUCKETS) / USECS_PER_SEC;
}

/* In microseconds. */
static double
bucket_start(int bucket)
{
	return FIRST_BUCKET_US * exp2(bucket / 4.0);
}
