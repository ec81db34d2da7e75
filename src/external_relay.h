/*
 * external_relay.h
 *		What the functions for a relay outside the server share: its name, the
 *		failed attempt (docs/protocol.md, section 2.4).
 *
 * May depend on: saved_plan.h.
 */
#ifndef ACEMQ_EXTERNAL_RELAY_H
#define ACEMQ_EXTERNAL_RELAY_H

#include "acemq.h"

#include "fmgr.h"

/* Most rows of one claim, as in the family's libraries. */
#define EXTERNAL_RELAY_MAX_BATCH 10000

/*
 * Argument `relay`: the holder of a lease.  NULL: a name of this session, the
 * same for every call and never used by another session.
 */
extern text *external_relay_arg(FunctionCallInfo fcinfo, int n);

/*
 * Count a failed attempt of a row that this transaction has locked, and end
 * its lease: tried again after the back-off, or retired after
 * acemq.max_attempts.  SPI is connected, and we are the owner.
 */
extern void external_relay_fail(int64 id, int attempts_so_far, const char *reason);

#endif /* ACEMQ_EXTERNAL_RELAY_H */
