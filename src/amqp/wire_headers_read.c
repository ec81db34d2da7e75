/*
 * wire_headers_read.c
 *		Received headers in the form of the neutral list, every kind kept.
 *
 * Recursion is bounded by ACEMQ_MAX_HEADER_DEPTH, which is checked first.  All
 * names and strings are copied into one piece of memory, each list of fields
 * into one of its own.
 *
 * May depend on: wire_headers.h, wire_fields.h, rabbit.h.
 */
#include "wire_headers.h"

/* What the allocator adds to a piece of memory, at most about. */
#define CHUNK_OVERHEAD 32

typedef struct Measured
{
	Size text;  /* bytes of names and strings */
	Size lists; /* memory of the lists of fields */
} Measured;

/* ---- measuring ---- */

static bool measure_value(const amqp_field_value_t *value, int depth, Measured *measured);

static bool
measure_table(const amqp_table_t *table, int depth, Measured *measured)
{
	if (depth > ACEMQ_MAX_HEADER_DEPTH)
		return false;
	measured->lists += CHUNK_OVERHEAD + table->num_entries * sizeof(WireField);
	for (int i = 0; i < table->num_entries; i++)
	{
		measured->text += table->entries[i].key.len;
		if (!measure_value(&table->entries[i].value, depth, measured))
			return false;
	}
	return true;
}

static bool
measure_array(const amqp_array_t *array, int depth, Measured *measured)
{
	if (depth > ACEMQ_MAX_HEADER_DEPTH)
		return false;
	measured->lists += CHUNK_OVERHEAD + array->num_entries * sizeof(WireField);
	for (int i = 0; i < array->num_entries; i++)
	{
		if (!measure_value(&array->entries[i], depth, measured))
			return false;
	}
	return true;
}

static bool
measure_value(const amqp_field_value_t *value, int depth, Measured *measured)
{
	switch (value->kind)
	{
		case AMQP_FIELD_KIND_UTF8:
		case AMQP_FIELD_KIND_BYTES:
			measured->text += value->value.bytes.len;
			return true;
		case AMQP_FIELD_KIND_TABLE:
			return measure_table(&value->value.table, depth + 1, measured);
		case AMQP_FIELD_KIND_ARRAY:
			return measure_array(&value->value.array, depth + 1, measured);
		default:
			return true;
	}
}

bool
wire_headers_measure(const amqp_table_t *table, Size *memory)
{
	Measured measured = {0};

	if (!measure_table(table, 0, &measured))
		return false;
	*memory = measured.lists + CHUNK_OVERHEAD + measured.text;
	return true;
}

/* ---- reading ---- */

/* Copy to where `text` points and move that on. */
static const char *
copy(char **text, amqp_bytes_t bytes)
{
	char *result = *text;

	if (bytes.len > 0)
		memcpy(result, bytes.bytes, bytes.len);
	*text += bytes.len;
	return result;
}

static void read_table(const amqp_table_t *table, WireField **items, int *count, char **text);
static void read_array(const amqp_array_t *array, WireField **items, int *count, char **text);

static void
read_value(const amqp_field_value_t *value, WireField *field, char **text)
{
	field->kind = (WireKind) value->kind;
	switch (field->kind)
	{
		case WIRE_STRING:
		case WIRE_BYTES:
			field->value.string.data = copy(text, value->value.bytes);
			field->value.string.len = (int) value->value.bytes.len;
			break;
		case WIRE_INT8:
			field->value.integer = value->value.i8;
			break;
		case WIRE_UINT8:
			field->value.integer = value->value.u8;
			break;
		case WIRE_INT16:
			field->value.integer = value->value.i16;
			break;
		case WIRE_UINT16:
			field->value.integer = value->value.u16;
			break;
		case WIRE_INT32:
			field->value.integer = value->value.i32;
			break;
		case WIRE_UINT32:
			field->value.integer = value->value.u32;
			break;
		case WIRE_INT64:
			field->value.integer = value->value.i64;
			break;
		case WIRE_UINT64:
		case WIRE_TIMESTAMP:
			field->value.big_unsigned = value->value.u64;
			break;
		case WIRE_FLOAT:
			field->value.real = value->value.f32;
			break;
		case WIRE_DOUBLE:
			field->value.number = value->value.f64;
			break;
		case WIRE_DECIMAL:
			field->value.decimal.scale = value->value.decimal.decimals;
			field->value.decimal.value = value->value.decimal.value;
			break;
		case WIRE_BOOL:
			field->value.boolean = value->value.boolean != 0;
			break;
		case WIRE_VOID:
			break;
		case WIRE_TABLE:
			read_table(&value->value.table, &field->value.list.items, &field->value.list.count, text);
			break;
		case WIRE_ARRAY:
			read_array(&value->value.array, &field->value.list.items, &field->value.list.count, text);
			break;
	}
}

static WireField *
new_list(int count)
{
	WireField *items = count > 0 ? palloc(count * sizeof(WireField)) : NULL;

	if (count > 0)
		memset(items, 0, count * sizeof(WireField));
	return items;
}

static void
read_table(const amqp_table_t *table, WireField **items, int *count, char **text)
{
	*count = table->num_entries;
	*items = new_list(*count);
	for (int i = 0; i < *count; i++)
	{
		(*items)[i].name = copy(text, table->entries[i].key);
		(*items)[i].name_len = (int) table->entries[i].key.len;
		read_value(&table->entries[i].value, &(*items)[i], text);
	}
}

static void
read_array(const amqp_array_t *array, WireField **items, int *count, char **text)
{
	*count = array->num_entries;
	*items = new_list(*count);
	for (int i = 0; i < *count; i++)
		read_value(&array->entries[i], &(*items)[i], text);
}

bool
wire_headers_read(const amqp_table_t *table, WireTable *result)
{
	Measured measured = {0};
	char *text;

	memset(result, 0, sizeof(*result));
	if (!measure_table(table, 0, &measured))
		return false;
	text = palloc(Max(measured.text, 1));
	read_table(table, &result->fields, &result->count, &text);
	result->capacity = result->count;
	return true;
}
