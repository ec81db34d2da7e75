/*
 * doctor.h
 *		acemq.doctor(): what the files with the checks share.
 *
 * May depend on: acemq.h.
 */
#ifndef ACEMQ_DOCTOR_H
#define ACEMQ_DOCTOR_H

#include "acemq.h"

#include "nodes/execnodes.h"

typedef struct Doctor
{
	ReturnSetInfo *result;
} Doctor;

/* One line of the report; `hint` is shown only when the check is not ok. */
extern void doctor_report(Doctor *doctor, const char *check, bool ok, const char *detail, const char *hint);

/* "1 message", "2 messages" */
extern char *doctor_count_messages(int64 count);

/* Checks of shared memory: the processes, the broker, the backlog. */
extern void doctor_check_processes(Doctor *doctor);
extern void doctor_check_relay(Doctor *doctor);
extern void doctor_check_scheduler(Doctor *doctor);

/* Checks of the settings, of the catalogs and of the tables.  SPI is connected, and we are the owner. */
extern void doctor_check_settings(Doctor *doctor);
extern void doctor_check_tables(Doctor *doctor);

#endif /* ACEMQ_DOCTOR_H */
