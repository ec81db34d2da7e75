/*
 * sql_args.h
 *		Arguments of SQL functions that are not STRICT: a NULL where a value is
 *		needed is an error that names the argument, not a NULL result.
 *
 * May depend on: acemq.h.
 */
#ifndef ACEMQ_SQL_ARGS_H
#define ACEMQ_SQL_ARGS_H

#include "acemq.h"

#include "fmgr.h"

/* ERRCODE_NULL_VALUE_NOT_ALLOWED if argument n is NULL. */
extern void arg_not_null(FunctionCallInfo fcinfo, int n, const char *name);

extern text *arg_text(FunctionCallInfo fcinfo, int n, const char *name);
/* Error if it is empty; blanks are characters. */
extern text *arg_filled_text(FunctionCallInfo fcinfo, int n, const char *name);
/* palloc'd, in the database's encoding; error if it is empty or only blanks. */
extern char *arg_words(FunctionCallInfo fcinfo, int n, const char *name);

/*
 * An interval in milliseconds (a month counts 30 days, a day 24 hours, since
 * these are spans to wait for and not calendar steps).  Error if it is
 * infinite, below `min_ms` or over 100 years.
 */
extern int64 arg_interval_ms(FunctionCallInfo fcinfo, int n, const char *name, int64 min_ms);

#endif /* ACEMQ_SQL_ARGS_H */
