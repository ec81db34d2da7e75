/*
 * identity.h
 *		May this database relay?  What acemq.identity says, for ordinary
 *		backends (the worker reads the table itself, without a statement).
 *
 * May depend on: saved_plan.h.
 */
#ifndef ACEMQ_IDENTITY_H
#define ACEMQ_IDENTITY_H

#include "acemq.h"

typedef struct Identity
{
	bool fenced; /* our row is missing, or there is another one: a restored copy */
	bool paused; /* relay_pause() */
} Identity;

/* SPI is connected, and we are the owner. */
extern Identity identity_read(void);

#endif /* ACEMQ_IDENTITY_H */
