/*-------------------------------------------------------------------------
 *
 * wait.c
 *		The only place where our processes sleep.
 *
 * The set of events is kept from one wait to the next.  It is made anew when
 * one of the sockets is another one: a descriptor number is given out again at
 * once after a reconnect, so the socket's inode tells whether it still is the
 * same.
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

typedef struct Watched
{
	pgsocket fd;
	ino_t inode;
	uint32 interest;
	int position; /* in the set */
} Watched;

static WaitEventSet *events = NULL;
static Watched watched[WAIT_MAX_SOCKETS];
static int nwatched = 0;

static int identify(const WaitSocket *sockets, int count, Watched *found);
static bool same_sockets(const Watched *wanted, int nwanted);
static void build_events(const Watched *wanted, int nwanted);
static void change_interest(const Watched *wanted, int nwanted);
static uint32 wait_event(void);

void
wait_for_work(const WaitSocket *sockets, int count, TimestampTz until)
{
	long timeout = until == 0 ? MAX_SLEEP_MS : TimestampDifferenceMilliseconds(GetCurrentTimestamp(), until);
	Watched wanted[WAIT_MAX_SOCKETS];
	int nwanted = identify(sockets, count, wanted);
	WaitEvent occurred;

	if (events != NULL && same_sockets(wanted, nwanted))
		change_interest(wanted, nwanted);
	else
		build_events(wanted, nwanted);

	if (WaitEventSetWait(events, Min(timeout, MAX_SLEEP_MS), &occurred, 1, wait_event()) > 0 &&
	    (occurred.events & WL_LATCH_SET) != 0)
		ResetLatch(MyLatch);
}

/* Those that are there; how many. */
static int
identify(const WaitSocket *sockets, int count, Watched *found)
{
	int nfound = 0;

	Assert(count <= WAIT_MAX_SOCKETS);
	for (int i = 0; i < count; i++)
	{
		struct stat status;

		if (sockets[i].fd == PGINVALID_SOCKET || fstat(sockets[i].fd, &status) != 0)
			continue;
		found[nfound].fd = sockets[i].fd;
		found[nfound].inode = status.st_ino;
		found[nfound].interest = WL_SOCKET_READABLE | (sockets[i].want_write ? WL_SOCKET_WRITEABLE : 0);
		nfound++;
	}
	return nfound;
}

static bool
same_sockets(const Watched *wanted, int nwanted)
{
	if (nwanted != nwatched)
		return false;
	for (int i = 0; i < nwanted; i++)
	{
		if (wanted[i].fd != watched[i].fd || wanted[i].inode != watched[i].inode)
			return false;
	}
	return true;
}

static void
change_interest(const Watched *wanted, int nwanted)
{
	for (int i = 0; i < nwanted; i++)
	{
		if (watched[i].interest == wanted[i].interest)
			continue;
		ModifyWaitEvent(events, watched[i].position, wanted[i].interest, NULL);
		watched[i].interest = wanted[i].interest;
	}
}

static void
build_events(const Watched *wanted, int nwanted)
{
	if (events != NULL)
		FreeWaitEventSet(events);
	events = compat_wait_event_set(2 + WAIT_MAX_SOCKETS);
	AddWaitEventToSet(events, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(events, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	for (int i = 0; i < nwanted; i++)
	{
		watched[i] = wanted[i];
		watched[i].position = AddWaitEventToSet(events, wanted[i].interest, wanted[i].fd, NULL, NULL);
	}
	nwatched = nwanted;
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
