/*
 * schema_add.c
 *		Adding a row to acemq.schema_registry, by whoever has the counter's row.
 *
 * May depend on: saved_plan.h, schema_rows.h.
 */
#include "schema_add.h"

#include "saved_plan.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#define MAX_ROUNDS 5

static SavedPlan insert_row = {
    "INSERT INTO acemq.schema_registry (id, subject, schema_version, format, definition, fingerprint, registered_at)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING",
    7,
    {INT4OID, TEXTOID, INT4OID, TEXTOID, TEXTOID, TEXTOID, TIMESTAMPTZOID}};

/* Of the counter and the table, since somebody may have written past the counter. */
int32
schema_next_id(int32 last_id)
{
	int32 last = Max(last_id, schema_max_id());

	if (last == PG_INT32_MAX)
		ereport(ERROR, (errcode(ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED), errmsg("there are no ids left for schemas"),
		                errdetail("The last one, %d, is the highest an id can be.", last),
		                errhint("Look for a wrong last_id in acemq.schema_registry_seq, or for a schema that was "
		                        "imported with a high id.")));
	return last + 1;
}

int32
schema_next_version(text *subject)
{
	int32 last = schema_max_version(subject);

	if (last == PG_INT32_MAX)
		ereport(ERROR, (errcode(ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED),
		                errmsg("there are no versions left for subject \"%s\"", text_to_cstring(subject)),
		                errhint("Look for a schema that was imported with a high version.")));
	return last + 1;
}

bool
schema_insert(const SchemaEntry *entry, int32 id, int32 version, TimestampTz registered_at)
{
	Datum values[] = {Int32GetDatum(id),
	                  PointerGetDatum(entry->subject),
	                  Int32GetDatum(version),
	                  PointerGetDatum(entry->format),
	                  PointerGetDatum(entry->definition),
	                  PointerGetDatum(entry->fingerprint),
	                  TimestampTzGetDatum(registered_at)};

	saved_plan_run_fresh(&insert_row, values, NULL, false);
	return SPI_processed > 0;
}

void
schema_check_round(int round, const SchemaEntry *entry)
{
	if (round > MAX_ROUNDS)
		ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
		                errmsg("could not add a schema of subject \"%s\"", text_to_cstring(entry->subject)),
		                errdetail("A row with its id or version was in the way %d times.", MAX_ROUNDS),
		                errhint("Try again; what writes acemq.schema_registry itself should lock the row of "
		                        "acemq.schema_registry_seq first.")));
}
