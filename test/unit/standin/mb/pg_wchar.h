/*
 * mb/pg_wchar.h (stand-in)
 *		UTF-8, and a database that has it, has LATIN1, or does not know.
 */
#ifndef ACEMQ_STANDIN_PG_WCHAR_H
#define ACEMQ_STANDIN_PG_WCHAR_H

#include "postgres.h"

#define PG_SQL_ASCII 0
#define PG_UTF8      6
#define PG_LATIN1    8

/* encodings.c only */
extern int standin_database_encoding;

#define GetDatabaseEncoding() standin_database_encoding

/* Bytes of the character, or -1. */
extern int pg_encoding_verifymbchar(int encoding, const char *text, int len);
extern bool pg_verify_mbstr(int encoding, const char *text, int len, bool no_error);
extern int pg_encoding_mbcliplen(int encoding, const char *text, int len, int limit);
extern char *pg_server_to_any(const char *text, int len, int encoding);
extern char *pg_any_to_server(const char *text, int len, int encoding);

#endif /* ACEMQ_STANDIN_PG_WCHAR_H */
