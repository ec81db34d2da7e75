/*
 * schema_args.h
 *		The arguments of the schema registry's functions, checked.
 *
 * May depend on: schema_rows.h, sql_args.h.
 */
#ifndef ACEMQ_SCHEMA_ARGS_H
#define ACEMQ_SCHEMA_ARGS_H

#include "schema_rows.h"

#include "fmgr.h"

/* subject, format and definition, from argument `first` on, and the fingerprint of the latter. */
extern SchemaEntry schema_entry_args(FunctionCallInfo fcinfo, int first);

#endif /* ACEMQ_SCHEMA_ARGS_H */
