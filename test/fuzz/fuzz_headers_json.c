/*
 * fuzz_headers_json.c
 *		A row's headers to the wire and back: any jsonb that is no error comes
 *		back as it was, but for nulls at the top.
 */
#include "table.h"

#include "header_json.h"
#include "mb/pg_wchar.h"

#include <math.h>

/* ---- a jsonb of the input's bytes ---- */

#define MOST_LEVELS 40

static char *
make_digits(Input *input)
{
	uint8 how = input_byte(input);
	int whole = how & 15;
	int places = how >> 5;
	char *digits = palloc(400);
	char *out = digits;

	/* The last one is for numbers beyond everything. */
	if (whole == 15)
		whole = 10 + 2 * (input_byte(input) % 160);
	if ((how & 16) != 0)
		*out++ = '-';
	for (int i = 0; i < whole; i++)
		*out++ = (char) ('0' + input_byte(input) % 10);
	if (whole == 0)
		*out++ = '0';
	if (places > 0)
		*out++ = '.';
	for (int i = 0; i < places; i++)
		*out++ = (char) ('0' + input_byte(input) % 10);
	*out = '\0';
	return digits;
}

/* Valid in the database's encoding, as text of the server always is. */
static void
make_string(Input *input, JsonbValue *value)
{
	uint8 how = input_byte(input);
	Size len = (how & 0x80) != 0 ? (Size) (how & 0x7f) * 3 : how & 15;

	value->type = jbvString;
	value->val.string.val = input_text(input, len);
	value->val.string.len = (int) strlen(value->val.string.val);
	if (standin_database_encoding == PG_UTF8 &&
	    !pg_verify_mbstr(PG_UTF8, value->val.string.val, value->val.string.len, true))
	{
		value->val.string.val = pstrdup("?");
		value->val.string.len = 1;
	}
}

static void
make_scalar(Input *input, uint8 kind, JsonbValue *value)
{
	memset(value, 0, sizeof(*value));
	switch (kind % 4)
	{
		case 0:
			value->type = jbvNull;
			break;
		case 1:
			value->type = jbvBool;
			value->val.boolean = input_byte(input) & 1;
			break;
		case 2:
			value->type = jbvNumeric;
			value->val.numeric = make_digits(input);
			break;
		default:
			make_string(input, value);
	}
}

static void make_container(Input *input, JsonbContainer *all, bool is_array, int depth);

static void
make_member(Input *input, JsonbContainer *all, bool in_array, int depth)
{
	uint8 kind = input_byte(input);
	JsonbValue value;

	if (!in_array)
	{
		make_string(input, &value);
		standin_jsonb_append(all, WJB_KEY, &value);
	}
	if (kind % 8 >= 6 && depth < MOST_LEVELS)
	{
		make_container(input, all, kind % 8 == 7, depth + 1);
		return;
	}
	make_scalar(input, kind, &value);
	standin_jsonb_append(all, in_array ? WJB_ELEM : WJB_VALUE, &value);
}

static void
make_container(Input *input, JsonbContainer *all, bool is_array, int depth)
{
	standin_jsonb_append(all, is_array ? WJB_BEGIN_ARRAY : WJB_BEGIN_OBJECT, NULL);
	while (input->left > 0 && (input_byte(input) & 7) != 0)
		make_member(input, all, is_array, depth);
	standin_jsonb_append(all, is_array ? WJB_END_ARRAY : WJB_END_OBJECT, NULL);
}

/* ---- the same again? ---- */

/* The next token of the original that has to come back: a null at the top and its key do not. */
static const JsonbToken *
next_expected(const JsonbContainer *all, int *next, int *depth)
{
	for (;;)
	{
		const JsonbToken *token = &all->tokens[*next];

		if (*depth == 1 && token->token == WJB_KEY && token[1].token == WJB_VALUE && token[1].value.type == jbvNull)
		{
			*next += 2;
			continue;
		}
		if (token->token == WJB_BEGIN_ARRAY || token->token == WJB_BEGIN_OBJECT)
			(*depth)++;
		if (token->token == WJB_END_ARRAY || token->token == WJB_END_OBJECT)
			(*depth)--;
		(*next)++;
		return token;
	}
}

static void
check_number(const char *was, const char *is)
{
	MUST((strchr(was, '.') == NULL) == (strchr(is, '.') == NULL));
	MUST(strtod(was, NULL) == strtod(is, NULL));
	MUST(strchr(was, '.') != NULL || strtoll(was, NULL, 10) == strtoll(is, NULL, 10));
}

static void
check_value(const JsonbValue *was, const JsonbValue *is)
{
	MUST(was->type == is->type);
	if (was->type == jbvNumeric)
		check_number(was->val.numeric, is->val.numeric);
	else if (was->type == jbvBool)
		MUST(was->val.boolean == is->val.boolean);
	else if (was->type == jbvString)
		MUST(was->val.string.len == is->val.string.len &&
		     memcmp(was->val.string.val, is->val.string.val, was->val.string.len) == 0);
}

static void
check_same(const JsonbContainer *was, const JsonbContainer *is)
{
	int next = 0;
	int depth = 0;

	for (int i = 0; i < is->count; i++)
	{
		const JsonbToken *expected = next_expected(was, &next, &depth);

		MUST(expected->token == is->tokens[i].token);
		if (expected->token == WJB_KEY || expected->token == WJB_VALUE || expected->token == WJB_ELEM)
			check_value(&expected->value, &is->tokens[i].value);
	}
	MUST(next == was->count);
}

void
fuzz_one(Input *input)
{
	static const int encodings[] = {PG_UTF8, PG_UTF8, PG_LATIN1, PG_SQL_ASCII};
	Jsonb headers = {{0}};
	WireTable table = {0};
	WireTable received = {0};
	amqp_pool_t pool;
	amqp_table_t native;
	char *encoded;
	Size len;
	bool is_read;

	standin_database_encoding = encodings[input_byte(input) % lengthof(encodings)];
	make_container(input, &headers.root, false, 0);

	/* From here to the decoded form nothing of the library's is held, since an error leaves. */
	header_json_to_table(&headers, &table);
	MUST(wire_headers_problem(&table) == NULL);
	encoded = table_encode(&table, &len);

	init_amqp_pool(&pool, 4096);
	MUST(table_decode(encoded + 4, len - 4, &pool, &native));
	is_read = wire_headers_read(&native, &received);
	empty_amqp_pool(&pool);
	MUST(is_read);
	check_same(&headers.root, &header_table_to_json(&received)->root);
}
