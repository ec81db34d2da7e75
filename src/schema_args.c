/*
 * schema_args.c
 *		The arguments of the schema registry's functions, checked.
 *
 * Limits are those of the table's columns, in characters.
 *
 * May depend on: compat.h, fingerprint.h, sql_args.h.
 */
#include "schema_args.h"

#include "compat.h"
#include "fingerprint.h"
#include "sql_args.h"

#include "mb/pg_wchar.h"

#define MAX_SUBJECT 255
#define MAX_FORMAT  32

/* max_chars 0: no limit. */
static text *
filled_text(FunctionCallInfo fcinfo, int n, const char *name, int max_chars)
{
	text *value = arg_filled_text(fcinfo, n, name);
	int bytes = VARSIZE_ANY_EXHDR(value);
	int chars;

	if (max_chars == 0 || bytes <= max_chars)
		return value;
	chars = pg_mbstrlen_with_len(VARDATA_ANY(value), bytes);
	if (chars > max_chars)
		ereport(ERROR, (errcode(ERRCODE_STRING_DATA_RIGHT_TRUNCATION), errmsg("argument \"%s\" is too long", name),
		                errdetail("It has %d characters.", chars), errhint("Use at most %d characters.", max_chars)));
	return value;
}

SchemaEntry
schema_entry_args(FunctionCallInfo fcinfo, int first)
{
	SchemaEntry entry;

	entry.subject = filled_text(fcinfo, first, "subject", MAX_SUBJECT);
	entry.format = filled_text(fcinfo, first + 1, "format", MAX_FORMAT);
	entry.definition = filled_text(fcinfo, first + 2, "definition", 0);
	entry.fingerprint = fingerprint_of(entry.definition, "definition");
	return entry;
}
