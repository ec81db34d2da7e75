/*
 * access.c
 *		acemq.grant_access() and acemq.revoke_access(): the rights of a duty.
 *
 * A duty is a list of functions, views and tables.  The lists are by name, so an
 * overload that a later version adds belongs to the duty of its name, and a
 * name this version does not have yet is passed over.
 *
 * May depend on: as_owner.h, saved_plan.h, sql_args.h.
 */
#include "postgres.h"

#include "as_owner.h"
#include "saved_plan.h"
#include "sql_args.h"

#include "catalog/namespace.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

PG_FUNCTION_INFO_V1(acemq_grant_access);
PG_FUNCTION_INFO_V1(acemq_revoke_access);
PG_FUNCTION_INFO_V1(acemq_check_schema);

#define DUTY_MAX_NAMES 24

typedef struct Duty
{
	const char *name;

	/* The first function, or else the first table, is in no other duty's list: who has that right has the duty. */
	const char *functions[DUTY_MAX_NAMES];
	const char *views[DUTY_MAX_NAMES];  /* SELECT */
	const char *tables[DUTY_MAX_NAMES]; /* all that a library does with its rows */
} Duty;

static const Duty duties[] = {
    {"producer",
     {"outbox_add", "outbox_cancel", "outbox_sweep", "schedule_at", "schedule_in", "partition",
      "partitioned_routing_key", "version"},
     {NULL},
     {NULL}},
    {"stores",
     {"idempotency_claim", "idempotency_first_time", "idempotency_confirm", "idempotency_forget",
      "idempotency_confirmed", "schema_register", "schema_latest", "schema_by_id", "schema_versions", "claim_check_put",
      "claim_check_get", "claim_check_delete", "claim_check_encode", "claim_check_decode", "claim_check_key",
      "partition", "partitioned_routing_key", "version"},
     {NULL},
     {NULL}},
    {"operator",
     {"relay_pause", "relay_resume", "worker_restart", "outbox_cancel", "outbox_sweep", "outbox_release",
      "outbox_release_all", "outbox_discard", "outbox_purge", "outbox_claim", "outbox_mark_published",
      "outbox_mark_failed", "idempotency_purge", "schema_import", "claim_check_purge", "doctor", "version", "_status",
      "_metrics"},
     {"outbox_pending", "outbox_retired", "status", "metrics"},
     {NULL}},
    {"tables", {NULL}, {NULL}, {"idempotency", "schema_registry", "schema_registry_seq"}}};

/* The functions of the given names, and whether that role was granted EXECUTE on them by name. */
static SavedPlan find_functions = {
    "SELECT p.oid::regprocedure::text, p.proname,"
    " EXISTS (SELECT FROM aclexplode(p.proacl) a WHERE a.grantee = $2 AND a.privilege_type = 'EXECUTE')"
    " FROM pg_proc p WHERE p.pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'acemq')"
    " AND p.proname = ANY ($1) AND p.prokind = 'f'",
    2,
    {TEXTARRAYOID, OIDOID}};

/* The tables and views of the given names, and whether that role was granted INSERT on them by name. */
static SavedPlan find_relations = {
    "SELECT c.oid::regclass::text, c.relname,"
    " EXISTS (SELECT FROM aclexplode(c.relacl) a WHERE a.grantee = $2 AND a.privilege_type = 'INSERT')"
    " FROM pg_class c WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'acemq')"
    " AND c.relname = ANY ($1) AND c.relkind IN ('r', 'v')",
    2,
    {TEXTARRAYOID, OIDOID}};

static const Duty *
duty_of(const char *name)
{
	StringInfoData valid;

	initStringInfo(&valid);
	for (int i = 0; i < lengthof(duties); i++)
	{
		if (strcmp(duties[i].name, name) == 0)
			return &duties[i];
		appendStringInfo(&valid, "%s\"%s\"", i > 0 ? ", " : "", duties[i].name);
	}
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
	                errmsg("unrecognized value for argument \"access\": \"%s\"", name),
	                errhint("Valid values: %s.", valid.data)));
}

static Datum
names_array(const char *const *names)
{
	Datum texts[DUTY_MAX_NAMES];
	int count = 0;

	while (count < DUTY_MAX_NAMES && names[count] != NULL)
	{
		texts[count] = CStringGetTextDatum(names[count]);
		count++;
	}
	return PointerGetDatum(construct_array(texts, count, TEXTOID, -1, false, TYPALIGN_INT));
}

static bool
has_name(const char *const *names, const char *name)
{
	for (int i = 0; i < DUTY_MAX_NAMES && names[i] != NULL; i++)
		if (strcmp(names[i], name) == 0)
			return true;
	return false;
}

