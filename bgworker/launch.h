/*
 * launch.h
 *		Starting a worker, telling it to end, and seeing that it has.
 *
 * May depend on: databases.h.
 */
#ifndef ACEMQ_LAUNCH_H
#define ACEMQ_LAUNCH_H

#include "databases.h"

typedef enum LaunchResult
{
	LAUNCH_DONE,     /* DATABASE_LAUNCHED now */
	LAUNCH_NOT_NOW,  /* held, or all slots are taken */
	LAUNCH_EXHAUSTED /* max_worker_processes is reached */
} LaunchResult;

extern LaunchResult launch_worker(Database *database, TimestampTz now);

/* Workers that have not yet reported whether there is an extension. */
extern int launch_count_probes(void);

extern bool launch_is_running(Database *database);
/* A worker that is there has been asked to leave, by whomever. */
extern bool launch_is_leaving(Database *database);
/*
 * Ask the worker to leave, and after ACEMQ_LEAVE_MS send it SIGTERM, once.  To
 * be called again at the time returned, if it is not 0.
 */
extern TimestampTz launch_stop(Database *database, TimestampTz now);
/* The worker has ended: forget what was known of it. */
extern void launch_forget(Database *database);

/* At the start of a launcher: the workers that outlived an earlier one. */
extern void launch_adopt_workers(void);

#endif /* ACEMQ_LAUNCH_H */
