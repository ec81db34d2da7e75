/*
 * test_wire_fields.c
 *		The neutral header list: growth, and the size that the client library's
 *		own encoder arrives at.
 */
#include "wire_fields.h"

#include "amqp/wire_headers.h"
#include "check.h"

static uint8_t buffer[1 << 20];

/* Bytes on the wire, by the library itself. */
static Size
encoded_size(const WireTable *table)
{
	amqp_table_t native = wire_headers_build(table);
	amqp_bytes_t room = {sizeof(buffer), buffer};
	size_t offset = 0;
	int status = amqp_encode_table(room, &native, &offset);

	CHECK(status == AMQP_STATUS_OK);
	return offset;
}

static void
put_list(WireTable *table, const char *name, WireKind kind, WireField *items, int count)
{
	WireField *field = wire_table_add(table, name, (int) strlen(name), kind);

	field->value.list.items = items;
	field->value.list.count = count;
}

static void
test_every_kind(void)
{
	WireTable table = {0};
	WireTable inner = {0};
	WireTable array = {0};

	CHECK(wire_table_size(&table) == 4 && encoded_size(&table) == 4);

	wire_table_add_string(&inner, "k", "value");
	wire_table_add_int(&inner, "n", WIRE_INT64, INT64_MIN);
	for (int i = 0; i < 3; i++)
		wire_table_add(&array, NULL, 0, i == 1 ? WIRE_VOID : WIRE_BOOL)->value.boolean = i == 0;
	wire_table_add(&array, NULL, 0, WIRE_DOUBLE)->value.number = 0.5;

	wire_table_add_string(&table, "x-acemq-id", "0123");
	wire_table_add_string(&table, "", "");
	wire_table_add_int(&table, "x-acemq-version", WIRE_INT32, 7);
	wire_table_add_int(&table, "long", WIRE_INT64, 1);
	wire_table_add(&table, "d", 1, WIRE_DOUBLE)->value.number = 1.5;
	wire_table_add(&table, "b", 1, WIRE_BOOL)->value.boolean = true;
	wire_table_add(&table, "v", 1, WIRE_VOID);
	put_list(&table, "table", WIRE_TABLE, inner.fields, inner.count);
	put_list(&table, "array", WIRE_ARRAY, array.fields, array.count);
	put_list(&table, "none", WIRE_ARRAY, NULL, 0);

	CHECK(wire_headers_problem(&table) == NULL);
	CHECK(wire_table_size(&table) == encoded_size(&table));
}

static void
test_growth(void)
{
	WireTable table = {0};
	static char names[1000][16];

	for (int i = 0; i < 1000; i++)
	{
		snprintf(names[i], sizeof(names[i]), "n%d", i);
		wire_table_add_int(&table, names[i], WIRE_INT64, i);
	}
	CHECK(table.count == 1000);
	CHECK(table.fields[999].value.integer == 999 && strcmp(table.fields[0].name, "n0") == 0);
	CHECK(wire_table_size(&table) == encoded_size(&table));
}

static void
test_limits(void)
{
	static char name[257];
	WireTable table = {0};
	WireField *level;

	memset(name, 'n', 256);
	wire_table_add(&table, name, 255, WIRE_VOID);
	CHECK(wire_headers_problem(&table) == NULL);
	table.fields[0].name_len = 256;
	CHECK(wire_headers_problem(&table) != NULL);

	/* As deep as allowed, and one deeper. */
	table.fields[0] = (WireField){.name = "deep", .name_len = 4, .kind = WIRE_ARRAY};
	level = &table.fields[0];
	for (int depth = 1; depth <= ACEMQ_MAX_HEADER_DEPTH; depth++)
	{
		WireTable next = {0};

		CHECK(wire_headers_problem(&table) == NULL);
		level->value.list.items = wire_table_add(&next, NULL, 0, WIRE_ARRAY);
		level->value.list.count = 1;
		level = level->value.list.items;
	}
	CHECK(wire_headers_problem(&table) != NULL);
	level->kind = WIRE_VOID;
	CHECK(wire_headers_problem(&table) == NULL);
	CHECK(wire_table_size(&table) == encoded_size(&table));
}

int
main(void)
{
	RUN(test_every_kind());
	RUN(test_growth());
	RUN(test_limits());
	return check_report();
}
