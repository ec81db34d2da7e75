/*
 * idempotency_args.c
 *		The arguments of the idempotency functions: checks and defaults.
 *
 * May depend on: guc.h, sql_args.h, uuid.h, compat.h.
 */
#include "idempotency_args.h"

#include "compat.h"
#include "guc.h"
#include "sql_args.h"
#include "uuid.h"

#include "mb/pg_wchar.h"
#include "utils/builtins.h"

#define MIN_SPAN_MS 1

static bool
longer_than(const text *value, int max_characters)
{
	int len = VARSIZE_ANY_EXHDR(value);

	/* No character is shorter than a byte. */
	return len > max_characters && pg_mbstrlen_with_len(VARDATA_ANY(value), len) > max_characters;
}

text *
idempotency_key_arg(FunctionCallInfo fcinfo)
{
	text *key = arg_filled_text(fcinfo, 0, "key");

	if (longer_than(key, ACEMQ_MAX_IDEMPOTENCY_KEY))
		ereport(ERROR, (errcode(ERRCODE_STRING_DATA_RIGHT_TRUNCATION), errmsg("argument \"key\" is too long"),
		                errdetail("It must not be longer than %d characters.", ACEMQ_MAX_IDEMPOTENCY_KEY),
		                errhint("Use a hash of a longer key, for example encode(sha256(convert_to(key, 'UTF8')), "
		                        "'hex').")));
	return key;
}

/* Static and not in a transaction's memory: the owner of a claim must be able to come back to it after a rollback. */
static const char *
session_owner(void)
{
	static char owner[UUID_TEXT_LEN + 1] = "";

	if (acemq_owner[0] != '\0')
		return acemq_owner;
	if (owner[0] == '\0')
		uuid_v4(owner);
	return owner;
}

text *
idempotency_owner_arg(FunctionCallInfo fcinfo, int n)
{
	text *owner;

	if (PG_ARGISNULL(n))
	{
		const char *name = session_owner();

		/* Nobody has verified the bytes of a setting: it may come from a file, or from a database of another encoding. */
		(void) pg_verify_mbstr(GetDatabaseEncoding(), name, strlen(name), false);
		return cstring_to_text(name);
	}

	owner = arg_filled_text(fcinfo, n, "owner");
	if (longer_than(owner, ACEMQ_MAX_OWNER))
		ereport(ERROR, (errcode(ERRCODE_STRING_DATA_RIGHT_TRUNCATION), errmsg("argument \"owner\" is too long"),
		                errdetail("It must not be longer than %d characters.", ACEMQ_MAX_OWNER),
		                errhint("Name the process, for example by a UUID.")));
	return owner;
}

TimeOffset
idempotency_lease_arg(FunctionCallInfo fcinfo, int n)
{
	int64 ms = PG_ARGISNULL(n) ? acemq_idempotency_lease : arg_interval_ms(fcinfo, n, "lease", MIN_SPAN_MS);

	return ms * 1000;
}

TimeOffset
idempotency_retention_arg(FunctionCallInfo fcinfo, int n)
{
	if (PG_ARGISNULL(n))
		return acemq_idempotency_retention * USECS_PER_SEC;
	return arg_interval_ms(fcinfo, n, "retention", MIN_SPAN_MS) * 1000;
}
