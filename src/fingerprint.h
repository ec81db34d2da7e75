/*
 * fingerprint.h
 *		What tells one schema definition from another.
 *
 * May depend on: utf8.h.
 */
#ifndef ACEMQ_FINGERPRINT_H
#define ACEMQ_FINGERPRINT_H

#include "acemq.h"

#define FINGERPRINT_LEN 64

/*
 * SHA-256 of the text's bytes in UTF-8, lower-case hexadecimal: FINGERPRINT_LEN
 * characters.  Nothing is normalised, so a blank more is another definition.
 * Errors as in utf8.h, naming `argument`.
 */
extern text *fingerprint_of(const text *definition, const char *argument);

#endif /* ACEMQ_FINGERPRINT_H */
