/*
 * utf8.c
 *		Text of the database as UTF-8.
 *
 * May depend on: acemq.h.
 */
#include "utf8.h"

#include "mb/pg_wchar.h"

/* Adds the argument's name to what the server's conversion functions raise. */
static void
conversion_context(void *argument)
{
	errcontext("argument \"%s\", converted to UTF-8", (const char *) argument);
}

static const char *
convert(const char *text, int len, int *utf8_len, const char *argument)
{
	ErrorContextCallback context = {
	    .previous = error_context_stack, .callback = conversion_context, .arg = unconstify(char *, argument)};
	char *converted;

	error_context_stack = &context;
	converted = pg_server_to_any(text, len, PG_UTF8);
	error_context_stack = context.previous;

	/* The same pointer comes back when there was nothing to do (an empty string). */
	*utf8_len = converted == text ? len : (int) strlen(converted);
	return converted;
}

const char *
utf8_from_server(const char *text, int len, int *utf8_len, const char *argument)
{
	int encoding = GetDatabaseEncoding();

	*utf8_len = len;
	if (encoding == PG_UTF8)
		return text;

	/* The server knows nothing about bytes in a SQL_ASCII database, so what they mean is for the caller to get right. */
	if (encoding == PG_SQL_ASCII)
	{
		if (!pg_verify_mbstr(PG_UTF8, text, len, true))
			ereport(ERROR, (errcode(ERRCODE_CHARACTER_NOT_IN_REPERTOIRE),
			                errmsg("argument \"%s\" is not valid UTF-8", argument),
			                errdetail("Messages go out as UTF-8, and nothing can be converted in a database whose "
			                          "encoding is SQL_ASCII."),
			                errhint("Store UTF-8 in this database, or pass a payload of other bytes as bytea.")));
		return text;
	}
	return convert(text, len, utf8_len, argument);
}

const char *
utf8_cstring(const char *text, const char *argument)
{
	int len;

	return utf8_from_server(text, strlen(text), &len, argument);
}