static bool
role_has_duty(const Duty *duty, Oid role)
{
	bool by_function = duty->functions[0] != NULL;
	const char *first[DUTY_MAX_NAMES] = {by_function ? duty->functions[0] : duty->tables[0]};
	Datum values[] = {names_array(first), ObjectIdGetDatum(role)};
	bool has = false;

	saved_plan_run(by_function ? &find_functions : &find_relations, values, NULL);
	for (uint64 i = 0; i < SPI_processed; i++)
		has |= spi_bool(i, 3);
	SPI_freetuptable(SPI_tuptable);
	return has;
}

/* Does another duty that the role has need this function too? */
static bool
needed_elsewhere(const Duty *duty, Oid role, const char *function)
{
	for (int i = 0; i < lengthof(duties); i++)
		if (&duties[i] != duty && has_name(duties[i].functions, function) && role_has_duty(&duties[i], role))
			return true;
	return false;
}

static bool
has_another_duty(const Duty *duty, Oid role)
{
	for (int i = 0; i < lengthof(duties); i++)
		if (&duties[i] != duty && role_has_duty(&duties[i], role))
			return true;
	return false;
}

static void
change_right(bool grant, const char *right, const char *object, const char *role)
{
	char *statement = psprintf("%s %s ON %s %s %s", grant ? "GRANT" : "REVOKE", right, object, grant ? "TO" : "FROM",
	                           quote_identifier(role));
	int result = SPI_execute(statement, false, 0);

	if (result < 0)
		elog(ERROR, "could not run \"%s\": %s", statement, SPI_result_code_string(result));
	pfree(statement);
}

/* The result of a query does not survive the next one, so objects are copied first. */
static char **
collect_objects(const char *kind, int *count)
{
	char **objects = palloc(sizeof(char *) * Max(SPI_processed, 1));

	*count = (int) SPI_processed;
	for (int i = 0; i < *count; i++)
		objects[i] = psprintf("%s %s", kind, spi_text(i, 1));
	return objects;
}

static void
change_functions(bool grant, const Duty *duty, Oid role, const char *role_name)
{
	for (int n = 0; n < DUTY_MAX_NAMES && duty->functions[n] != NULL; n++)
	{
		const char *name[DUTY_MAX_NAMES] = {duty->functions[n]};
		Datum values[] = {names_array(name), ObjectIdGetDatum(role)};
		char **objects;
		int count;

		if (!grant && needed_elsewhere(duty, role, duty->functions[n]))
			continue;
		saved_plan_run(&find_functions, values, NULL);
		objects = collect_objects("FUNCTION", &count);
		for (int i = 0; i < count; i++)
			change_right(grant, "EXECUTE", objects[i], role_name);
	}
}

static void
change_relations(bool grant, const char *rights, const char *const *names, Oid role, const char *role_name)
{
	Datum values[] = {names_array(names), ObjectIdGetDatum(role)};
	char **objects;
	int count;

	saved_plan_run(&find_relations, values, NULL);
	objects = collect_objects("TABLE", &count);
	for (int i = 0; i < count; i++)
		change_right(grant, rights, objects[i], role_name);
}

static void
change_access(FunctionCallInfo fcinfo, bool grant)
{
	const char *role_name;
	const Duty *duty;
	Oid role;
	AsOwner save;

	arg_not_null(fcinfo, 0, "role");
	role_name = NameStr(*PG_GETARG_NAME(0));
	duty = duty_of(text_to_cstring(arg_text(fcinfo, 1, "access")));
	role = get_role_oid(role_name, false);

	as_owner_begin(&save);
	SPI_connect();
	change_functions(grant, duty, role, role_name);
	change_relations(grant, "SELECT", duty->views, role, role_name);
	change_relations(grant, "SELECT, INSERT, UPDATE, DELETE", duty->tables, role, role_name);
	if (grant || !has_another_duty(duty, role))
		change_right(grant, "USAGE", "SCHEMA " ACEMQ_SCHEMA, role_name);
	SPI_finish();
	as_owner_end(&save);
}

Datum
acemq_grant_access(PG_FUNCTION_ARGS)
{
	change_access(fcinfo, true);
	PG_RETURN_VOID();
}

Datum
acemq_revoke_access(PG_FUNCTION_ARGS)
{
	change_access(fcinfo, false);
	PG_RETURN_VOID();
}

/*
 * For the install script.  The owner of a schema may create functions in it,
 * and would see ours called by everybody who trusts the name.
 */
Datum
acemq_check_schema(PG_FUNCTION_ARGS)
{
	Oid schema = get_namespace_oid(ACEMQ_SCHEMA, false);
	HeapTuple tuple = SearchSysCache1(NAMESPACEOID, ObjectIdGetDatum(schema));
	Oid owner;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for schema %u", schema);
	owner = ((Form_pg_namespace) GETSTRUCT(tuple))->nspowner;
	ReleaseSysCache(tuple);
	if (owner != as_owner_role())
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
		                errmsg("schema \"%s\" exists and belongs to another role", ACEMQ_SCHEMA),
		                errhint("Drop or rename it, or give it to the role that creates the extension.")));
	PG_RETURN_VOID();
}
