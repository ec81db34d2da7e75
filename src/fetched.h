/*
 * fetched.h
 *		Which rows the relay holds in memory, seen by a backend that has just
 *		locked some.
 *
 * The relay marks the time it spends reading rows with an odd epoch and lists
 * what it holds afterwards; it does not send a row whose xmax is a transaction
 * in progress.  So a backend that locks a row first and looks here afterwards
 * finds it in the list, or the relay finds the lock.  Nothing is written per
 * row for this, and the relay never waits.
 *
 * May depend on: shmem.h.
 */
#ifndef ACEMQ_FETCHED_H
#define ACEMQ_FETCHED_H

#include "shmem.h"

typedef struct FetchedIds
{
	int count;
	int64 *ids; /* ascending, palloc'd */
} FetchedIds;

/*
 * What the relay of this database holds.  Call it after the rows in question
 * are locked.  Waits, interruptibly, while the relay is reading rows, which is short.
 */
extern FetchedIds fetched_now(void);

extern bool fetched_contains(const FetchedIds *fetched, int64 id);

#endif /* ACEMQ_FETCHED_H */
