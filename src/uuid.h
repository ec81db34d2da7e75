/*
 * uuid.h
 *		Random identifiers.
 *
 * May depend on: acemq.h.
 */
#ifndef ACEMQ_UUID_H
#define ACEMQ_UUID_H

#include "acemq.h"

#define UUID_TEXT_LEN 36

/* A version 4 UUID, lower case with dashes, from the system's strong random source.  Writes UUID_TEXT_LEN bytes and a zero. */
extern void uuid_v4(char *text);

#endif /* ACEMQ_UUID_H */
