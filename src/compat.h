/*
 * compat.h
 *		Every difference between the PostgreSQL versions we support (15 to 18).
 *		PG_VERSION_NUM appears nowhere else.
 *
 * May depend on: nothing of ours.
 */
#ifndef ACEMQ_COMPAT_H
#define ACEMQ_COMPAT_H

#include "postgres.h"

#if PG_VERSION_NUM < 150000
#error "acemq needs PostgreSQL 15 or later"
#endif

#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* Infinite intervals came with 17. */
#if PG_VERSION_NUM < 170000
#define INTERVAL_NOT_FINITE(interval) ((void) (interval), false)
#endif

#endif							/* ACEMQ_COMPAT_H */
