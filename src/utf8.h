/*
 * utf8.h
 *		Text of the database as UTF-8: what goes on the wire is UTF-8 whatever
 *		the encoding of the database is.
 *
 * May depend on: acemq.h.
 */
#ifndef ACEMQ_UTF8_H
#define ACEMQ_UTF8_H

#include "acemq.h"

/*
 * Returns the UTF-8 form and its length.  That is `text` itself, not copied
 * and not terminated, where nothing has to be converted; else a palloc'd and
 * terminated string.  Raises an error that names `argument` for a character without an
 * equivalent, and in a SQL_ASCII database for bytes that are not valid UTF-8.
 */
extern const char *utf8_from_server(const char *text, int len, int *utf8_len, const char *argument);

/* The same for a terminated string; the result is always terminated. */
extern const char *utf8_cstring(const char *text, const char *argument);

#endif /* ACEMQ_UTF8_H */
