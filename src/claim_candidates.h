/*
 * claim_candidates.h
 *		Which rows a relay outside the server may lease now, by the rules of
 *		the lanes (docs/protocol.md, section 2.2).
 *
 * May depend on: saved_plan.h.
 */
#ifndef ACEMQ_CLAIM_CANDIDATES_H
#define ACEMQ_CLAIM_CANDIDATES_H

#include "acemq.h"

#include "datatype/timestamp.h"

/* A lane is told from others by 128 bits of hash: its text may be long, and there may be many that are held. */
typedef struct ClaimLane
{
	uint64 hash[2];
} ClaimLane;

typedef struct ClaimCandidate
{
	int64 id;
	ClaimLane lane;
} ClaimCandidate;

/* Lanes of which nothing may go out behind the row that holds them. */
typedef struct HeldLanes HeldLanes;

extern HeldLanes *held_lanes_create(void);
extern void held_lanes_add(HeldLanes *lanes, const ClaimLane *lane);
extern bool held_lanes_contain(HeldLanes *lanes, const ClaimLane *lane);

/*
 * At most `limit` rows for that relay in the order in which they should go out; returns how
 * many.  Reads with a fresh snapshot and locks nothing.  SPI is connected, and we are the
 * owner.
 */
extern int claim_candidates_find(TimestampTz now, text *relay, int limit, ClaimCandidate *candidates);

#endif /* ACEMQ_CLAIM_CANDIDATES_H */
