/*
 * wire_headers.h
 *		The neutral header list in the form of the client library.
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

#endif /* ACEMQ_WIRE_HEADERS_H */
