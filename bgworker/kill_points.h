/*
 * kill_points.h
 *		Steps at which a test lets the worker die.
 *
 * They are there only in a build with -DACEMQ_KILL_POINTS, which the tier
 * `faults` makes for itself; in any other KILL_POINT() is nothing at all.  Such
 * a build has a setting acemq.kill_point = 'name[:n[:error]]': the n-th time
 * (1 if not given) that a worker comes to the step of that name it is gone as
 * by SIGKILL, or with `error` it raises one.
 *
 * That happens once: the file acemq_kill_point.reached in the data directory
 * is made first, and while it is there no step ends anybody.
 *
 * The test reads the table below: every step in it has to be reached.
 *
 * May depend on: nothing of ours.
 */
#ifndef ACEMQ_KILL_POINTS_H
#define ACEMQ_KILL_POINTS_H

#include "postgres.h"

#define KILL_POINT_TABLE(X)                                                                                            \
	/* a row on its way out */                                                                                         \
	X(RELAY_FETCHED, "relay_fetched")     /* rows read, transaction open */                                            \
	X(RELAY_UNFLUSHED, "relay_unflushed") /* rows in memory, commits not known to be flushed */                        \
	X(RELAY_PUBLISHING, "relay_publishing")                                                                            \
	X(RELAY_PUBLISHED, "relay_published") /* sent, and not yet noted */                                                \
	X(RELAY_CONFIRMED, "relay_confirmed") /* the confirm has been read */                                              \
	X(RELAY_SETTLING, "relay_settling")   /* in the transaction that will delete */                                    \
	X(RELAY_DELETED, "relay_deleted")     /* deleted, not committed */                                                 \
	X(RELAY_SETTLED, "relay_settled")     /* delete committed, memory says otherwise */                                \
	/* a row that fails */                                                                                             \
	X(RELAY_FAILED, "relay_failed")                       /* the attempt is in memory only */                          \
	X(RELAY_FAILURE_WRITTEN, "relay_failure_written")     /* and in the table, not committed */                        \
	X(RELAY_FAILURE_COMMITTED, "relay_failure_committed") /* committed, memory says otherwise */                       \
	/* channels and connections that die */                                                                            \
	X(RELAY_CHANNEL_CLOSED, "relay_channel_closed")                                                                    \
	X(RELAY_LOST, "relay_lost")                                                                                        \
	/* a message of the control queue */                                                                               \
	X(SCHEDULER_DELIVERED, "scheduler_delivered")                                                                      \
	X(SCHEDULER_PUBLISHING, "scheduler_publishing")                                                                    \
	X(SCHEDULER_PUBLISHED, "scheduler_published") /* sent on, and not yet noted */                                     \
	X(SCHEDULER_CONFIRMED, "scheduler_confirmed") /* the confirm has been read, nothing acknowledged */                \
	X(SCHEDULER_SETTLED, "scheduler_settled")     /* acknowledged */                                                   \
	X(SCHEDULER_RETURNED, "scheduler_returned")   /* due, and nobody takes it */                                       \
	X(SCHEDULER_MALFORMED, "scheduler_malformed") /* about to be dropped */

#ifdef ACEMQ_KILL_POINTS

#define KILL_POINT_ENUM(symbol, name) KILL_POINT_##symbol,
typedef enum KillPoint
{
	KILL_POINT_TABLE(KILL_POINT_ENUM) KILL_POINT_COUNT
} KillPoint;

extern void kill_point_reached(KillPoint point);

#define KILL_POINT(symbol) kill_point_reached(KILL_POINT_##symbol)

#else

#define KILL_POINT(symbol) ((void) 0)

#endif

#endif /* ACEMQ_KILL_POINTS_H */
