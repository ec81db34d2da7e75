/*
 * payload.h
 *		The payload argument of the publishing functions: from a text, json,
 *		jsonb or bytea value to the bytes of the message body.
 *
 * May depend on: acemq.h, guc.h, utf8.h.
 */
#ifndef ACEMQ_PAYLOAD_H
#define ACEMQ_PAYLOAD_H

#include "acemq.h"

typedef enum PayloadKind
{
	PAYLOAD_TEXT,  /* its bytes are kept; has to be JSON unless the content type says otherwise */
	PAYLOAD_JSON,  /* its bytes are kept */
	PAYLOAD_JSONB, /* PostgreSQL's rendering */
	PAYLOAD_BYTEA  /* its bytes, whatever they are */
} PayloadKind;

/* What the receiver is told when the caller did not say. */
extern const char *payload_default_content_type(PayloadKind kind);

/*
 * The body as it goes on the wire: in UTF-8, bytea as it is.  content_type may
 * be NULL (the default).  Raises an error for text that is not well-formed JSON but
 * claims to be, and for a body over acemq.max_body_size, except one that
 * outbox_insert() will check in.
 */
extern bytea *payload_body(Datum payload, PayloadKind kind, const text *content_type);

#endif /* ACEMQ_PAYLOAD_H */
