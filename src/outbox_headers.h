/*
 * outbox_headers.h
 *		The headers of a message that is being added: every one has to be
 *		writable, and together they have to fit.
 *
 * May depend on: outbox_args.h, envelope.h.
 */
#ifndef ACEMQ_OUTBOX_HEADERS_H
#define ACEMQ_OUTBOX_HEADERS_H

#include "outbox_args.h"

/*
 * Raises what header_json_to_table raises, and an error if envelope and headers
 * are over acemq.max_headers_size.  Those of the ladder count for a message that goes
 * onto it, and the caller may not give any of them.
 */
extern void outbox_headers_check(const OutboxMessage *message);

#endif /* ACEMQ_OUTBOX_HEADERS_H */
