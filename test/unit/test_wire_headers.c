/*
 * test_wire_headers.c
 *		Received headers: every kind there and back byte for byte, by the client
 *		library's own encoder and decoder, and how deep is too deep.
 */
#include "amqp/wire_headers.h"

#include "check.h"

#define FRAME 131072

static uint8_t first[FRAME];
static uint8_t second[FRAME];

static Size
encode(const WireTable *table, uint8_t *buffer)
{
	amqp_table_t native = wire_headers_build(table);
	size_t offset = 0;

	CHECK(amqp_encode_table((amqp_bytes_t){FRAME, buffer}, &native, &offset) == AMQP_STATUS_OK);
	return offset;
}

/* False: the library does not take it. */
static bool
decode(Size len, amqp_pool_t *pool, amqp_table_t *native)
{
	size_t offset = 0;

	return amqp_decode_table((amqp_bytes_t){len, first}, pool, native, &offset) == AMQP_STATUS_OK && offset == len;
}

/* What lies in `first` comes out the same again, and nothing of the result points into the library's memory. */
static void
round_trip(Size len)
{
	amqp_pool_t pool;
	amqp_table_t native;
	WireTable table;
	Size memory = 0;

	init_amqp_pool(&pool, 4096);
	CHECK(decode(len, &pool, &native));
	CHECK(wire_headers_measure(&native, &memory) && memory > 0);
	CHECK(wire_headers_read(&native, &table));
	empty_amqp_pool(&pool);
	memcpy(second, first, len);
	memset(first, 0xa5, len);
	CHECK(wire_table_size(&table) == len);
	CHECK(encode(&table, first) == len && memcmp(first, second, len) == 0);
}

static WireField *
add(WireTable *table, const char *name, WireKind kind)
{
	return wire_table_add(table, name, name != NULL ? (int) strlen(name) : 0, kind);
}

static void
test_every_kind(void)
{
	WireTable table = {0};
	WireTable inner = {0};

	round_trip(encode(&table, first));

	add(&table, "b", WIRE_INT8)->value.integer = INT8_MIN;
	add(&table, "B", WIRE_UINT8)->value.integer = UINT8_MAX;
	add(&table, "s", WIRE_INT16)->value.integer = INT16_MIN;
	add(&table, "u", WIRE_UINT16)->value.integer = UINT16_MAX;
	add(&table, "I", WIRE_INT32)->value.integer = INT32_MIN;
	add(&table, "i", WIRE_UINT32)->value.integer = UINT32_MAX;
	add(&table, "l", WIRE_INT64)->value.integer = INT64_MIN;
	add(&table, "L", WIRE_UINT64)->value.big_unsigned = UINT64_MAX;
	add(&table, "f", WIRE_FLOAT)->value.real = -0.1f;
	add(&table, "d", WIRE_DOUBLE)->value.number = 1e308 * 10;
	add(&table, "t", WIRE_BOOL)->value.boolean = true;
	add(&table, "t", WIRE_BOOL)->value.boolean = false; /* the same name again */
	add(&table, "D", WIRE_DECIMAL)->value.decimal.scale = 255;
	table.fields[table.count - 1].value.decimal.value = UINT32_MAX;
	add(&table, "T", WIRE_TIMESTAMP)->value.big_unsigned = INT64_MAX;
	add(&table, "", WIRE_VOID);
	wire_table_add_string(&table, "S", "text");
	wire_table_add_string(&table, "empty", "");
	add(&table, "x", WIRE_BYTES)->value.string.data = "a\0\xff";
	table.fields[table.count - 1].value.string.len = 3;
	add(&table, "none", WIRE_ARRAY);
	add(&table, "nothing", WIRE_TABLE);
	wire_table_add_string(&inner, "k", "v");
	add(&inner, "V", WIRE_VOID);
	for (int kind = 0; kind < 2; kind++)
		add(&table, "list", kind == 0 ? WIRE_TABLE : WIRE_ARRAY)->value =
		    (typeof(inner.fields->value)){.list = {inner.fields, inner.count}};
	round_trip(encode(&table, first));
}

