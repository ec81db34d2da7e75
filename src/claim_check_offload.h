/*
 * claim_check_offload.h
 *		acemq.claim_check_threshold: which bodies are checked in on their way
 *		into the outbox.
 *
 * May depend on: claim_check_frame.h, guc.h.
 */
#ifndef ACEMQ_CLAIM_CHECK_OFFLOAD_H
#define ACEMQ_CLAIM_CHECK_OFFLOAD_H

#include "acemq.h"
#include "guc.h"

/* A body of that size is checked in, unless it has a frame already. */
static inline bool
claim_check_reached(Size size)
{
	return acemq_claim_check_threshold >= 0 && size >= (Size) acemq_claim_check_threshold;
}

/*
 * Whether this body, as it would go on the wire, is checked in.  Not where the
 * application has called claim_check_encode() itself: the receiver takes off
 * one frame.
 */
extern bool claim_check_offloads(const bytea *body);

/* A checked frame with a new key, UUID_TEXT_LEN bytes and a zero in `key`.  Nothing is stored. */
extern bytea *claim_check_offload_frame(char *key);

#endif /* ACEMQ_CLAIM_CHECK_OFFLOAD_H */
