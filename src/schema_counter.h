/*
 * schema_counter.h
 *		acemq.schema_registry_seq: the row that hands out ids, and the queue of
 *		those who register.
 *
 * May depend on: acemq.h.
 */
#ifndef ACEMQ_SCHEMA_COUNTER_H
#define ACEMQ_SCHEMA_COUNTER_H

#include "acemq.h"

/*
 * The last id that was handed out.  Waits for other transactions that register,
 * and keeps later ones waiting until this (sub)transaction ends.  Error if the
 * row is missing.  SPI is connected, and we are the owner; the same below.
 */
extern int32 schema_counter_lock(void);

/* Ids up to this one are never handed out again. */
extern void schema_counter_raise(int32 id);

#endif /* ACEMQ_SCHEMA_COUNTER_H */
