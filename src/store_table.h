/*
 * store_table.h
 *		The tables of the stores, checked: what we read by position, and whose
 *		triggers we run, must be what CREATE EXTENSION made.
 *
 * May depend on: as_owner.h, compat.h.
 */
#ifndef ACEMQ_STORE_TABLE_H
#define ACEMQ_STORE_TABLE_H

#include "acemq.h"
#include "compat.h"

#include "storage/lockdefs.h"
#include "utils/rel.h"

typedef struct StoreColumn
{
	Oid type;
	bool not_null;
} StoreColumn;

typedef struct StoreTable
{
	const char *name;
	int ncolumns; /* the first ones; an owner's own come after them */
	StoreColumn columns[7];
} StoreTable;

extern const StoreTable store_idempotency;
extern const StoreTable store_schema_registry;
extern const StoreTable store_schema_registry_seq;
extern const StoreTable store_claim_check;

/* Are its first columns, its storage and its owner (that of acemq.outbox) what they should be? */
extern bool store_table_is_ours(Relation rel, const StoreTable *table);

/* Error if there is no such table, or it is not ours.  The lock is kept to the end of the transaction. */
extern Relation store_table_open(const StoreTable *table, LOCKMODE lockmode);
/* The same before statements that name the table. */
extern void store_table_check(const StoreTable *table);

/* The error of a table that is not ours. */
pg_noreturn extern void store_table_refuse(const StoreTable *table);

#endif /* ACEMQ_STORE_TABLE_H */
