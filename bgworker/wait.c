/*-------------------------------------------------------------------------
 *
 * wait.c
 *		The only place where our processes sleep.
 *
 * The set of events is kept from one wait to the next.  It is made anew when
 * the socket is another one: a descriptor number is given out again at once
 * after a reconnect, so the socket's inode tells whether it still is the same.
 *
 * May depend on: src/compat.h.
 *
 *-------------------------------------------------------------------------
 */
#include "wait.h"

#include "compat.h"

#include <sys/stat.h>

#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

/* A deadline is wall-clock time: if the clock is set back, this is what it may cost. */
#define MAX_SLEEP_MS 10000

typedef struct SocketIdentity
{
	pgsocket fd;
	ino_t inode;
} SocketIdentity;

static WaitEventSet *events = NULL;
static SocketIdentity watched;
static int socket_position;
static uint32 socket_interest;

static SocketIdentity identify(pgsocket socket);
static void build_events(SocketIdentity socket, uint32 interest);
static uint32 wait_event(void);

void
wait_for_work(pgsocket socket, bool want_write, TimestampTz until)
{
	SocketIdentity now_watched = identify(socket);
	uint32 interest = WL_SOCKET_READABLE | (want_write ? WL_SOCKET_WRITEABLE : 0);
	long timeout = until == 0 ? MAX_SLEEP_MS : TimestampDifferenceMilliseconds(GetCurrentTimestamp(), until);
	WaitEvent occurred;

	if (events == NULL || watched.fd != now_watched.fd || watched.inode != now_watched.inode)
		build_events(now_watched, interest);
	else if (watched.fd != PGINVALID_SOCKET && socket_interest != interest)
	{
		ModifyWaitEvent(events, socket_position, interest, NULL);
		socket_interest = interest;
	}

	if (WaitEventSetWait(events, Min(timeout, MAX_SLEEP_MS), &occurred, 1, wait_event()) > 0 &&
	    (occurred.events & WL_LATCH_SET) != 0)
		ResetLatch(MyLatch);
}

static SocketIdentity
identify(pgsocket socket)
{
	SocketIdentity identity = {PGINVALID_SOCKET, 0};
	struct stat status;

	if (socket != PGINVALID_SOCKET && fstat(socket, &status) == 0)
	{
		identity.fd = socket;
		identity.inode = status.st_ino;
	}
	return identity;
}

static void
build_events(SocketIdentity socket, uint32 interest)
{
	if (events != NULL)
		FreeWaitEventSet(events);
	events = compat_wait_event_set(3);
	AddWaitEventToSet(events, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(events, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	if (socket.fd != PGINVALID_SOCKET)
		socket_position = AddWaitEventToSet(events, interest, socket.fd, NULL, NULL);
	watched = socket;
	socket_interest = interest;
}

/* What pg_stat_activity shows, where an extension can name it. */
static uint32
wait_event(void)
{
	static uint32 event = 0;

	if (event == 0)
		event = compat_wait_event("AcemqWork");
	return event;
}
