/*
 * claim_check_frame.h
 *		The frame around a body that may have been checked in, and what a key
 *		looks like (docs/protocol.md, section 6).
 *
 * May depend on: acemq.h.
 */
#ifndef ACEMQ_CLAIM_CHECK_FRAME_H
#define ACEMQ_CLAIM_CHECK_FRAME_H

#include "acemq.h"

#define CLAIM_CHECK_HEADER  3 /* bytes before the payload or the key */
#define CLAIM_CHECK_MAX_KEY 128

typedef enum ClaimCheckFrame
{
	CLAIM_CHECK_UNFRAMED, /* no frame: the body is the payload */
	CLAIM_CHECK_INLINE,   /* the payload follows the header */
	CLAIM_CHECK_CHECKED   /* what should be a key follows it */
} ClaimCheckFrame;

/* Any bytes are a body. */
extern ClaimCheckFrame claim_check_frame_of(const bytea *body);

/* The key of a checked body, which may be malformed; not terminated. */
extern const char *claim_check_frame_key(const bytea *body, int *len);

/* A frame around those bytes, palloc'd. */
extern bytea *claim_check_framed(ClaimCheckFrame kind, const char *content, int len);

/* A letter or digit, then letters, digits, dots, underscores and dashes; so a key is ASCII, and the name of a file. */
extern bool claim_check_is_key(const char *key, int len);

#endif /* ACEMQ_CLAIM_CHECK_FRAME_H */
