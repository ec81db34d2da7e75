/*
 * jsonb.c (stand-in)
 */
#include "utils/jsonb.h"

#include "common/shortest_dec.h"

/* ---- numbers ---- */

static char *
formatted(const char *format, double number)
{
	char *text = palloc(400);

	snprintf(text, 400, format, number);
	return text;
}

char *
double_to_shortest_decimal(double number)
{
	return formatted("%.17g", number);
}

/* The bits of a double in a Datum, as in the server. */
double
standin_float8(Datum datum)
{
	double number;

	memcpy(&number, &datum, sizeof(number));
	return number;
}

Datum
numeric_float8_no_overflow(Datum number)
{
	double value = strtod(DatumGetNumeric(number), NULL);
	Datum datum;

	memcpy(&datum, &value, sizeof(datum));
	return datum;
}

Numeric
int64_to_numeric(int64 number)
{
	char *text = palloc(32);

	snprintf(text, 32, "%lld", (long long) number);
	return text;
}

Datum
numeric_in(Datum text, Datum oid, Datum typmod)
{
	return text;
}

Datum
numeric_out(Datum number)
{
	return (Datum) pstrdup(DatumGetNumeric(number));
}

/* Places after the point, also of a number with an exponent. */
Datum
numeric_scale(Datum number)
{
	const char *point = strchr(DatumGetNumeric(number), '.');
	const char *exponent = strchr(DatumGetNumeric(number), 'e');
	int places = point != NULL ? (int) strspn(point + 1, "0123456789") : 0;

	return (Datum) Max(places - (exponent != NULL ? atoi(exponent + 1) : 0), 0);
}

/* Only used to give a whole number a place after the point. */
Datum
numeric_round(Datum number, Datum places)
{
	assert(places == 1 && numeric_scale(number) == 0);
	return (Datum) formatted("%.1f", strtod(DatumGetNumeric(number), NULL));
}

/* Only used to compare with zero. */
Datum
numeric_ne(Datum left, Datum right)
{
	assert(strcmp(DatumGetNumeric(right), "0") == 0);
	return strpbrk(DatumGetNumeric(left), "123456789") != NULL;
}

/* ---- tokens ---- */

void
standin_jsonb_append(JsonbContainer *container, JsonbIteratorToken token, const JsonbValue *value)
{
	if (container->count == container->capacity)
	{
		container->capacity = Max(2 * container->capacity, 16);
		container->tokens = container->tokens == NULL
		                        ? palloc(container->capacity * sizeof(JsonbToken))
		                        : repalloc(container->tokens, container->capacity * sizeof(JsonbToken));
	}
	memset(&container->tokens[container->count], 0, sizeof(JsonbToken));
	container->tokens[container->count].token = token;
	if (value != NULL)
		container->tokens[container->count].value = *value;
	container->count++;
}

JsonbIterator *
JsonbIteratorInit(JsonbContainer *container)
{
	JsonbIterator *it = palloc0(sizeof(JsonbIterator));

	it->container = container;
	return it;
}

JsonbIteratorToken
JsonbIteratorNext(JsonbIterator **it, JsonbValue *value, bool skip_nested)
{
	const JsonbToken *token;

	if ((*it)->next == (*it)->container->count)
		return WJB_DONE;
	token = &(*it)->container->tokens[(*it)->next++];
	*value = token->value;
	return token->token;
}

JsonbValue *
pushJsonbValue(JsonbParseState **state, JsonbIteratorToken token, JsonbValue *value)
{
	JsonbValue *result;

	if (*state == NULL)
	{
		*state = palloc0(sizeof(JsonbParseState));
		(*state)->made = palloc0(sizeof(Jsonb));
	}
	if (token == WJB_BEGIN_ARRAY || token == WJB_BEGIN_OBJECT)
		(*state)->depth++;
	if (token == WJB_END_ARRAY || token == WJB_END_OBJECT)
		(*state)->depth--;
	standin_jsonb_append(&(*state)->made->root, token, value);
	if ((*state)->depth > 0)
		return NULL;
	result = palloc0(sizeof(JsonbValue));
	result->type = jbvBinary;
	result->val.binary = (*state)->made;
	return result;
}

Jsonb *
JsonbValueToJsonb(JsonbValue *value)
{
	assert(value->type == jbvBinary);
	return value->val.binary;
}
