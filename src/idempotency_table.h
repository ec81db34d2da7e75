/*
 * idempotency_table.h
 *		The table acemq.idempotency, and what is known of a key right now.
 *
 * May depend on: acemq.h.
 */
#ifndef ACEMQ_IDEMPOTENCY_TABLE_H
#define ACEMQ_IDEMPOTENCY_TABLE_H

#include "acemq.h"

#include "executor/tuptable.h"
#include "utils/rel.h"
#include "utils/snapshot.h"
#include "utils/timestamp.h"

/* Columns in the order of the table, attribute number minus one.  The owner's own come after them. */
typedef enum IdempotencyColumn
{
	IDEMPOTENCY_KEY,
	IDEMPOTENCY_STATE,
	IDEMPOTENCY_CLAIMED_BY,
	IDEMPOTENCY_RECORDED_AT,
	IDEMPOTENCY_EXPIRES_AT,
	IDEMPOTENCY_COLUMNS
} IdempotencyColumn;

#define IDEMPOTENCY_CLAIMED   "CLAIMED"
#define IDEMPOTENCY_CONFIRMED "CONFIRMED"

typedef struct IdempotencyTable
{
	Relation rel;
	Oid primary_key;
	LOCKMODE lockmode;
	TupleTableSlot *row; /* what was found last; as long as it is there, its place is not used for another row */
} IdempotencyTable;

/*
 * Open it; the lock is kept to the end of the transaction.  Error if there is
 * no such table, or if its first columns or its primary key are not ours.
 */
extern void idempotency_open(IdempotencyTable *table, LOCKMODE lockmode);
extern void idempotency_close(IdempotencyTable *table);

typedef enum IdempotencyLook
{
	LOOK_NOTHING,
	LOOK_BUSY,    /* a transaction that is open has written the row: nobody knows what will become of it */
	LOOK_CLAIMED, /* and the lease holds */
	LOOK_CONFIRMED /* and the retention holds, even if somebody is changing the row */,
	LOOK_EXPIRED
} IdempotencyLook;

/* The transaction that makes a row busy. */
typedef struct IdempotencyBusy
{
	TransactionId xid;
	uint32 speculative_token; /* not zero: it is only trying whether the key is free */
	ItemPointerData tid;
} IdempotencyBusy;

/*
 * What is known of the key: what is committed now, at every isolation level,
 * and what this transaction has done itself.  Neither waits nor writes.  The
 * last three leave the row in table->row; `busy` (may be NULL) is filled in for LOOK_BUSY.
 */
extern IdempotencyLook idempotency_look(IdempotencyTable *table, text *key, TimestampTz now, IdempotencyBusy *busy);

/* Of the row that is visible to an ordinary snapshot taken now: is it confirmed and not expired? */
extern bool idempotency_is_confirmed(IdempotencyTable *table, text *key, TimestampTz now);

/* A unique index of it on the key alone?  REINDEX CONCURRENTLY makes a second one for a while. */
extern bool idempotency_index_is_of_key(Relation index);

/* Columns of table->row. */
extern bool idempotency_row_is_claim_of(IdempotencyTable *table, const text *owner);

#endif /* ACEMQ_IDEMPOTENCY_TABLE_H */
