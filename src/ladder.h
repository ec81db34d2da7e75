/*
 * ladder.h
 *		The ladder of rung queues on which scheduled messages wait in the
 *		broker: names, waits, and which rung fits the time that is left.
 *
 * docs/protocol.md, section 8.  Pure: knows neither table nor broker.
 *
 * May depend on: acemq.h.
 */
#ifndef ACEMQ_LADDER_H
#define ACEMQ_LADDER_H

#include "acemq.h"

#define LADDER_EXCHANGE  "acemq.schedule"     /* direct, durable */
#define LADDER_DUE_QUEUE "acemq.schedule.due" /* where every rung expires into; the only one consumed */

/* Headers of a waiting message; none of them is on a delivered one. */
#define LADDER_HEADER_PREFIX       "x-schedule-"
#define LADDER_HEADER_EXCHANGE     "x-schedule-exchange"
#define LADDER_HEADER_ROUTING_KEY  "x-schedule-routing-key"
#define LADDER_HEADER_DUE_AT       "x-schedule-due-at" /* ms since 1970, int64 */
#define LADDER_HEADER_CONTENT_TYPE "x-schedule-content-type"

/* What a waiting message says of itself: the real content type is in the header. */
#define LADDER_CONTENT_TYPE "application/octet-stream"
#define LADDER_TYPE         "ScheduledMessage"

/* Content type of a delivered message whose scheduler did not say. */
#define LADDER_DEFAULT_CONTENT_TYPE "application/json"

typedef struct LadderRung
{
	const char *queue; /* its routing key on LADDER_EXCHANGE too */
	int64 wait_ms;
} LadderRung;

#define LADDER_RUNGS 5

/* Longest first. */
extern const LadderRung ladder_rungs[LADDER_RUNGS];

/* The longest rung that is not longer than the time left; NULL below a second: deliver now. */
extern const LadderRung *ladder_rung_for(int64 left_ms);

/*
 * The same, or the one to take instead if it is among those that are not as they
 * should be (bit i: ladder_rungs[i]).
 */
extern const LadderRung *ladder_usable_rung(const LadderRung *rung, uint32 differing);

/* Where a due message goes whose target does not take it: the rung of 10 s. */
extern const LadderRung *ladder_detour(void);

#endif /* ACEMQ_LADDER_H */
