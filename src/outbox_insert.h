/*
 * outbox_insert.h
 *		Put a checked message into the outbox, in the caller's transaction and
 *		whatever rights the caller has on the table.
 *
 * May depend on: outbox_args.h, outbox_table.h, as_owner.h, saved_plan.h.
 */
#ifndef ACEMQ_OUTBOX_INSERT_H
#define ACEMQ_OUTBOX_INSERT_H

#include "outbox_args.h"

/*
 * True: a row was added, *id is its id.  False: nothing was added, because the
 * caller's message id is in the table already (or a trigger of the table's
 * owner swallowed the row).
 *
 * A body of acemq.claim_check_threshold bytes or more goes into the claim-check
 * store, and the row says under which key.
 */
extern bool outbox_insert(const OutboxMessage *message, int64 *id);

/* The same for a publishing function: the relay hears of it at commit, the caller (once a session) if there is none. */
extern void outbox_record(const OutboxMessage *message);

/* Call it first.  `function` is the name for the error. */
extern void outbox_refuse_read_only(const char *function);

#endif /* ACEMQ_OUTBOX_INSERT_H */
