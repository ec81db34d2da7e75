/*
 * header_json.h
 *		jsonb <-> neutral header list, with every rule of docs/protocol.md 1.4.
 *
 * May depend on: wire_fields.h.
 */
#ifndef ACEMQ_HEADER_JSON_H
#define ACEMQ_HEADER_JSON_H

#include "wire_fields.h"

#include "utils/jsonb.h"

/*
 * Append the members of a jsonb object to `table`: string S, whole number
 * (numeric scale 0) l, other number d, boolean t, object F, array A, null
 * omitted at the top level and V inside.  Strings go out as UTF-8.
 *
 * Errors, raised with ereport(ERROR): not an object, reserved prefix, name
 * empty or over 128 bytes, whole number beyond int64, number beyond a double,
 * nesting over 32, text that is not valid in UTF-8.
 */
extern void header_json_to_table(Jsonb *headers, WireTable *table);

/* The reverse, for outbox_claim() and for tests. */
extern Jsonb *header_table_to_json(const WireTable *table);

#endif /* ACEMQ_HEADER_JSON_H */
