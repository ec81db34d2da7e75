/*
 * ladder.c
 *		Which rung a scheduled message takes.
 *
 * 90 s is one minute and three times ten seconds, four hours are four times
 * one hour: a message takes the longest rung that fits, then looks again.
 *
 * May depend on: acemq.h.
 */
#include "ladder.h"

const LadderRung ladder_rungs[LADDER_RUNGS] = {
    {"acemq.schedule.1h", 3600000}, {"acemq.schedule.10m", 600000}, {"acemq.schedule.1m", 60000},
    {"acemq.schedule.10s", 10000},  {"acemq.schedule.1s", 1000},
};

const LadderRung *
ladder_rung_for(int64 left_ms)
{
	for (int i = 0; i < LADDER_RUNGS; i++)
		if (ladder_rungs[i].wait_ms <= left_ms)
			return &ladder_rungs[i];
	return NULL;
}

/*
 * Of a rung that is not as it should be nobody knows where its messages go.
 * The next shorter one costs hops, a longer one time, neither a message.
 */
const LadderRung *
ladder_usable_rung(const LadderRung *rung, uint32 differing)
{
	int wanted = (int) (rung - ladder_rungs);

	for (int i = wanted; i < LADDER_RUNGS; i++)
		if ((differing & (1u << i)) == 0)
			return &ladder_rungs[i];
	for (int i = wanted - 1; i >= 0; i--)
		if ((differing & (1u << i)) == 0)
			return &ladder_rungs[i];
	return rung;
}

const LadderRung *
ladder_detour(void)
{
	return &ladder_rungs[3];
}
