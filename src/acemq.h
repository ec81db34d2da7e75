/*
 * acemq.h
 *		Names and limits that every part of the extension shares.
 *
 * May depend on: nothing of ours.
 */
#ifndef ACEMQ_H
#define ACEMQ_H

#include "postgres.h"

#define ACEMQ_VERSION   "0.1.0"
#define ACEMQ_SCHEMA    "acemq"
#define ACEMQ_EXTENSION "acemq"

/*
 * AMQP 0-9-1 section 4.2.5.3: a short string has one length byte.  Bytes, not
 * characters, and of the UTF-8 form, whatever the database encoding.
 */
#define ACEMQ_MAX_SHORTSTR 255

/* docs/protocol.md, section 1.4: stricter than the wire's 255 (librabbitmq truncates longer names silently). */
#define ACEMQ_MAX_HEADER_NAME 128

/* Deepest nesting of header tables and arrays we build or read. */
#define ACEMQ_MAX_HEADER_DEPTH 32

/* What a receiver reserves for the envelope: docs/protocol.md, section 1.3. */
#define ACEMQ_RESERVED_PREFIX "x-acemq-"

/* Characters of idempotency.message_id and claimed_by. */
#define ACEMQ_MAX_IDEMPOTENCY_KEY 255
#define ACEMQ_MAX_OWNER           64

/* Upper end of acemq.max_in_flight, and the rows a worker may hold in memory (in flight and waiting for their turn). */
#define ACEMQ_MAX_IN_FLIGHT      10000
#define ACEMQ_MAX_ROWS_IN_MEMORY (4 * ACEMQ_MAX_IN_FLIGHT)

/* acemq.max_body_size cannot be set higher. */
#define ACEMQ_BODY_SIZE_LIMIT (128 * 1024 * 1024)

/* Texts kept in shared memory and in outbox.last_error. */
#define ACEMQ_ERROR_TEXT 1024

/* Our own SQLSTATEs (class AQ). */
#define ERRCODE_ACEMQ_SCHEMA_NOT_FOUND   MAKE_SQLSTATE('A', 'Q', '0', '0', '1')
#define ERRCODE_ACEMQ_CLAIM_NOT_HELD     MAKE_SQLSTATE('A', 'Q', '0', '0', '2')
#define ERRCODE_ACEMQ_NO_RELAY           MAKE_SQLSTATE('A', 'Q', '0', '0', '3')
#define ERRCODE_ACEMQ_BROKER_UNAVAILABLE MAKE_SQLSTATE('A', 'Q', '0', '0', '4')
#define ERRCODE_ACEMQ_MESSAGE_REFUSED    MAKE_SQLSTATE('A', 'Q', '0', '0', '5')

#endif /* ACEMQ_H */
