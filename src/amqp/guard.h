/*
 * guard.h
 *		A deadline, and a way out at termination, for calls into a library that
 *		has neither.
 *
 * librabbitmq restarts every system call that a signal interrupts and waits
 * without limit when the peer reads nothing.  While such a call runs, a worker
 * neither ends nor takes part in the barriers that other people's DDL waits
 * for.  Shutting the socket down under the call is what gets it back in all
 * cases, plain and TLS.  The handlers do nothing but that: raising an error
 * across the library's frames would leave it in pieces.
 *
 * A connection whose guard fired is dead, whatever the call returned: the
 * handler may run just after the call succeeded.
 *
 * May depend on: PostgreSQL's timeout module.
 */
#ifndef ACEMQ_GUARD_H
#define ACEMQ_GUARD_H

#include "acemq.h"

typedef enum GuardOutcome
{
	GUARD_QUIET,
	GUARD_TIMED_OUT,
	GUARD_KICKED /* the process is to end */
} GuardOutcome;

/* Once per process, after InitializeTimeouts(). */
extern void guard_init(void);

extern void guard_begin(pgsocket socket, int timeout_ms);

/* For a call that makes the socket itself: it is asked for when it is needed, in a signal handler. */
typedef pgsocket (*GuardSocketOf)(void *arg);
extern void guard_begin_opening(GuardSocketOf socket_of, void *arg, int timeout_ms);

/* No error may be raised and no interrupt served between begin and end. */
extern GuardOutcome guard_end(void);

/* The process is to end: get the guarded call out, now and from now on.  Async-signal-safe. */
extern void guard_kick(void);

/* Shut the socket down again if the guard has fired.  For a socket that came into being after that. */
extern void guard_repeat(void);

#endif /* ACEMQ_GUARD_H */
