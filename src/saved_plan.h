/*
 * saved_plan.h
 *		Statements that a backend prepares once and keeps.
 *
 * May depend on: as_owner.h.
 */
#ifndef ACEMQ_SAVED_PLAN_H
#define ACEMQ_SAVED_PLAN_H

#include "acemq.h"

#include "executor/spi.h"

#define SAVED_PLAN_MAX_ARGS 21

/* Declare as a static variable: the text and the types given, the plan NULL. */
typedef struct SavedPlan
{
	const char *sql;
	int nargs;
	Oid argtypes[SAVED_PLAN_MAX_ARGS];
	SPIPlanPtr plan;
} SavedPlan;

/* Between SPI_connect() and SPI_finish(), and as the owner: names are resolved with the owner's search_path. */
extern SPIPlanPtr saved_plan(SavedPlan *statement);

/*
 * Run it with a snapshot taken now, whatever the isolation level: what the
 * relay has committed since the caller's transaction began must not be missed.
 * Returns what SPI_execute_snapshot() returns; raises an error if that is negative.
 */
extern int saved_plan_run_fresh(SavedPlan *statement, Datum *values, const char *nulls, bool read_only);

/* The same with the caller's own snapshot, and the effects of earlier commands of this transaction. */
extern int saved_plan_run(SavedPlan *statement, Datum *values, const char *nulls);

/* Column `column` (from 1) of row `row` (from 0) of the last result. */
extern Datum spi_value(uint64 row, int column, bool *isnull);
/* The same where the column cannot be NULL. */
extern int64 spi_int64(uint64 row, int column);
extern bool spi_bool(uint64 row, int column);
extern char *spi_text(uint64 row, int column); /* palloc'd, NULL if it is NULL */

#endif /* ACEMQ_SAVED_PLAN_H */
