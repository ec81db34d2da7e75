/*
 * payload.c
 *		From the payload argument to the bytes of the message body.
 *
 * The parser of the server judges what is JSON: a message that this accepts is
 * one that a consumer can store in a json column.
 *
 * May depend on: claim_check_offload.h, guc.h, utf8.h, compat.h.
 */
#include "payload.h"

#include "claim_check_offload.h"
#include "compat.h"
#include "guc.h"
#include "utf8.h"

#include "access/detoast.h"
#include "common/jsonapi.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "utils/jsonb.h"

/* White space around a media type and its parameters (RFC 9110, section 5.6.3). */
#define MEDIA_TYPE_BLANKS " \t"

const char *
payload_default_content_type(PayloadKind kind)
{
	return kind == PAYLOAD_BYTEA ? "application/octet-stream" : "application/json";
}

static bool
is_word(const char *text, int len, const char *word)
{
	return len == strlen(word) && pg_strncasecmp(text, word, len) == 0;
}

/* application/json, text/json and everything with the suffix +json (RFC 6839); parameters do not matter. */
static bool
is_json_type(const text *content_type)
{
	const char *type = VARDATA_ANY(content_type);
	int len = VARSIZE_ANY_EXHDR(content_type);
	const char *parameters = memchr(type, ';', len);

	if (parameters != NULL)
		len = parameters - type;
	while (len > 0 && strchr(MEDIA_TYPE_BLANKS, type[0]) != NULL)
		type++, len--;
	while (len > 0 && strchr(MEDIA_TYPE_BLANKS, type[len - 1]) != NULL)
		len--;

	return is_word(type, len, "application/json") || is_word(type, len, "text/json") ||
	       (len > 5 && is_word(type + len - 5, 5, "+json"));
}

/* What the json type's own input function does, on UTF-8 and with the argument's name in the message. */
static void
check_json(const char *json, int len)
{
	JsonLexContext *lex = compat_json_lexer(json, len, PG_UTF8);
	JsonParseErrorType result = pg_parse_json(lex, &nullSemAction);

	if (result != JSON_SUCCESS)
		ereport(ERROR,
		        (errcode(ERRCODE_INVALID_TEXT_REPRESENTATION), errmsg("argument \"payload\" is not well-formed JSON"),
		         errdetail_internal("%s", json_errdetail(result, lex)),
		         errhint("Pass content_type for text that is not JSON, for example content_type => 'text/plain', or "
		                 "cast other bytes to bytea.")));
}

static void
check_wire_size(Size size)
{
	if (size > (Size) acemq_max_body_size * 1024)
		ereport(
		    ERROR,
		    (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
		     errmsg("argument \"payload\" has %zu bytes, which is over the limit", size),
		     errdetail("acemq.max_body_size is %d kB.", acemq_max_body_size),
		     errhint("Have bodies of this size kept in the claim-check store (acemq.claim_check_threshold), or raise "
		             "acemq.max_body_size.")));
}

/* A body that is checked in does not go on the wire. */
static void
check_size(Size size)
{
	if (!claim_check_reached(size))
		check_wire_size(size);
}

static bytea *
bytes(const char *data, int len)
{
	bytea *result = (bytea *) palloc(VARHDRSZ + len);

	SET_VARSIZE(result, VARHDRSZ + len);
	memcpy(VARDATA(result), data, len);
	return result;
}

static bytea *
jsonb_body(Datum payload)
{
	Jsonb *jsonb = DatumGetJsonbP(payload);
	StringInfoData rendered;
	const char *utf8;
	int len;

	initStringInfo(&rendered);
	(void) JsonbToCString(&rendered, &jsonb->root, VARSIZE(jsonb));
	utf8 = utf8_from_server(rendered.data, rendered.len, &len, "payload");
	check_size(len);
	return bytes(utf8, len);
}

/* Before anything is copied, so that a huge value is refused cheaply. */
static void
check_stored_size(Datum payload)
{
	check_size(toast_raw_datum_size(payload) - VARHDRSZ);
}

/* text and bytea have the same layout, so text that is UTF-8 already is stored as it came. */
static bytea *
text_body(Datum payload, bool must_be_json)
{
	text *value;
	const char *utf8;
	int len;

	/* Of other encodings some take more bytes than UTF-8: only the converted text tells. */
	if (GetDatabaseEncoding() == PG_UTF8)
		check_stored_size(payload);
	value = (text *) PG_DETOAST_DATUM_PACKED(payload);
	utf8 = utf8_from_server(VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value), &len, "payload");
	check_size(len);
	if (must_be_json)
		check_json(utf8, len);
	if (utf8 == VARDATA_ANY(value))
		return (bytea *) value;
	return bytes(utf8, len);
}

/* Bytes may come with a frame, and then go on the wire as they are; text never does, being UTF-8. */
static bytea *
bytea_body(Datum payload)
{
	bytea *body;

	check_stored_size(payload);
	body = (bytea *) PG_DETOAST_DATUM_PACKED(payload);
	if (!claim_check_offloads(body))
		check_wire_size(VARSIZE_ANY_EXHDR(body));
	return body;
}

bytea *
payload_body(Datum payload, PayloadKind kind, const text *content_type)
{
	switch (kind)
	{
		case PAYLOAD_TEXT:
			return text_body(payload, content_type == NULL || is_json_type(content_type));
		case PAYLOAD_JSON:
			return text_body(payload, false);
		case PAYLOAD_JSONB:
			return jsonb_body(payload);
		case PAYLOAD_BYTEA:
			return bytea_body(payload);
	}
	elog(ERROR, "unexpected kind of payload: %d", (int) kind);
}
