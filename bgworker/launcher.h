/*
 * launcher.h
 *		The process that starts and restarts the workers, one per cluster.
 *
 * May depend on: nothing of ours.
 */
#ifndef ACEMQ_LAUNCHER_H
#define ACEMQ_LAUNCHER_H

#include "acemq.h"

/* From _PG_init while preloading. */
extern void launcher_register(void);

/* Entry point of the process. */
extern PGDLLEXPORT void acemq_launcher_main(Datum arg);

#endif							/* ACEMQ_LAUNCHER_H */
