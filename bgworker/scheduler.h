/*
 * scheduler.h
 *		The consumer of the ladder's control queue: what has waited long enough
 *		there goes to its target, everything else onto the next rung.
 *
 * The worker's loop calls scheduler_step() whenever something may have
 * happened: latch, socket, deadline.  It never touches the database, so no lock
 * there can stop it.
 *
 * May depend on: src/shmem.h.
 */
#ifndef ACEMQ_SCHEDULER_H
#define ACEMQ_SCHEDULER_H

#include "acemq.h"
#include "shmem.h"

#include "datatype/timestamp.h"

typedef struct Scheduler Scheduler;

/* May this database talk to the broker at all? */
typedef enum SchedulerPermission
{
	SCHEDULER_NOT_KNOWN_YET,
	SCHEDULER_FENCED, /* it is a copy of another one */
	SCHEDULER_ALLOWED
} SchedulerPermission;

extern Scheduler *scheduler_create(MemoryContext parent, AcemqSlot *slot);

/* A bounded amount of work; true: call again at once. */
extern bool scheduler_step(Scheduler *scheduler, SchedulerPermission permission);
extern void scheduler_config_changed(Scheduler *scheduler);
/* Somebody may have mended what keeps it from connecting. */
extern void scheduler_try_now(Scheduler *scheduler);

/* What to wait for: PGINVALID_SOCKET for none, 0 for no deadline. */
extern pgsocket scheduler_socket(Scheduler *scheduler);
extern bool scheduler_wants_write(Scheduler *scheduler);
extern TimestampTz scheduler_next_deadline(Scheduler *scheduler);

/* Hang up: the broker delivers again what is not settled. */
extern void scheduler_shutdown(Scheduler *scheduler);

#endif /* ACEMQ_SCHEDULER_H */
