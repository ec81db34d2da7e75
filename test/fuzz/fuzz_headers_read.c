/*
 * fuzz_headers_read.c
 *		Headers as they come from the wire: what is read goes out again, and
 *		reads the same.
 */
#include "table.h"

static void
go_round(const WireTable *table)
{
	amqp_pool_t pool;
	amqp_table_t native;
	WireTable again;
	Size len;
	Size len_again;
	char *encoded = table_encode(table, &len);

	init_amqp_pool(&pool, 4096);
	MUST(table_decode(encoded + 4, len - 4, &pool, &native));
	MUST(wire_headers_read(&native, &again));
	empty_amqp_pool(&pool);
	MUST(again.count == table->count);
	MUST(memcmp(table_encode(&again, &len_again), encoded, len) == 0 && len_again == len);
}

void
fuzz_one(Input *input)
{
	amqp_pool_t pool;
	amqp_table_t native;
	WireTable table = {0};
	bool is_read = false;
	Size memory = 0;
	Size len;
	char *bytes = input_bytes(input, input->left, &len);

	init_amqp_pool(&pool, 4096);
	if (table_decode(bytes, len, &pool, &native))
	{
		is_read = wire_headers_read(&native, &table);
		MUST(wire_headers_measure(&native, &memory) == is_read);
	}
	empty_amqp_pool(&pool);
	if (is_read)
	{
		MUST(memory > 0);
		if (wire_headers_problem(&table) == NULL)
			go_round(&table);
	}
}
