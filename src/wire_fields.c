/*
 * wire_fields.c
 *		Building and measuring the neutral list of AMQP field values.
 *
 * May depend on: acemq.h.
 */
#include "wire_fields.h"

/* Most messages carry the reserved headers and two or three of the application's. */
#define FIRST_CAPACITY 16

WireField *
wire_table_add(WireTable *table, const char *name, int name_len, WireKind kind)
{
	WireField *field;

	if (table->count == table->capacity)
	{
		int capacity = table->capacity > 0 ? table->capacity * 2 : FIRST_CAPACITY;

		if (table->fields == NULL)
			table->fields = palloc(capacity * sizeof(WireField));
		else
			table->fields = repalloc(table->fields, capacity * sizeof(WireField));
		table->capacity = capacity;
	}

	field = &table->fields[table->count++];
	memset(field, 0, sizeof(*field));
	field->name = name;
	field->name_len = name_len;
	field->kind = kind;
	return field;
}

void
wire_table_add_string(WireTable *table, const char *name, const char *value)
{
	WireField *field = wire_table_add(table, name, (int) strlen(name), WIRE_STRING);

	field->value.string.data = value;
	field->value.string.len = (int) strlen(value);
}

void
wire_table_add_int(WireTable *table, const char *name, WireKind kind, int64 value)
{
	WireField *field;

	Assert(kind == WIRE_INT32 || kind == WIRE_INT64);
	field = wire_table_add(table, name, (int) strlen(name), kind);
	field->value.integer = value;
}

static Size list_size(const WireField *items, int count, bool named);

/* Without the kind byte. */
static Size
value_size(const WireField *field)
{
	switch (field->kind)
	{
		case WIRE_STRING:
		case WIRE_BYTES:
			return 4 + (Size) field->value.string.len;
		case WIRE_INT32:
		case WIRE_UINT32:
		case WIRE_FLOAT:
			return 4;
		case WIRE_INT64:
		case WIRE_UINT64:
		case WIRE_DOUBLE:
		case WIRE_TIMESTAMP:
			return 8;
		case WIRE_INT16:
		case WIRE_UINT16:
			return 2;
		case WIRE_DECIMAL:
			return 5;
		case WIRE_BOOL:
		case WIRE_INT8:
		case WIRE_UINT8:
			return 1;
		case WIRE_VOID:
			return 0;
		case WIRE_TABLE:
			return list_size(field->value.list.items, field->value.list.count, true);
		case WIRE_ARRAY:
			return list_size(field->value.list.items, field->value.list.count, false);
	}
	return 0;
}

/* Length word, then for each item its name (in a table only), its kind and its value. */
static Size
list_size(const WireField *items, int count, bool named)
{
	Size size = 4;

	for (int i = 0; i < count; i++)
	{
		if (named)
			size += 1 + (Size) items[i].name_len;
		size += 1 + value_size(&items[i]);
	}
	return size;
}

Size
wire_table_size(const WireTable *table)
{
	return list_size(table->fields, table->count, true);
}
