/*
 * partition.c
 *		acemq.partition() and acemq.partitioned_routing_key(): the same
 *		partition for the same key, in every language.
 *
 * docs/protocol.md, section 7.
 *
 * May depend on: utf8.h, compat.h.
 */
#include "acemq.h"

#include "compat.h"
#include "utf8.h"

#include "fmgr.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(acemq_partition);
PG_FUNCTION_INFO_V1(acemq_partitioned_routing_key);

#define FNV_OFFSET 2166136261U
#define FNV_PRIME  16777619U

/* FNV-1a with 32 bits: first xor, then multiply, byte by byte. */
static uint32
fnv1a(const char *bytes, int len)
{
	uint32 hash = FNV_OFFSET;

	for (int i = 0; i < len; i++)
		hash = (hash ^ (uint8) bytes[i]) * FNV_PRIME;
	return hash;
}

/* The hash stays unsigned: a signed remainder would be another one for half of all keys. */
static int32
partition_of(const text *key, int32 partitions)
{
	const char *utf8;
	int len;

	if (partitions < 1)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
		                errmsg("argument \"partitions\" must be at least 1, not %d", partitions),
		                errhint("Use a power of two: for other numbers not all AceMQ libraries find the same "
		                        "partition.")));
	utf8 = utf8_from_server(VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key), &len, "key");
	return (int32) (fnv1a(utf8, len) % (uint32) partitions);
}

Datum
acemq_partition(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(partition_of(PG_GETARG_TEXT_PP(0), PG_GETARG_INT32(1)));
}

Datum
acemq_partitioned_routing_key(PG_FUNCTION_ARGS)
{
	const text *base = PG_GETARG_TEXT_PP(0);
	int32 partition = partition_of(PG_GETARG_TEXT_PP(1), PG_GETARG_INT32(2));
	StringInfoData routing_key;

	initStringInfo(&routing_key);
	appendBinaryStringInfo(&routing_key, VARDATA_ANY(base), VARSIZE_ANY_EXHDR(base));
	appendStringInfo(&routing_key, ".%d", partition);
	PG_RETURN_TEXT_P(cstring_to_text_with_len(routing_key.data, routing_key.len));
}
