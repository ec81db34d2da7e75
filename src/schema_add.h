/*
 * schema_add.h
 *		Adding a row to acemq.schema_registry, by whoever has the counter's row.
 *
 * May depend on: schema_rows.h.
 */
#ifndef ACEMQ_SCHEMA_ADD_H
#define ACEMQ_SCHEMA_ADD_H

#include "schema_rows.h"

#include "datatype/timestamp.h"

/* One more than the highest so far; error if that is beyond an integer. */
extern int32 schema_next_id(int32 last_id);
extern int32 schema_next_version(text *subject);

/*
 * Add a row, unless one is in its way: false.  Waits for a transaction that is
 * adding such a one.  SPI is connected, and we are the owner.
 */
extern bool schema_insert(const SchemaEntry *entry, int32 id, int32 version, TimestampTz registered_at);

/*
 * Error if `round`, counted from 1, is one too many.  Rows are in the way again and again
 * only if somebody writes the table without taking the counter's row.
 */
extern void schema_check_round(int round, const SchemaEntry *entry);

#endif /* ACEMQ_SCHEMA_ADD_H */
