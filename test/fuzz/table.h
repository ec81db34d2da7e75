/*
 * table.h
 *		Bytes of a received field table, by the client library's decoder.
 */
#ifndef ACEMQ_FUZZ_TABLE_H
#define ACEMQ_FUZZ_TABLE_H

#include "amqp/wire_headers.h"

#include "input.h"

/*
 * The input's bytes with their length in front, as a frame has them.  False:
 * the library does not take them.  Pool and bytes belong to the caller.
 */
static inline bool
table_decode(const char *bytes, Size len, amqp_pool_t *pool, amqp_table_t *native)
{
	char *encoded = palloc(len + 4);
	size_t offset = 0;
	bool ok;

	for (int i = 0; i < 4; i++)
		encoded[i] = (char) (len >> (24 - 8 * i));
	memcpy(encoded + 4, bytes, len);
	ok = amqp_decode_table((amqp_bytes_t){len + 4, encoded}, pool, native, &offset) == AMQP_STATUS_OK;
	return ok && offset == len + 4;
}

/* Encoded by the library into just the room that we say it takes. */
static inline char *
table_encode(const WireTable *table, Size *len)
{
	amqp_table_t native = wire_headers_build(table);
	char *encoded;
	size_t offset = 0;

	*len = wire_table_size(table);
	encoded = palloc(*len);
	MUST(amqp_encode_table((amqp_bytes_t){*len, encoded}, &native, &offset) == AMQP_STATUS_OK);
	MUST(offset == *len);
	return encoded;
}

#endif /* ACEMQ_FUZZ_TABLE_H */
