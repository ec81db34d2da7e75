/*
 * batches.c
 *		Change many rows of the outbox a thousand at a time.
 *
 * May depend on: saved_plan.h.
 */
#include "batches.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/array.h"

#define BATCH_ROWS 1000

Datum
spi_id_array(void)
{
	Datum *ids = palloc(sizeof(Datum) * Max(SPI_processed, 1));
	ArrayType *array;

	for (uint64 i = 0; i < SPI_processed; i++)
		ids[i] = Int64GetDatum(spi_int64(i, 1));
	array = construct_array(ids, (int) SPI_processed, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE);
	pfree(ids);
	return PointerGetDatum(array);
}

static uint64
change_batch(SavedPlan *change, void (*each)(int64 id))
{
	Datum values[] = {spi_id_array()};
	uint64 changed;

	SPI_freetuptable(SPI_tuptable);
	saved_plan_run(change, values, NULL);
	changed = SPI_processed;
	if (each != NULL)
		for (uint64 i = 0; i < changed; i++)
			each(spi_int64(i, 1));
	SPI_freetuptable(SPI_tuptable);
	pfree(DatumGetPointer(values[0]));
	return changed;
}

int64
run_in_batches(SavedPlan *find, Datum *values, const char *nulls, SavedPlan *change, void (*each)(int64 id))
{
	Portal portal = SPI_cursor_open(NULL, saved_plan(find), values, nulls, false);
	int64 changed = 0;

	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		SPI_cursor_fetch(portal, true, BATCH_ROWS);
		if (SPI_processed == 0)
			break;
		changed += change_batch(change, each);
	}
	SPI_cursor_close(portal);
	return changed;
}
