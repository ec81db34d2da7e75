/*
 * sql_args.c
 *		Arguments of SQL functions that are not STRICT.
 *
 * May depend on: acemq.h, compat.h.
 */
#include "sql_args.h"

#include "compat.h"

#include "utils/builtins.h"
#include "utils/timestamp.h"

#define HUNDRED_YEARS_MS (INT64CONST(36525) * 24 * 60 * 60 * 1000)

void
arg_not_null(FunctionCallInfo fcinfo, int n, const char *name)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("argument \"%s\" must not be null", name)));
}

text *
arg_text(FunctionCallInfo fcinfo, int n, const char *name)
{
	arg_not_null(fcinfo, n, name);
	return PG_GETARG_TEXT_PP(n);
}

text *
arg_filled_text(FunctionCallInfo fcinfo, int n, const char *name)
{
	text *value = arg_text(fcinfo, n, name);

	if (VARSIZE_ANY_EXHDR(value) == 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("argument \"%s\" must not be empty", name),
		                errhint("Pass at least one character.")));
	return value;
}

char *
arg_words(FunctionCallInfo fcinfo, int n, const char *name)
{
	char *words = text_to_cstring(arg_text(fcinfo, n, name));

	if (words[strspn(words, " \t\r\n")] == '\0')
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("argument \"%s\" must not be empty", name),
		                errhint("Pass more than blanks.")));
	return words;
}

int64
arg_interval_ms(FunctionCallInfo fcinfo, int n, const char *name, int64 min_ms)
{
	Interval *span;
	double ms;

	arg_not_null(fcinfo, n, name);
	span = PG_GETARG_INTERVAL_P(n);

	/* In floating point first: the three fields together may be beyond int64. */
	ms = span->time / 1000.0 + (span->month * 30.0 + span->day) * (SECS_PER_DAY * 1000.0);
	if (INTERVAL_NOT_FINITE(span) || ms < min_ms || ms > HUNDRED_YEARS_MS)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("argument \"%s\" is out of range", name),
		                errdetail("It must be between %lld ms and 100 years.", (long long) min_ms)));
	return (int64) ms;
}
