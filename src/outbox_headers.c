/*
 * outbox_headers.c
 *		The headers of a message that is being added.
 *
 * May depend on: outbox_args.h, envelope.h, header_json.h, ladder_message.h, guc.h, utf8.h.
 */
#include "outbox_headers.h"

#include "compat.h"
#include "envelope.h"
#include "guc.h"
#include "header_json.h"
#include "ladder_message.h"
#include "utf8.h"

#include "utils/builtins.h"

/* More than the names, kinds and numbers of all reserved headers (and the ladder's) take, without their texts. */
#define ENVELOPE_FIXED_SIZE 512

/* No character grows more than this on its way from a server encoding to UTF-8. */
#define MAX_UTF8_GROWTH 3

static Size
text_size(const text *value)
{
	return value == NULL ? 0 : VARSIZE_ANY_EXHDR(value);
}

/* At least what the reserved headers take: id and type may be written twice. */
static Size
envelope_at_most(const OutboxMessage *message)
{
	Size texts = 2 * text_size(message->message_id) + text_size(message->correlation_id) +
	             text_size(message->routing_key) + text_size(message->type) + text_size(message->causation_id) +
	             text_size(message->origin) + text_size(message->reply_to);

	if (message->on_ladder)
		texts += text_size(message->exchange) + text_size(message->routing_key) + text_size(message->content_type);
	return ENVELOPE_FIXED_SIZE + MAX_UTF8_GROWTH * texts;
}

static const char *
utf8_or_null(const text *value, const char *argument)
{
	return value == NULL ? NULL : utf8_cstring(text_to_cstring(value), argument);
}

/* To the byte, as the relay will build it. */
static Size
exact_size(const OutboxMessage *message)
{
	Envelope envelope = {
	    .message_id = utf8_or_null(message->message_id, "message_id"),
	    .routing_key = utf8_or_null(message->routing_key, "routing_key"),
	    .type = utf8_or_null(message->type, "type"),
	    .version = message->version,
	    .correlation_id = utf8_or_null(message->correlation_id, "correlation_id"),
	    .causation_id = utf8_or_null(message->causation_id, "causation_id"),
	    .origin = utf8_or_null(message->origin, "acemq.origin"),
	    .reply_to = utf8_or_null(message->reply_to, "reply_to"),
	    .first_seen = message->created_at,
	    .headers = message->headers,
	};
	WireTable table = {0};

	envelope_headers(&envelope, &table);
	if (message->on_ladder)
	{
		LadderTarget target = {
		    .exchange = utf8_or_null(message->exchange, "exchange"),
		    .routing_key = envelope.routing_key,
		    .content_type = utf8_or_null(message->content_type, "content_type"),
		    .due_at = message->ladder_due_at,
		};

		ladder_headers_add(&table, &target);
	}
	return wire_table_size(&table);
}

/* The broker routes by these, at every hop of the ladder. */
static bool
is_copy_header(const WireField *field)
{
	return (field->name_len == 2 && memcmp(field->name, "CC", 2) == 0) ||
	       (field->name_len == 3 && memcmp(field->name, "BCC", 3) == 0);
}

/* Who moves the message on takes the first header of a name that it finds. */
static void
refuse_ladder_headers(const WireTable *table)
{
	int prefix_len = strlen(LADDER_HEADER_PREFIX);

	for (int i = 0; i < table->count; i++)
	{
		const WireField *field = &table->fields[i];

		if (field->name_len >= prefix_len && memcmp(field->name, LADDER_HEADER_PREFIX, prefix_len) == 0)
			ereport(ERROR, (errcode(ERRCODE_RESERVED_NAME),
			                errmsg("argument \"headers\" has a header that starts with \"%s\"", LADDER_HEADER_PREFIX),
			                errdetail("On the ladder such headers say where a message goes, and when."),
			                errhint("Use another name, or let the message wait in the outbox (without via).")));
		if (is_copy_header(field))
			ereport(ERROR, (errcode(ERRCODE_RESERVED_NAME),
			                errmsg("argument \"headers\" has a header \"%.*s\", which the ladder cannot carry",
			                       field->name_len, field->name),
			                errdetail("The broker would make further copies at each hop."),
			                errhint("Let the message wait in the outbox (without via).")));
	}
}

void
outbox_headers_check(const OutboxMessage *message)
{
	Size limit = (Size) acemq_max_headers_size * 1024;
	Size size = envelope_at_most(message);

	if (message->headers != NULL)
	{
		WireTable table = {0};

		header_json_to_table(message->headers, &table);
		if (message->on_ladder)
			refuse_ladder_headers(&table);
		size += wire_table_size(&table);
	}

	/* The estimate settles nearly every call; only near the limit the envelope is built. */
	if (size <= limit)
		return;
	size = exact_size(message);
	if (size > limit)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
		                errmsg("argument \"headers\" makes headers of %zu bytes, which is over the limit", size),
		                errdetail("acemq.max_headers_size is %d kB, and the message envelope counts too.",
		                          acemq_max_headers_size),
		                errhint("Move large values into the payload, or raise acemq.max_headers_size.")));
}
