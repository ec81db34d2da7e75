/*
 * housekeeping.h
 *		What the worker does now and then whether it relays or not: remove
 *		what has expired from the stores.
 *
 * May depend on: nothing of ours.
 */
#ifndef ACEMQ_HOUSEKEEPING_H
#define ACEMQ_HOUSEKEEPING_H

#include "acemq.h"

#include "datatype/timestamp.h"

/* A bounded amount of work if it is time for it, else nothing. */
extern void housekeeping_step(void);

/* When to call that next. */
extern TimestampTz housekeeping_next_deadline(void);

#endif /* ACEMQ_HOUSEKEEPING_H */
