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

typedef struct WaitSocket
{
	pgsocket fd;     /* PGINVALID_SOCKET: none */
	bool want_write; /* also wake up when it can be written to */
} WaitSocket;

#define WAIT_MAX_SOCKETS 2

/*
 * Sleep until the process's latch is set, one of the sockets can be read from
 * (with `want_write`, also written to), or that time has come (0: none).
 * Resets the latch: what it stands for has to be looked at afterwards.  May
 * return early.  The process ends here when the postmaster has died.
 */
extern void wait_for_work(const WaitSocket *sockets, int count, TimestampTz until);

#endif /* ACEMQ_WAIT_H */
