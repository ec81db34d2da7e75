/*
 * envelope.c
 *		The AceMQ envelope: reserved headers, in the order in which the family
 *		writes them (docs/protocol.md, section 1.1).
 *
 * May depend on: wire_fields.h, header_json.h.
 */
#include "envelope.h"

#include "header_json.h"

#include "utils/timestamp.h"

#define REPLY_TO_HEADER "acemq-reply-to"

/* A copy that leaves the outbox is always the first delivery attempt of its message. */
#define FIRST_ATTEMPT 1

static int64
epoch_ms(TimestampTz time)
{
	int64 epoch_shift_s = (int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY;
	int64 ms = time / 1000;

	/* Towards the past for times before 2000 too, where C's division rounds the other way. */
	if (time % 1000 < 0)
		ms--;
	return ms + epoch_shift_s * 1000;
}

static const char *
type_or_default(const Envelope *envelope)
{
	if (envelope->type != NULL && envelope->type[0] != '\0')
		return envelope->type;
	if (envelope->routing_key != NULL && envelope->routing_key[0] != '\0')
		return envelope->routing_key;
	return ACEMQ_DEFAULT_TYPE;
}

/* Absent means no header at all: never an empty one. */
static void
add_if_given(WireTable *table, const char *name, const char *value)
{
	if (value != NULL && value[0] != '\0')
		wire_table_add_string(table, name, value);
}

static void
add_reserved(const Envelope *envelope, WireTable *table)
{
	bool correlated = envelope->correlation_id != NULL && envelope->correlation_id[0] != '\0';

	wire_table_add_string(table, "x-acemq-id", envelope->message_id);
	wire_table_add_string(table, "x-acemq-type", type_or_default(envelope));
	wire_table_add_int(table, "x-acemq-version", WIRE_INT32, envelope->version);
	wire_table_add_string(table, "x-acemq-correlation", correlated ? envelope->correlation_id : envelope->message_id);
	wire_table_add_int(table, "x-acemq-attempt", WIRE_INT32, FIRST_ATTEMPT);
	wire_table_add_int(table, "x-acemq-first-seen", WIRE_INT64, epoch_ms(envelope->first_seen));
	add_if_given(table, "x-acemq-causation", envelope->causation_id);
	add_if_given(table, "x-acemq-origin", envelope->origin);
	add_if_given(table, REPLY_TO_HEADER, envelope->reply_to);
}

/* A header of the application never doubles one of ours: drop `name` from position `from` on. */
static void
drop_header(WireTable *table, int from, const char *name)
{
	int name_len = strlen(name);
	int i;

	for (i = from; i < table->count; i++)
	{
		if (table->fields[i].name_len != name_len || memcmp(table->fields[i].name, name, name_len) != 0)
			continue;
		memmove(&table->fields[i], &table->fields[i + 1], (table->count - i - 1) * sizeof(WireField));
		table->count--;
		return;
	}
}

void
envelope_headers(const Envelope *envelope, WireTable *table)
{
	int ours;

	add_reserved(envelope, table);
	ours = table->count;
	if (envelope->headers == NULL)
		return;

	header_json_to_table(envelope->headers, table);
	if (envelope->reply_to != NULL && envelope->reply_to[0] != '\0')
		drop_header(table, ours, REPLY_TO_HEADER);
}
