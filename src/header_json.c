/*
 * header_json.c
 *		jsonb <-> neutral header list.
 *
 * One walk serves both users: the call that adds a message, where a wrong
 * header has to be an error of the caller, and the relay, which may meet a row
 * that somebody inserted by hand.
 *
 * May depend on: wire_fields.h, utf8.h.
 */
#include "header_json.h"
#include "utf8.h"

#include "common/shortest_dec.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/numeric.h"

#include <math.h>

/* A name as it appears in an error message: never more than a line of it. */
#define NAME_IN_MESSAGE 60

static void read_members(JsonbIterator **it, WireTable *table, int depth);
static JsonbValue *push_list(JsonbParseState **state, const WireField *items, int count, bool is_array);

static const char *
quoted_name(const char *name, int len)
{
	if (name == NULL)
		return "(array element)";
	return pnstrdup(name, pg_encoding_mbcliplen(PG_UTF8, name, len, NAME_IN_MESSAGE));
}

static void
check_name(const char *name, int len, int depth)
{
	if (len == 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_NAME), errmsg("argument \"headers\" has a header with an empty name"),
		                errhint("Give every header, also inside an object, a name.")));
	if (len > ACEMQ_MAX_HEADER_NAME)
		ereport(ERROR,
		        (errcode(ERRCODE_NAME_TOO_LONG), errmsg("argument \"headers\" has a header name of %d bytes", len),
		         errdetail("The name begins with \"%s\".", quoted_name(name, len)),
		         errhint("A header name has at most %d bytes in UTF-8.", ACEMQ_MAX_HEADER_NAME)));
	if (depth == 0 && len >= strlen(ACEMQ_RESERVED_PREFIX) &&
	    memcmp(name, ACEMQ_RESERVED_PREFIX, strlen(ACEMQ_RESERVED_PREFIX)) == 0)
		ereport(ERROR,
		        (errcode(ERRCODE_RESERVED_NAME),
		         errmsg("argument \"headers\" has the reserved header \"%s\"", quoted_name(name, len)),
		         errdetail("Names that start with \"%s\" belong to the message envelope.", ACEMQ_RESERVED_PREFIX),
		         errhint("Use the named arguments for the envelope, and another name for a header of your own.")));
}

/* Whole: the number was written without a fraction.  1e3 is whole, 1.0 is not. */
static bool
is_whole(Numeric number)
{
	return DatumGetInt32(DirectFunctionCall1(numeric_scale, NumericGetDatum(number))) == 0;
}

static int64
whole_number(Numeric number, const char *name, int name_len)
{
	char *digits = DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(number)));
	int64 value;

	errno = 0;
	value = strtoll(digits, NULL, 10);
	if (errno == ERANGE)
		ereport(ERROR, (errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
		                errmsg("argument \"headers\" has a whole number beyond 64 bits in \"%s\"",
		                       quoted_name(name, name_len)),
		                errhint("Send a number of this size as a string.")));
	pfree(digits);
	return value;
}

static double
fraction(Numeric number, const char *name, int name_len)
{
	double value = DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow, NumericGetDatum(number)));
	bool lost = isinf(value);

	/* Too small for a double is as lost as too large. */
	if (value == 0.0)
		lost = DatumGetBool(
		    DirectFunctionCall2(numeric_ne, NumericGetDatum(number), NumericGetDatum(int64_to_numeric(0))));
	if (lost)
		ereport(ERROR, (errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
		                errmsg("argument \"headers\" has a number beyond double precision in \"%s\"",
		                       quoted_name(name, name_len)),
		                errhint("Send a number of this size as a string.")));
	return value;
}

static void
add_number(WireTable *table, const char *name, int name_len, Numeric number)
{
	if (is_whole(number))
	{
		int64 value = whole_number(number, name, name_len);

		wire_table_add(table, name, name_len, WIRE_INT64)->value.integer = value;
	}
	else
	{
		double value = fraction(number, name, name_len);

		wire_table_add(table, name, name_len, WIRE_DOUBLE)->value.number = value;
	}
}

static void
add_scalar(WireTable *table, const char *name, int name_len, const JsonbValue *scalar, int depth)
{
	WireField *field;

	switch (scalar->type)
	{
		case jbvNull:
			/* A header without a value is no header; inside a value the place has to be kept. */
			if (depth > 0)
				(void) wire_table_add(table, name, name_len, WIRE_VOID);
			break;
		case jbvString:
			field = wire_table_add(table, name, name_len, WIRE_STRING);
			field->value.string.data =
			    utf8_from_server(scalar->val.string.val, scalar->val.string.len, &field->value.string.len, "headers");
			break;
		case jbvNumeric:
			add_number(table, name, name_len, scalar->val.numeric);
			break;
		case jbvBool:
			wire_table_add(table, name, name_len, WIRE_BOOL)->value.boolean = scalar->val.boolean;
			break;
		default:
			elog(ERROR, "unexpected jsonb value of type %d", (int) scalar->type);
	}
}

