/*
 * wire_headers.h
 *		The neutral header list in the form of the client library, and back.
 *
 * May depend on: wire_fields.h, rabbit.h.
 */
#ifndef ACEMQ_WIRE_HEADERS_H
#define ACEMQ_WIRE_HEADERS_H

#include "rabbit.h"
#include "wire_fields.h"

/*
 * NULL if the library would put every field on the wire as it is, else a
 * reason (static text).  It does not check by itself: a name over 255 bytes
 * goes out with a wrong length.
 */
extern const char *wire_headers_problem(const WireTable *table);

/* Palloc'd in the current context; names and strings point into the argument. */
extern amqp_table_t wire_headers_build(const WireTable *table);

/*
 * The other way, for what was received: every kind and every byte as it came,
 * palloc'd in the current context.  False, and an empty result, if it is nested
 * deeper than ACEMQ_MAX_HEADER_DEPTH.
 */
extern bool wire_headers_read(const amqp_table_t *table, WireTable *result);

/* How much memory that takes, roughly.  False as above. */
extern bool wire_headers_measure(const amqp_table_t *table, Size *memory);

#endif /* ACEMQ_WIRE_HEADERS_H */
