/*
 * wire_headers.c
 *		The neutral header list in the form of the client library.
 *
 * Recursion is bounded by ACEMQ_MAX_HEADER_DEPTH, which is checked first.
 *
 * May depend on: wire_fields.h, rabbit.h.
 */
#include "wire_headers.h"

static const char *
list_problem(const WireField *items, int count, int depth)
{
	if (depth > ACEMQ_MAX_HEADER_DEPTH)
		return "headers are nested too deeply";
	for (int i = 0; i < count; i++)
	{
		const char *problem = NULL;

		if (items[i].name_len > ACEMQ_MAX_SHORTSTR)
			return "a header name is longer than 255 bytes";
		if (items[i].kind == WIRE_TABLE || items[i].kind == WIRE_ARRAY)
			problem = list_problem(items[i].value.list.items, items[i].value.list.count, depth + 1);
		if (problem != NULL)
			return problem;
	}
	return NULL;
}

const char *
wire_headers_problem(const WireTable *table)
{
	return list_problem(table->fields, table->count, 0);
}

static amqp_table_t build_table(const WireField *items, int count);
static amqp_array_t build_array(const WireField *items, int count);

static void
build_value(const WireField *field, amqp_field_value_t *value)
{
	value->kind = (uint8_t) field->kind;
	switch (field->kind)
	{
		case WIRE_STRING:
		case WIRE_BYTES:
			value->value.bytes.len = field->value.string.len;
			value->value.bytes.bytes = unconstify(char *, field->value.string.data);
			break;
		case WIRE_INT32:
			value->value.i32 = (int32_t) field->value.integer;
			break;
		case WIRE_INT64:
			value->value.i64 = field->value.integer;
			break;
		case WIRE_DOUBLE:
			value->value.f64 = field->value.number;
			break;
		case WIRE_BOOL:
			value->value.boolean = field->value.boolean;
			break;
		case WIRE_VOID:
			break;
		case WIRE_INT8:
			value->value.i8 = (int8_t) field->value.integer;
			break;
		case WIRE_UINT8:
			value->value.u8 = (uint8_t) field->value.integer;
			break;
		case WIRE_INT16:
			value->value.i16 = (int16_t) field->value.integer;
			break;
		case WIRE_UINT16:
			value->value.u16 = (uint16_t) field->value.integer;
			break;
		case WIRE_UINT32:
			value->value.u32 = (uint32_t) field->value.integer;
			break;
		case WIRE_UINT64:
		case WIRE_TIMESTAMP:
			value->value.u64 = field->value.big_unsigned;
			break;
		case WIRE_FLOAT:
			value->value.f32 = field->value.real;
			break;
		case WIRE_DECIMAL:
			value->value.decimal.decimals = field->value.decimal.scale;
			value->value.decimal.value = field->value.decimal.value;
			break;
		case WIRE_TABLE:
			value->value.table = build_table(field->value.list.items, field->value.list.count);
			break;
		case WIRE_ARRAY:
			value->value.array = build_array(field->value.list.items, field->value.list.count);
			break;
	}
}

static amqp_table_t
build_table(const WireField *items, int count)
{
	amqp_table_t table = amqp_empty_table;

	if (count == 0)
		return table;
	table.num_entries = count;
	table.entries = palloc(count * sizeof(amqp_table_entry_t));
	for (int i = 0; i < count; i++)
	{
		table.entries[i].key.len = items[i].name_len;
		table.entries[i].key.bytes = unconstify(char *, items[i].name);
		build_value(&items[i], &table.entries[i].value);
	}
	return table;
}

static amqp_array_t
build_array(const WireField *items, int count)
{
	amqp_array_t array = amqp_empty_array;

	if (count == 0)
		return array;
	array.num_entries = count;
	array.entries = palloc(count * sizeof(amqp_field_value_t));
	for (int i = 0; i < count; i++)
		build_value(&items[i], &array.entries[i]);
	return array;
}

amqp_table_t
wire_headers_build(const WireTable *table)
{
	return build_table(table->fields, table->count);
}
