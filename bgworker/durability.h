/*
 * durability.h
 *		Up to where commits are safe: nothing is published whose commit could
 *		still be lost.
 *
 * Database column: knows no broker.
 * May depend on: acemq.h.
 */
#ifndef ACEMQ_DURABILITY_H
#define ACEMQ_DURABILITY_H

#include "acemq.h"

#include "access/xlogdefs.h"

/* A position past every commit that a snapshot taken now can see. */
extern XLogRecPtr durability_horizon(void);

/* Flush the local WAL up to there if it is not yet. */
extern void durability_flush(XLogRecPtr upto);

/* Up to where synchronous standbys have confirmed; the largest position there is when none are configured. */
extern XLogRecPtr durability_confirmed(void);

#endif /* ACEMQ_DURABILITY_H */
