/*
 * schema_lookup.c
 *		acemq.schema_latest(), schema_by_id() and schema_versions().
 *
 * May depend on: schema_rows.h, sql_args.h.
 */
#include "postgres.h"

#include "schema_rows.h"
#include "sql_args.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(acemq_schema_latest);
PG_FUNCTION_INFO_V1(acemq_schema_by_id);
PG_FUNCTION_INFO_V1(acemq_schema_versions);

Datum
acemq_schema_latest(PG_FUNCTION_ARGS)
{
	text *subject = arg_text(fcinfo, 0, "subject");
	Datum row;

	if (!schema_find_latest(subject, &row))
		ereport(ERROR, (errcode(ERRCODE_ACEMQ_SCHEMA_NOT_FOUND),
		                errmsg("no schema is registered for subject \"%s\"", text_to_cstring(subject)),
		                errhint("Register one with acemq.schema_register(); subjects are compared byte by byte.")));
	PG_RETURN_DATUM(row);
}

Datum
acemq_schema_by_id(PG_FUNCTION_ARGS)
{
	int32 id;
	Datum row;

	arg_not_null(fcinfo, 0, "id");
	id = PG_GETARG_INT32(0);
	if (!schema_find_id(id, &row))
		ereport(ERROR,
		        (errcode(ERRCODE_ACEMQ_SCHEMA_NOT_FOUND), errmsg("no schema has the id %d", id),
		         errhint("Ids are those of this database's registry; acemq.schema_import() brings in a schema with the "
		                 "id that it has elsewhere.")));
	PG_RETURN_DATUM(row);
}

Datum
acemq_schema_versions(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	SchemaScan scan;
	HeapTuple row;

	InitMaterializedSRF(fcinfo, 0);
	schema_versions_open(&scan, arg_text(fcinfo, 0, "subject"));
	while ((row = schema_versions_next(&scan)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		tuplestore_puttuple(result->setResult, row);
	}
	schema_scan_close(&scan);
	return (Datum) 0;
}
