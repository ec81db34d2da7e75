/*
 * envelope.h
 *		The AceMQ envelope: which reserved headers a message carries, in which
 *		order and AMQP kind (docs/protocol.md, section 1.1).
 *
 * May depend on: wire_fields.h, header_json.h.
 */
#ifndef ACEMQ_ENVELOPE_H
#define ACEMQ_ENVELOPE_H

#include "wire_fields.h"

#include "datatype/timestamp.h"
#include "utils/jsonb.h"

/* What a message is called that has neither a type nor a routing key. */
#define ACEMQ_DEFAULT_TYPE "message"

/* Everything is in UTF-8 and zero-terminated; NULL means "use the default" or "absent", as said. */
typedef struct Envelope
{
	const char *message_id;
	const char *routing_key;
	const char *type; /* NULL: the routing key, or `message` if that is empty */
	int32 version;
	const char *correlation_id; /* NULL: the message id */
	const char *causation_id;   /* NULL: no header */
	const char *origin;         /* NULL: no header */
	const char *reply_to;       /* NULL: no header; else acemq-reply-to (and the property, set by the caller) */
	TimestampTz first_seen;
	Jsonb *headers; /* NULL: none */
} Envelope;

/* Reserved headers first, then the application's.  Raises what header_json_to_table raises. */
extern void envelope_headers(const Envelope *envelope, WireTable *table);

#endif /* ACEMQ_ENVELOPE_H */