static void
test_bytes_are_kept(void)
{
	static char name[255];
	WireTable table = {0};

	memset(name, 0, sizeof(name));
	name[254] = (char) 0xff;
	wire_table_add(&table, name, 255, WIRE_VOID);
	wire_table_add(&table, name, 1, WIRE_VOID);
	round_trip(encode(&table, first));
}

/* So many lists in each other below the first table. */
static bool
can_be_read(WireKind kind, int levels)
{
	WireTable top = {0};
	WireField *level = add(&top, "deep", kind);
	amqp_table_t native;
	WireTable result = {.count = 1};
	Size memory;
	bool readable;

	for (int i = 1; i < levels; i++)
	{
		WireTable next = {0};

		level->value.list.items = add(&next, "", i % 2 != 0 ? kind : WIRE_TABLE);
		level->value.list.count = 1;
		level = level->value.list.items;
	}
	native = wire_headers_build(&top);
	readable = wire_headers_read(&native, &result);
	CHECK(readable || result.count == 0);
	CHECK(wire_headers_measure(&native, &memory) == readable);
	CHECK((wire_headers_problem(&top) == NULL) == readable);
	return readable;
}

static void
test_depth(void)
{
	CHECK(can_be_read(WIRE_TABLE, ACEMQ_MAX_HEADER_DEPTH) && can_be_read(WIRE_ARRAY, ACEMQ_MAX_HEADER_DEPTH));
	CHECK(!can_be_read(WIRE_TABLE, ACEMQ_MAX_HEADER_DEPTH + 1));
	CHECK(!can_be_read(WIRE_ARRAY, ACEMQ_MAX_HEADER_DEPTH + 1));
	CHECK(!can_be_read(WIRE_ARRAY, 20000));
}

/* ---- random ---- */

static void
fill(WireTable *table, int depth, bool named)
{
	static const char kinds[] = "bBsuIilLfdtSxTDVAF";
	static const char text[] = "some text that names and values are parts of";
	int count = rand() % 6;

	for (int i = 0; i < count; i++)
	{
		WireKind kind = (WireKind) kinds[rand() % (depth < 5 ? 18 : 16)];
		WireField *field = wire_table_add(table, named ? text : NULL, named ? rand() % 20 : 0, kind);
		WireTable inner = {0};

		if (kind == WIRE_TABLE || kind == WIRE_ARRAY)
		{
			fill(&inner, depth + 1, kind == WIRE_TABLE);
			field->value.list.items = inner.fields;
			field->value.list.count = inner.count;
		}
		else if (kind == WIRE_STRING || kind == WIRE_BYTES)
		{
			field->value.string.data = text;
			field->value.string.len = rand() % (int) sizeof(text);
		}
		else if (kind == WIRE_BOOL)
			field->value.boolean = rand() % 2;
		else if (kind == WIRE_DECIMAL)
			field->value.decimal.value = (uint32) rand();
		else if (kind != WIRE_FLOAT && kind != WIRE_DOUBLE)
			field->value.integer = rand() % 100 - (kind == WIRE_INT64 ? 50 : 0);
	}
}

/* Damage a table; if the library still takes it, what we read of it is what it reads. */
static void
read_damaged(Size len)
{
	amqp_pool_t pool;
	amqp_table_t native;
	WireTable table;

	for (int i = rand() % 4; i >= 0; i--)
		first[rand() % len] ^= (uint8_t) (1 << rand() % 8);
	init_amqp_pool(&pool, 4096);
	if (decode(len, &pool, &native) && wire_headers_read(&native, &table))
	{
		size_t offset = 0;

		CHECK(amqp_encode_table((amqp_bytes_t){FRAME, second}, &native, &offset) == AMQP_STATUS_OK);
		CHECK(encode(&table, first) == offset && memcmp(first, second, offset) == 0);
	}
	empty_amqp_pool(&pool);
}

static void
test_random(unsigned seed)
{
	srand(seed);
	for (int i = 0; i < 2000; i++)
	{
		WireTable table = {0};
		Size len;

		fill(&table, 0, true);
		len = encode(&table, first);
		round_trip(len);
		read_damaged(len);
	}
}

int
main(void)
{
	RUN(test_every_kind());
	RUN(test_bytes_are_kept());
	RUN(test_depth());
	for (unsigned seed = 1; seed <= 3; seed++)
		RUN(test_random(seed));
	return check_report();
}
