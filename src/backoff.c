/*
 * backoff.c
 *		How long to wait before the next try.
 *
 * May depend on: acemq.h.
 */
#include "backoff.h"

#include "common/pg_prng.h"

/*
 * Doubling stops at the maximum, so it cannot overflow however many attempts
 * a row has behind it.
 */
int64
backoff_delay_ms(int attempts, int64 first_ms, int64 max_ms)
{
	int64 delay = Min(first_ms, max_ms);

	for (int i = 1; i < attempts && delay < max_ms; i++)
		delay = (delay > max_ms / 2) ? max_ms : delay * 2;
	return delay;
}

int64
backoff_jitter_ms(int64 delay_ms)
{
	int64 half = delay_ms / 2;

	if (delay_ms <= 1)
		return delay_ms;
	return half + (int64) pg_prng_uint64_range(&pg_global_prng_state, 0, (uint64) (delay_ms - half));
}
