/*
 * backoff.h
 *		How long to wait before the next try.  Pure.
 *
 * May depend on: acemq.h.
 */
#ifndef ACEMQ_BACKOFF_H
#define ACEMQ_BACKOFF_H

#include "acemq.h"

/* Delay in ms before attempt number attempts + 1: first * 2^(attempts-1), at most max, without jitter. attempts >= 1. */
extern int64 backoff_delay_ms(int attempts, int64 first_ms, int64 max_ms);

/* The same spread over [delay/2, delay], so that many servers do not knock together. */
extern int64 backoff_jitter_ms(int64 delay_ms);

#endif /* ACEMQ_BACKOFF_H */
