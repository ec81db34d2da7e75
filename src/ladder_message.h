/*
 * ladder_message.h
 *		What a message carries while it waits on the ladder.
 *
 * docs/protocol.md, section 8.2.
 *
 * May depend on: ladder.h, wire_fields.h.
 */
#ifndef ACEMQ_LADDER_MESSAGE_H
#define ACEMQ_LADDER_MESSAGE_H

#include "ladder.h"
#include "wire_fields.h"

#include "datatype/timestamp.h"

/* Where a waiting message is to go, and when.  Texts in UTF-8, zero-terminated. */
typedef struct LadderTarget
{
	const char *exchange; /* "": the default exchange */
	const char *routing_key;
	const char *content_type; /* of the body, as the receiver will be told */
	TimestampTz due_at;
} LadderTarget;

/* The four headers that say so. */
extern void ladder_headers_add(WireTable *table, const LadderTarget *target);

/* What is left at `now`, in ms. */
extern int64 ladder_left_ms(TimestampTz due_at, TimestampTz now);

#endif /* ACEMQ_LADDER_MESSAGE_H */
