/*
 * ladder_message.c
 *		What a message carries while it waits on the ladder.
 *
 * May depend on: ladder.h, wire_fields.h.
 */
#include "ladder_message.h"

#include "utils/timestamp.h"

/* As everybody on the ladder reckons: in whole milliseconds since 1970. */
static int64
epoch_ms(TimestampTz time)
{
	return (time - SetEpochTimestamp()) / 1000;
}

void
ladder_headers_add(WireTable *table, const LadderTarget *target)
{
	wire_table_add_string(table, LADDER_HEADER_EXCHANGE, target->exchange);
	wire_table_add_string(table, LADDER_HEADER_ROUTING_KEY, target->routing_key);
	wire_table_add_int(table, LADDER_HEADER_DUE_AT, WIRE_INT64, epoch_ms(target->due_at));
	wire_table_add_string(table, LADDER_HEADER_CONTENT_TYPE, target->content_type);
}

int64
ladder_left_ms(TimestampTz due_at, TimestampTz now)
{
	return epoch_ms(due_at) - epoch_ms(now);
}
