/*
 * idempotency_args.h
 *		The arguments of the idempotency functions: checks and defaults.
 *
 * May depend on: acemq.h.
 */
#ifndef ACEMQ_IDEMPOTENCY_ARGS_H
#define ACEMQ_IDEMPOTENCY_ARGS_H

#include "acemq.h"

#include "datatype/timestamp.h"
#include "fmgr.h"

/* Argument 0.  Not NULL, not empty, not longer than the column. */
extern text *idempotency_key_arg(FunctionCallInfo fcinfo);

/* NULL: acemq.owner, or if that is empty a UUID that stays the same as long as the session. */
extern text *idempotency_owner_arg(FunctionCallInfo fcinfo, int n);

/* Microseconds; NULL: what the setting says. */
extern TimeOffset idempotency_lease_arg(FunctionCallInfo fcinfo, int n);
extern TimeOffset idempotency_retention_arg(FunctionCallInfo fcinfo, int n);

#endif /* ACEMQ_IDEMPOTENCY_ARGS_H */
