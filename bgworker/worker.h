/*
 * worker.h
 *		The process that serves one database.
 *
 * May depend on: nothing of ours.
 */
#ifndef ACEMQ_WORKER_H
#define ACEMQ_WORKER_H

#include "acemq.h"

/* Entry point of the process; the argument is the database's oid. */
extern PGDLLEXPORT void acemq_worker_main(Datum arg);

#endif /* ACEMQ_WORKER_H */
