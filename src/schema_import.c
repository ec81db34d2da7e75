/*
 * schema_import.c
 *		acemq.schema_import(): a schema with the id it has, or had, elsewhere.
 *
 * Ids are in the bodies of messages, so a registry that is set up again has to
 * give them back unchanged.  What would make one id or version mean two
 * definitions, or one definition have two ids, is refused.
 *
 * May depend on: as_owner.h, outbox_args.h, saved_plan.h, schema_add.h, schema_args.h, schema_counter.h,
 * schema_rows.h, sql_args.h, store_table.h.
 */
#include "postgres.h"

#include "as_owner.h"
#include "outbox_args.h"
#include "saved_plan.h"
#include "schema_add.h"
#include "schema_args.h"
#include "schema_counter.h"
#include "schema_rows.h"
#include "sql_args.h"
#include "store_table.h"

#include "utils/builtins.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(acemq_schema_import);

typedef struct Import
{
	int32 id;
	SchemaEntry entry;
	int32 version; /* 0: the next one */
	TimestampTz registered_at;
} Import;

static int32
positive_arg(FunctionCallInfo fcinfo, int n, const char *name)
{
	int32 value = PG_GETARG_INT32(n);

	if (value < 1)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
		                errmsg("argument \"%s\" must be at least 1, not %d", name, value),
		                errhint("Pass the number that the other registry gave.")));
	return value;
}

static Import
import_args(FunctionCallInfo fcinfo)
{
	TimestampTz now = GetCurrentTimestamp();
	Import import;

	arg_not_null(fcinfo, 0, "id");
	import.id = positive_arg(fcinfo, 0, "id");
	import.entry = schema_entry_args(fcinfo, 1);
	import.version = PG_ARGISNULL(4) ? 0 : positive_arg(fcinfo, 4, "version");
	import.registered_at = PG_ARGISNULL(5) ? now : PG_GETARG_TIMESTAMPTZ(5);
	outbox_args_check_time(import.registered_at, now, "registered_at");
	return import;
}

static void
refuse_version(const Import *import, Datum row)
{
	ereport(ERROR,
	        (errcode(ERRCODE_UNIQUE_VIOLATION),
	         errmsg("version %d of subject \"%s\" is taken", import->version, schema_row_text(row, SCHEMA_SUBJECT)),
	         errdetail("It is the schema with id %d.", schema_row_int(row, SCHEMA_ID)),
	         errhint("Leave \"version\" out, and the next one is taken.")));
}

static bool
same_definition(const SchemaEntry *entry, Datum row)
{
	return strcmp(schema_row_text(row, SCHEMA_SUBJECT), text_to_cstring(entry->subject)) == 0 &&
	       strcmp(schema_row_text(row, SCHEMA_FINGERPRINT), text_to_cstring(entry->fingerprint)) == 0;
}

/* A row has the id: true if it is the one to be imported, else an error. */
static bool
check_same_row(const Import *import, Datum row)
{
	int32 version = schema_row_int(row, SCHEMA_VERSION);

	if (!same_definition(&import->entry, row))
		ereport(ERROR,
		        (errcode(ERRCODE_UNIQUE_VIOLATION), errmsg("the schema id %d is taken", import->id),
		         errdetail("It is version %d of subject \"%s\", with fingerprint %s.", version,
		                   schema_row_text(row, SCHEMA_SUBJECT), schema_row_text(row, SCHEMA_FINGERPRINT)),
		         errhint("An id means one definition for ever: import into a registry that has not given it out.")));
	if (import->version != 0 && import->version != version)
		ereport(ERROR,
		        (errcode(ERRCODE_UNIQUE_VIOLATION), errmsg("the schema with id %d has another version", import->id),
		         errdetail("It is version %d, not %d.", version, import->version),
		         errhint("Leave \"version\" out to keep the one it has.")));
	return true;
}

/* Is the schema there already?  Error if something else is in its place. */
static bool
is_there(const Import *import)
{
	Datum row;

	if (schema_find_id(import->id, &row))
		return check_same_row(import, row);
	if (schema_find_entry(&import->entry, &row))
		ereport(ERROR,
		        (errcode(ERRCODE_UNIQUE_VIOLATION),
		         errmsg("this definition is registered for subject \"%s\" under another id",
		                text_to_cstring(import->entry.subject)),
		         errdetail("It has the id %d, not %d.", schema_row_int(row, SCHEMA_ID), import->id),
		         errhint("A definition of a subject has one id for ever: import before anything else is registered.")));
	if (import->version != 0 && schema_find_version(import->entry.subject, import->version, &row))
		refuse_version(import, row);
	return false;
}

/* The counter's row is taken first, as by schema_register(), so that nobody of us adds a row meanwhile. */
static void
add_row(const Import *import)
{
	(void) schema_counter_lock();
	for (int round = 1; !is_there(import); round++)
	{
		int32 version = import->version != 0 ? import->version : schema_next_version(import->entry.subject);

		schema_check_round(round, &import->entry);
		if (schema_insert(&import->entry, import->id, version, import->registered_at))
			break;
	}
	schema_counter_raise(import->id);
}

Datum
acemq_schema_import(PG_FUNCTION_ARGS)
{
	Import import = import_args(fcinfo);
	AsOwner save;
	Datum row;

	store_table_check(&store_schema_registry_seq);
	as_owner_begin(&save);
	SPI_connect();
	add_row(&import);
	SPI_finish();
	as_owner_end(&save);
	if (!schema_find_id(import.id, &row))
		elog(ERROR, "the schema with id %d is gone right after it was imported", import.id);
	PG_RETURN_DATUM(row);
}
