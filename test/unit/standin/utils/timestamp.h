/*
 * utils/timestamp.h (stand-in)
 *		A clock that goes on by a millisecond whenever it is looked at.
 */
#ifndef ACEMQ_STANDIN_UTILS_TIMESTAMP_H
#define ACEMQ_STANDIN_UTILS_TIMESTAMP_H

#include "datatype/timestamp.h"

static inline TimestampTz
GetCurrentTimestamp(void)
{
	static TimestampTz now = 1;

	return now += 1000;
}

#define TimestampTzPlusMilliseconds(time, ms)           ((time) + (ms) * (int64) 1000)
#define TimestampDifferenceMilliseconds(earlier, later) Max(((later) - (earlier)) / 1000, 0)

#endif /* ACEMQ_STANDIN_UTILS_TIMESTAMP_H */
