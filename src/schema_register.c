/*
 * schema_register.c
 *		acemq.schema_register(): one id for one definition of a subject.
 *
 * docs/protocol.md, section 5.
 *
 * May depend on: as_owner.h, saved_plan.h, schema_add.h, schema_args.h, schema_counter.h, schema_rows.h,
 *		store_table.h.
 */
#include "postgres.h"

#include "as_owner.h"
#include "saved_plan.h"
#include "schema_add.h"
#include "schema_args.h"
#include "schema_counter.h"
#include "schema_rows.h"
#include "store_table.h"

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(acemq_schema_register);

/* What is found is found again by the caller, outside SPI's memory. */
static bool
is_registered(const SchemaEntry *entry)
{
	Datum row;

	return schema_find_entry(entry, &row);
}

/*
 * Nobody of us can add a row while we have the counter's, so what we find after
 * we have it is the truth.  Others may: then their row counts, or its id is
 * passed over.  The counter follows theirs, so that no id is handed out again even if they delete it.
 */
static void
add_row(const SchemaEntry *entry)
{
	int32 last_id = schema_counter_lock();

	for (int round = 1; !is_registered(entry); round++)
	{
		schema_check_round(round, entry);
		if (schema_insert(entry, schema_next_id(last_id), schema_next_version(entry->subject), GetCurrentTimestamp()))
			break;
	}
	if (schema_max_id() > last_id)
		schema_counter_raise(schema_max_id());
}

static void
register_new(const SchemaEntry *entry)
{
	AsOwner save;

	PreventCommandIfReadOnly("acemq.schema_register() of a definition that is not registered yet");
	store_table_check(&store_schema_registry_seq);
	as_owner_begin(&save);
	SPI_connect();
	add_row(entry);
	SPI_finish();
	as_owner_end(&save);
}

Datum
acemq_schema_register(PG_FUNCTION_ARGS)
{
	SchemaEntry entry = schema_entry_args(fcinfo, 0);
	Datum row;

	if (schema_find_entry(&entry, &row))
		PG_RETURN_DATUM(row);
	register_new(&entry);
	if (!schema_find_entry(&entry, &row))
		elog(ERROR, "a schema of subject \"%s\" is gone right after it was registered", text_to_cstring(entry.subject));
	PG_RETURN_DATUM(row);
}
