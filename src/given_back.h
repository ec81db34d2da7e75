/*
 * given_back.h
 *		Rows that a transaction has locked, and gives back if it aborts.
 *
 * The relay does not wait for a lock: it passes over a row that somebody is
 * cancelling or leasing.  When that comes to nothing the relay has to be told,
 * or the row would wait for its next sweep through the table.
 *
 * May depend on: wake.h.
 */
#ifndef ACEMQ_GIVEN_BACK_H
#define ACEMQ_GIVEN_BACK_H

#include "acemq.h"

/* If the current (sub)transaction aborts, the worker looks at that row again. */
extern void given_back_on_abort(int64 id);

#endif /* ACEMQ_GIVEN_BACK_H */
