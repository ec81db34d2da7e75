/*
 * claim_check.c
 *		acemq.claim_check_*(): payloads that are too big to travel, and the
 *		bodies that refer to them.
 *
 * docs/protocol.md, section 6.
 *
 * May depend on: claim_check_frame.h, claim_check_store.h, sql_args.h, uuid.h, compat.h.
 */
#include "acemq.h"

#include "claim_check_frame.h"
#include "claim_check_store.h"
#include "compat.h"
#include "sql_args.h"
#include "uuid.h"

#include "access/detoast.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(acemq_claim_check_put);
PG_FUNCTION_INFO_V1(acemq_claim_check_get);
PG_FUNCTION_INFO_V1(acemq_claim_check_delete);
PG_FUNCTION_INFO_V1(acemq_claim_check_encode);
PG_FUNCTION_INFO_V1(acemq_claim_check_decode);
PG_FUNCTION_INFO_V1(acemq_claim_check_key);

#define DEFAULT_THRESHOLD 65536

#define KEY_RULE "A key has 1 to %d letters, digits, dots, underscores and dashes, and begins with a letter or a digit."

/* What cannot be a key never reaches the table. */
static text *
arg_key(FunctionCallInfo fcinfo, int n, const char *name)
{
	text *key = arg_text(fcinfo, n, name);

	if (!claim_check_is_key(VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key)))
		ereport(ERROR,
		        (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("argument \"%s\" is no key of a claim check", name),
		         errdetail(KEY_RULE, CLAIM_CHECK_MAX_KEY),
		         errhint("Pass what claim_check_put() or claim_check_key() has returned.")));
	return key;
}

/*
 * The key of a checked body.  For a consumer a key that cannot be one is the
 * same as one that is not held: trying again does not help.  It may be any
 * bytes, so the message does not repeat it.
 */
static text *
key_of(const bytea *body)
{
	int len;
	const char *key = claim_check_frame_key(body, &len);

	if (!claim_check_is_key(key, len))
		ereport(ERROR, (errcode(ERRCODE_ACEMQ_CLAIM_NOT_HELD),
		                errmsg("argument \"body\" refers to a payload by what is no key of a claim check"),
		                errdetail(KEY_RULE, CLAIM_CHECK_MAX_KEY),
		                errhint("The message is damaged, or it was sent without a frame and begins with the bytes "
		                        "AC 01 01 by chance.")));
	return cstring_to_text_with_len(key, len);
}

static void
new_key(char *key, Datum payload)
{
	uuid_v4(key);
	claim_check_store_put(key, payload);
}

Datum
acemq_claim_check_put(PG_FUNCTION_ARGS)
{
	char key[UUID_TEXT_LEN + 1];

	arg_not_null(fcinfo, 0, "payload");
	new_key(key, PG_GETARG_DATUM(0));
	PG_RETURN_TEXT_P(cstring_to_text_with_len(key, UUID_TEXT_LEN));
}

Datum
acemq_claim_check_get(PG_FUNCTION_ARGS)
{
	bytea *payload = claim_check_store_get(arg_key(fcinfo, 0, "key"));

	if (payload == NULL)
		PG_RETURN_NULL();
	PG_RETURN_BYTEA_P(payload);
}

Datum
acemq_claim_check_delete(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(claim_check_store_delete(arg_key(fcinfo, 0, "key")));
}

Datum
acemq_claim_check_encode(PG_FUNCTION_ARGS)
{
	int32 threshold = PG_ARGISNULL(1) ? DEFAULT_THRESHOLD : PG_GETARG_INT32(1);
	char key[UUID_TEXT_LEN + 1];
	bytea *payload;

	arg_not_null(fcinfo, 0, "payload");
	if (threshold < 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
		                errmsg("argument \"threshold\" must be at least 0, not %d", threshold),
		                errhint("It is a size in bytes; with 0 every payload is checked in.")));

	if (toast_raw_datum_size(PG_GETARG_DATUM(0)) - VARHDRSZ >= (Size) threshold)
	{
		new_key(key, PG_GETARG_DATUM(0));
		PG_RETURN_BYTEA_P(claim_check_framed(CLAIM_CHECK_CHECKED, key, UUID_TEXT_LEN));
	}
	payload = PG_GETARG_BYTEA_PP(0);
	PG_RETURN_BYTEA_P(claim_check_framed(CLAIM_CHECK_INLINE, VARDATA_ANY(payload), VARSIZE_ANY_EXHDR(payload)));
}

static bytea *
checked_payload(const bytea *body)
{
	text *key = key_of(body);
	bytea *payload = claim_check_store_get(key);

	if (payload == NULL)
		ereport(ERROR, (errcode(ERRCODE_ACEMQ_CLAIM_NOT_HELD),
		                errmsg("the payload of argument \"body\" is not held under key \"%s\"", text_to_cstring(key)),
		                errhint("It was deleted or purged before the message was read, or it was checked in "
		                        "elsewhere.")));
	return payload;
}

Datum
acemq_claim_check_decode(PG_FUNCTION_ARGS)
{
	const char *payload;
	bytea *body;

	arg_not_null(fcinfo, 0, "body");
	body = PG_GETARG_BYTEA_PP(0);
	switch (claim_check_frame_of(body))
	{
		case CLAIM_CHECK_UNFRAMED:
			PG_RETURN_BYTEA_P(body);
		case CLAIM_CHECK_INLINE:
			payload = VARDATA_ANY(body) + CLAIM_CHECK_HEADER;
			PG_RETURN_BYTEA_P(cstring_to_text_with_len(payload, VARSIZE_ANY_EXHDR(body) - CLAIM_CHECK_HEADER));
		case CLAIM_CHECK_CHECKED:
			PG_RETURN_BYTEA_P(checked_payload(body));
	}
	elog(ERROR, "unexpected kind of frame: %d", (int) claim_check_frame_of(body));
}

Datum
acemq_claim_check_key(PG_FUNCTION_ARGS)
{
	bytea *body = PG_GETARG_BYTEA_PP(0);

	if (claim_check_frame_of(body) != CLAIM_CHECK_CHECKED)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(key_of(body));
}
