/*
 * outbox_args.h
 *		The arguments that every publishing function takes, checked: what the
 *		broker or a receiver would refuse later is an error of the caller's
 *		transaction now.
 *
 * May depend on: payload.h.
 */
#ifndef ACEMQ_OUTBOX_ARGS_H
#define ACEMQ_OUTBOX_ARGS_H

#include "payload.h"

#include "datatype/timestamp.h"
#include "fmgr.h"
#include "utils/jsonb.h"

/* A message as the outbox stores it: text in the encoding of the database.  NULL: the column stays null. */
typedef struct OutboxMessage
{
	text *message_id; /* never NULL */
	bool caller_id;   /* given by the caller, not generated */
	text *exchange;
	text *routing_key;
	text *content_type;
	bytea *body; /* as it goes on the wire */
	Jsonb *headers;
	text *type; /* NULL also when it is the default */
	text *origin;
	text *correlation_id; /* NULL also when it is the message id */
	text *causation_id;
	text *reply_to;
	text *ordering_key;
	int32 version;
	bool persistent;
	int priority;     /* -1: none */
	int64 expiration; /* ms; -1: none */
	TimestampTz created_at;
	bool delayed; /* not_before was given */
	TimestampTz not_before;
	bool on_ladder; /* goes onto the ladder; ladder_due_at is given */
	TimestampTz ladder_due_at;
} OutboxMessage;

/*
 * Positions, counted from the argument `exchange`.  A function may have other
 * arguments before it, and may leave out not_before.
 */
typedef enum OutboxArg
{
	ARG_EXCHANGE,
	ARG_ROUTING_KEY,
	ARG_PAYLOAD,
	ARG_TYPE,
	ARG_HEADERS,
	ARG_MESSAGE_ID,
	ARG_CORRELATION_ID,
	ARG_CAUSATION_ID,
	ARG_VERSION,
	ARG_CONTENT_TYPE,
	ARG_PRIORITY,
	ARG_EXPIRATION,
	ARG_REPLY_TO,
	ARG_PERSISTENT,
	ARG_ORDERING_KEY,
	ARG_NOT_BEFORE
} OutboxArg;

/*
 * Read and check the arguments from position `first` on, fill in the defaults.
 * `nargs` is how many of them the function has (with not_before: 16).  Raises an
 * error that names the argument and says what to do.
 */
extern void outbox_args_read(FunctionCallInfo fcinfo, int first, int nargs, PayloadKind kind, OutboxMessage *message);

/* Refuse an infinite time and one more than 100 years from `now`. */
extern void outbox_args_check_time(TimestampTz time, TimestampTz now, const char *argument);

#endif /* ACEMQ_OUTBOX_ARGS_H */
