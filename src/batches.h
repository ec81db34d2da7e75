/*
 * batches.h
 *		Change many rows of the outbox a thousand at a time: bounded memory, and
 *		an interrupt is served between two batches.
 *
 * May depend on: saved_plan.h.
 */
#ifndef ACEMQ_BATCHES_H
#define ACEMQ_BATCHES_H

#include "saved_plan.h"

/*
 * `find` yields ids; it is read once, through a cursor, so that rows already
 * dealt with are not walked over again.  `change` takes an array of ids as its
 * only parameter and returns the ids it changed, and `each` (may be NULL) is
 * called for those.  Returns how many there were.  SPI is connected, and we
 * are the owner.
 */
extern int64 run_in_batches(SavedPlan *find, Datum *values, const char *nulls, SavedPlan *change,
                            void (*each)(int64 id));

/* The ids in column 1 of the last result, as an array. */
extern Datum spi_id_array(void);

#endif /* ACEMQ_BATCHES_H */
