/*
 * schema_rows.h
 *		Looking for rows of acemq.schema_registry.
 *
 * May depend on: acemq.h.
 */
#ifndef ACEMQ_SCHEMA_ROWS_H
#define ACEMQ_SCHEMA_ROWS_H

#include "acemq.h"

#include "access/genam.h"
#include "utils/rel.h"
#include "utils/snapshot.h"

/* Columns, by attribute number. */
enum
{
	SCHEMA_ID = 1,
	SCHEMA_SUBJECT,
	SCHEMA_VERSION,
	SCHEMA_FORMAT,
	SCHEMA_DEFINITION,
	SCHEMA_FINGERPRINT,
	SCHEMA_REGISTERED_AT
};

/* What somebody wants registered. */
typedef struct SchemaEntry
{
	text *subject;
	text *format;
	text *definition;
	text *fingerprint;
} SchemaEntry;

/*
 * A look sees what is committed at this moment, and what this transaction has
 * done, at every isolation level: a row never changes, so an old snapshot could
 * only turn one that is there into one that is missing.  It takes no lock that
 * anybody waits for, and needs no right: who may look is decided by EXECUTE.
 *
 * Each returns false if there is no such row; *row is a value of the type
 * acemq.schema_registry, in the current memory context.
 */
extern bool schema_find_id(int32 id, Datum *row);
extern bool schema_find_latest(text *subject, Datum *row);
extern bool schema_find_version(text *subject, int32 version, Datum *row);
extern bool schema_find_entry(const SchemaEntry *entry, Datum *row);

/* The highest there is; 0 if there is none. */
extern int32 schema_max_id(void);
extern int32 schema_max_version(text *subject);

/* All rows of a subject, in the order of their versions. */
typedef struct SchemaScan
{
	Relation table;
	Relation index;
	Snapshot snapshot;
	SysScanDesc scan;
} SchemaScan;

extern void schema_versions_open(SchemaScan *scan, text *subject);
extern HeapTuple schema_versions_next(SchemaScan *scan);
extern void schema_scan_close(SchemaScan *scan);

/* Fields of a row. */
extern int32 schema_row_int(Datum row, AttrNumber column);
extern char *schema_row_text(Datum row, AttrNumber column);

#endif /* ACEMQ_SCHEMA_ROWS_H */
