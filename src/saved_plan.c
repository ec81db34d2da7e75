/*
 * saved_plan.c
 *		Statements that a backend prepares once and keeps.
 *
 * May depend on: as_owner.h.
 */
#include "saved_plan.h"

#include "utils/snapmgr.h"

SPIPlanPtr
saved_plan(SavedPlan *statement)
{
	SPIPlanPtr plan;

	if (statement->plan != NULL)
		return statement->plan;

	plan = SPI_prepare(statement->sql, statement->nargs, statement->argtypes);
	if (plan == NULL)
		elog(ERROR, "could not prepare \"%s\": %s", statement->sql, SPI_result_code_string(SPI_result));
	SPI_keepplan(plan);
	statement->plan = plan;
	return plan;
}

static int
checked(SavedPlan *statement, int result)
{
	if (result < 0)
		elog(ERROR, "could not run \"%s\": %s", statement->sql, SPI_result_code_string(result));
	return result;
}

int
saved_plan_run_fresh(SavedPlan *statement, Datum *values, const char *nulls, bool read_only)
{
	SPIPlanPtr plan = saved_plan(statement);

	return checked(statement,
	               SPI_execute_snapshot(plan, values, nulls, GetLatestSnapshot(), InvalidSnapshot, read_only, true, 0));
}

int
saved_plan_run(SavedPlan *statement, Datum *values, const char *nulls)
{
	return checked(statement, SPI_execute_plan(saved_plan(statement), values, nulls, false, 0));
}

Datum
spi_value(uint64 row, int column, bool *isnull)
{
	return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column, isnull);
}

int64
spi_int64(uint64 row, int column)
{
	bool isnull;

	return DatumGetInt64(spi_value(row, column, &isnull));
}

bool
spi_bool(uint64 row, int column)
{
	bool isnull;

	return DatumGetBool(spi_value(row, column, &isnull));
}

char *
spi_text(uint64 row, int column)
{
	return SPI_getvalue(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column);
}
