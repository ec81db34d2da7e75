/*
 * uuid.c
 *		Random identifiers.
 *
 * May depend on: acemq.h.
 */
#include "uuid.h"

#include "miscadmin.h"

#define UUID_BYTES 16
#define POOL_BYTES (64 * UUID_BYTES)

/*
 * One call of the random source costs as much for a thousand bytes as for
 * sixteen, so a backend takes a supply.  The supply belongs to one process: a
 * child must not hand out the parent's bytes again.
 */
static uint8 pool[POOL_BYTES];
static int pool_used = POOL_BYTES;
static int pool_owner = 0;

static const uint8 *
take_random_bytes(void)
{
	const uint8 *bytes;

	if (pool_used >= POOL_BYTES || pool_owner != MyProcPid)
	{
		pool_used = POOL_BYTES;
		if (!pg_strong_random(pool, POOL_BYTES))
			ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate random values")));
		pool_used = 0;
		pool_owner = MyProcPid;
	}
	bytes = pool + pool_used;
	pool_used += UUID_BYTES;
	return bytes;
}

void
uuid_v4(char *text)
{
	static const char digits[] = "0123456789abcdef";
	uint8 bytes[UUID_BYTES];
	int i;

	memcpy(bytes, take_random_bytes(), UUID_BYTES);
	bytes[6] = (bytes[6] & 0x0f) | 0x40; /* version 4 */
	bytes[8] = (bytes[8] & 0x3f) | 0x80; /* RFC 4122 variant */

	for (i = 0; i < UUID_BYTES; i++)
	{
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*text++ = '-';
		*text++ = digits[bytes[i] >> 4];
		*text++ = digits[bytes[i] & 0x0f];
	}
	*text = '\0';
}
