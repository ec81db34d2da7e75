/*
 * wait.h
 *		The only place where our processes sleep.
 *
 * May depend on: src/compat.h.
 */
#ifndef ACEMQ_WAIT_H
#define ACEMQ_WAIT_H

#include "acemq.h"

#include "datatype/timestamp.h"

/*
 * Sleep until the process's latch is set, the socket (PGINVALID_SOCKET: none)
 * can be read from (with `want_write`, also written to), or that time has
 * come (0: none).  Resets the latch: what it stands for has to be looked at afterwards.
 * May return early.  The process ends here when the postmaster has died.
 */
extern void wait_for_work(pgsocket socket, bool want_write, TimestampTz until);

#endif /* ACEMQ_WAIT_H */
