/*
 * outbox_table.h
 *		The outbox table as this backend finds it: its columns, and whether a
 *		row may be put into it without the executor.
 *
 * May depend on: compat.h.
 */
#ifndef ACEMQ_OUTBOX_TABLE_H
#define ACEMQ_OUTBOX_TABLE_H

#include "acemq.h"

#include "nodes/execnodes.h"
#include "utils/rel.h"

/* Columns in the order of the table, attribute number minus one. */
typedef enum OutboxColumn
{
	OUTBOX_ID,
	OUTBOX_CREATED_AT,
	OUTBOX_ATTEMPTS,
	OUTBOX_VERSION,
	OUTBOX_PERSISTENT,
	OUTBOX_CALLER_ID,
	OUTBOX_MESSAGE_ID,
	OUTBOX_EXCHANGE,
	OUTBOX_ROUTING_KEY,
	OUTBOX_CONTENT_TYPE,
	OUTBOX_BODY,
	OUTBOX_HEADERS,
	OUTBOX_TYPE,
	OUTBOX_ORIGIN,
	OUTBOX_CORRELATION_ID,
	OUTBOX_CAUSATION_ID,
	OUTBOX_REPLY_TO,
	OUTBOX_ORDERING_KEY,
	OUTBOX_EXPIRATION,
	OUTBOX_PRIORITY,
	OUTBOX_NOT_BEFORE,
	OUTBOX_LADDER_DUE_AT,
	OUTBOX_NEXT_ATTEMPT_AT,
	OUTBOX_RETIRED_AT,
	OUTBOX_PUBLISHED_AT,
	OUTBOX_LEASED_UNTIL,
	OUTBOX_LEASED_BY,
	OUTBOX_LAST_ERROR,
	OUTBOX_COLUMNS
} OutboxColumn;

/*
 * Rows without a message id of the caller's, by what decides in which partial
 * indexes they belong.
 */
#define ROW_ORDERED 1 /* bit: ordering_key is given */
#define ROW_DELAYED 2 /* bit: not_before is given */
#define ROW_CLASSES 4

#define OUTBOX_MAX_INDEXES 16

typedef struct OutboxIndex
{
	Oid relid;
	bool holds[ROW_CLASSES];
	IndexInfo *info;
} OutboxIndex;

typedef struct OutboxShape
{
	bool direct[ROW_CLASSES]; /* such a row may go straight into the heap and into the indexes that hold it */
	Oid sequence;
	int nindexes;
	OutboxIndex indexes[OUTBOX_MAX_INDEXES];
} OutboxShape;

/*
 * Open acemq.outbox with RowExclusiveLock, which is kept to the end of the
 * transaction.  *shape is valid until the table is closed.  Error if there is no such table.
 */
extern Relation outbox_table_open(const OutboxShape **shape);

#endif /* ACEMQ_OUTBOX_TABLE_H */
