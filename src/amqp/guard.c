/*
 * guard.c
 *		Deadline and termination for calls that can block.
 *
 * May depend on: PostgreSQL's timeout module.
 */
#include "guard.h"

#include <signal.h>
#include <sys/socket.h>

#include "utils/timeout.h"

static TimeoutId guard_timeout;
static bool guard_is_ready = false;

/* Shared with signal handlers. */
static volatile sig_atomic_t guard_armed = 0;
static volatile sig_atomic_t guard_outcome = GUARD_QUIET;
static volatile sig_atomic_t process_is_to_end = 0;
static volatile pgsocket guard_socket = PGINVALID_SOCKET;
static GuardSocketOf volatile guard_socket_of = NULL;
static void *volatile guard_socket_arg = NULL;

static void
shut_down(void)
{
	int save_errno = errno;
	pgsocket socket = guard_socket;

	if (socket == PGINVALID_SOCKET && guard_socket_of != NULL)
		socket = guard_socket_of(guard_socket_arg);
	if (socket != PGINVALID_SOCKET)
		(void) shutdown(socket, SHUT_RDWR);
	errno = save_errno;
}

/* Runs in the SIGALRM handler. */
static void
timed_out(void)
{
	if (guard_armed && guard_outcome == GUARD_QUIET)
	{
		guard_outcome = GUARD_TIMED_OUT;
		shut_down();
	}
}

void
guard_kick(void)
{
	process_is_to_end = 1;
	if (guard_armed)
	{
		guard_outcome = GUARD_KICKED;
		shut_down();
	}
}

void
guard_repeat(void)
{
	if (guard_armed && guard_outcome != GUARD_QUIET)
		shut_down();
}

void
guard_init(void)
{
	if (guard_is_ready)
		return;
	guard_timeout = RegisterTimeout(USER_TIMEOUT, timed_out);
	guard_is_ready = true;
}

static void
arm(int timeout_ms)
{
	Assert(guard_is_ready && !guard_armed);
	guard_outcome = GUARD_QUIET;
	guard_armed = 1;
	enable_timeout_after(guard_timeout, timeout_ms);

	/* The signal may have come just before the guard was armed; nobody would send it again. */
	if (process_is_to_end)
		guard_kick();
}

void
guard_begin(pgsocket socket, int timeout_ms)
{
	guard_socket = socket;
	guard_socket_of = NULL;
	arm(timeout_ms);
}

void
guard_begin_opening(GuardSocketOf socket_of, void *arg, int timeout_ms)
{
	guard_socket = PGINVALID_SOCKET;
	guard_socket_arg = arg;
	guard_socket_of = socket_of;
	arm(timeout_ms);
}

GuardOutcome
guard_end(void)
{
	int save_errno = errno;

	/*
	 * First of all the flag: once it is clear, no handler touches the socket,
	 * whose number may belong to something else soon.
	 */
	guard_armed = 0;
	disable_timeout(guard_timeout, false);
	errno = save_errno;
	return (GuardOutcome) guard_outcome;
}
