/*
 * idempotency_purge.h
 *		Remove expired rows of acemq.idempotency, a batch at a time.
 *
 * Database column: knows no broker.
 * May depend on: nothing of ours.
 */
#ifndef ACEMQ_IDEMPOTENCY_PURGE_H
#define ACEMQ_IDEMPOTENCY_PURGE_H

#include "acemq.h"

#include "datatype/timestamp.h"

typedef enum PurgeResult
{
	PURGE_NOTHING,    /* or the table was locked */
	PURGE_LAST_BATCH, /* it was not full */
	PURGE_FULL_BATCH, /* there may be more */
	PURGE_FAILED      /* something of the owner's stands in the way; it has been logged */
} PurgeResult;

/*
 * In a transaction of its own.  Rows that expired before *from are left out;
 * *from moves up to the last one that was removed.  Where nothing has expired this is a look into the
 * index: no statement, no transaction id, no WAL.
 */
extern PurgeResult idempotency_purge_batch(int limit, TimestampTz *from);

#endif /* ACEMQ_IDEMPOTENCY_PURGE_H */
