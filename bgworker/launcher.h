/*
 * launcher.h
 *		The process that starts and restarts the workers, one per cluster.
 *
 * May depend on: nothing of ours.
 */
#ifndef ACEMQ_LAUNCHER_H
#define ACEMQ_LAUNCHER_H

#include "acemq.h"

/* Entry point of the process; src/acemq.c registers it by name. */
extern PGDLLEXPORT void acemq_launcher_main(Datum arg);

#endif /* ACEMQ_LAUNCHER_H */
