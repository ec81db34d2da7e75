/*
 * idempotency_write.h
 *		Put a row into acemq.idempotency, or replace the one that was found
 *		there, without waiting for anybody who is at the same key.
 *
 * May depend on: idempotency_table.h.
 */
#ifndef ACEMQ_IDEMPOTENCY_WRITE_H
#define ACEMQ_IDEMPOTENCY_WRITE_H

#include "idempotency_table.h"

typedef struct IdempotencyRow
{
	const char *state;
	const text *claimed_by; /* NULL: nobody */
	TimestampTz recorded_at;
	TimestampTz expires_at;
} IdempotencyRow;

typedef enum IdempotencyWrite
{
	WRITE_DONE,
	WRITE_LOST,      /* somebody else was there first; nothing was changed */
	WRITE_SUPPRESSED /* a trigger of the owner's did not let it happen */
} IdempotencyWrite;

/* For a key that has no row.  Waits for nobody, unless the owner has put rules or forced policies on the table. */
extern IdempotencyWrite idempotency_insert(IdempotencyTable *table, const text *key, const IdempotencyRow *row);

/*
 * For the row that idempotency_look() has left in table->row.  `wait`: for
 * whoever is changing it; if not, that means WRITE_LOST.
 */
extern IdempotencyWrite idempotency_replace(IdempotencyTable *table, const text *key, const IdempotencyRow *row,
                                            bool wait);

#endif /* ACEMQ_IDEMPOTENCY_WRITE_H */