static void
add_container(JsonbIterator **it, WireTable *table, const char *name, int name_len, WireKind kind, int depth)
{
	WireTable inner = {0};
	WireField *field;

	if (depth >= ACEMQ_MAX_HEADER_DEPTH)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
		                errmsg("argument \"headers\" is nested too deeply in \"%s\"", quoted_name(name, name_len)),
		                errhint("Objects and arrays can be nested up to %d levels.", ACEMQ_MAX_HEADER_DEPTH)));

	read_members(it, &inner, depth + 1);

	/* Only now: reading the members may not move a field that is being filled. */
	field = wire_table_add(table, name, name_len, kind);
	field->value.list.items = inner.fields;
	field->value.list.count = inner.count;
}

/* The members of an object or the elements of an array, up to and including its end. */
static void
read_members(JsonbIterator **it, WireTable *table, int depth)
{
	for (;;)
	{
		JsonbValue value;
		JsonbIteratorToken token = JsonbIteratorNext(it, &value, false);
		const char *name = NULL;
		int name_len = 0;

		if (token == WJB_END_OBJECT || token == WJB_END_ARRAY || token == WJB_DONE)
			return;

		if (token == WJB_KEY)
		{
			name = utf8_from_server(value.val.string.val, value.val.string.len, &name_len, "headers");
			check_name(name, name_len, depth);
			token = JsonbIteratorNext(it, &value, false);
		}

		if (token == WJB_BEGIN_OBJECT)
			add_container(it, table, name, name_len, WIRE_TABLE, depth);
		else if (token == WJB_BEGIN_ARRAY)
			add_container(it, table, name, name_len, WIRE_ARRAY, depth);
		else
			add_scalar(table, name, name_len, &value, depth);
	}
}

void
header_json_to_table(Jsonb *headers, WireTable *table)
{
	JsonbIterator *it;
	JsonbValue value;

	if (!JB_ROOT_IS_OBJECT(headers))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("argument \"headers\" must be a JSON object"),
		                errhint("Pass the headers as in '{\"tenant\": \"a\", \"shard\": 7}'.")));

	it = JsonbIteratorInit(&headers->root);
	(void) JsonbIteratorNext(&it, &value, false); /* the opening brace */
	read_members(&it, table, 0);
}

static void
string_to_jsonb(const char *data, int len, JsonbValue *value)
{
	value->type = jbvString;
	value->val.string.val = len == 0 ? pstrdup("") : pg_any_to_server(pnstrdup(data, len), len, PG_UTF8);
	value->val.string.len = strlen(value->val.string.val);
}

static Numeric
numeric_from_text(const char *digits)
{
	return DatumGetNumeric(
	    DirectFunctionCall3(numeric_in, CStringGetDatum(digits), ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));
}

/*
 * All digits of the double, which the server's own cast to numeric cuts to
 * fifteen, and at least one place after the point, so that it stays a fraction.
 */
static Numeric
numeric_from_double(double number)
{
	Numeric numeric;

	if (isnan(number) || isinf(number))
		ereport(ERROR,
		        (errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE), errmsg("header value %f cannot be shown as JSON", number),
		         errdetail("JSON has no such number.")));
	numeric = numeric_from_text(double_to_shortest_decimal(number));
	if (is_whole(numeric))
		numeric = DatumGetNumeric(DirectFunctionCall2(numeric_round, NumericGetDatum(numeric), Int32GetDatum(1)));
	return numeric;
}

static void
scalar_to_jsonb(const WireField *field, JsonbValue *value)
{
	switch (field->kind)
	{
		case WIRE_STRING:
			string_to_jsonb(field->value.string.data, field->value.string.len, value);
			break;
		case WIRE_INT32:
		case WIRE_INT64:
			value->type = jbvNumeric;
			value->val.numeric = int64_to_numeric(field->value.integer);
			break;
		case WIRE_DOUBLE:
			value->type = jbvNumeric;
			value->val.numeric = numeric_from_double(field->value.number);
			break;
		case WIRE_BOOL:
			value->type = jbvBool;
			value->val.boolean = field->value.boolean;
			break;
		default:
			value->type = jbvNull;
	}
}

static void
push_field(JsonbParseState **state, const WireField *field, bool in_array)
{
	JsonbValue value;

	if (!in_array)
	{
		string_to_jsonb(field->name, field->name_len, &value);
		(void) pushJsonbValue(state, WJB_KEY, &value);
	}
	if (field->kind == WIRE_TABLE || field->kind == WIRE_ARRAY)
	{
		(void) push_list(state, field->value.list.items, field->value.list.count, field->kind == WIRE_ARRAY);
		return;
	}
	scalar_to_jsonb(field, &value);
	(void) pushJsonbValue(state, in_array ? WJB_ELEM : WJB_VALUE, &value);
}

static JsonbValue *
push_list(JsonbParseState **state, const WireField *items, int count, bool is_array)
{
	int i;

	check_stack_depth();
	(void) pushJsonbValue(state, is_array ? WJB_BEGIN_ARRAY : WJB_BEGIN_OBJECT, NULL);
	for (i = 0; i < count; i++)
		push_field(state, &items[i], is_array);
	return pushJsonbValue(state, is_array ? WJB_END_ARRAY : WJB_END_OBJECT, NULL);
}

Jsonb *
header_table_to_json(const WireTable *table)
{
	JsonbParseState *state = NULL;

	return JsonbValueToJsonb(push_list(&state, table->fields, table->count, false));
}
