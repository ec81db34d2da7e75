/*
 * scheduler_message.h
 *		What a message that waits on the ladder says of itself, and what is
 *		published for it: one more hop, or the message for its target.
 *
 * docs/protocol.md, section 8.  Pure: knows neither connection nor database.
 * May depend on: src/amqp/broker.h (types only), src/ladder.h.
 */
#ifndef ACEMQ_SCHEDULER_MESSAGE_H
#define ACEMQ_SCHEDULER_MESSAGE_H

#include "amqp/broker.h"

#include "ladder.h"

typedef struct WaitingMessage
{
	const char *exchange; /* "": the default exchange */
	const char *routing_key;
	const char *content_type; /* of the delivered message */
	const char *message_id;   /* of both; NULL: it has none */
	int64 due_at_ms;          /* since 1970, never negative */
} WaitingMessage;

/*
 * NULL, or why it is malformed: a constant.  Texts are palloc'd in the current
 * context.
 */
extern const char *waiting_message_read(const BrokerDelivery *delivery, WaitingMessage *waiting);

/* May be far below zero.  `now_ms` is since 1970 too. */
extern int64 waiting_message_left_ms(const WaitingMessage *waiting, int64 now_ms);

/*
 * Fill in what is to be published, and `headers`, which it points to; memory
 * of the table is palloc'd in the current context, everything else stays where
 * it is.  Without an id the caller gives one.
 */
extern void waiting_message_hop(BrokerMessage *message, WireTable *headers, const BrokerDelivery *delivery,
                                const WaitingMessage *waiting, const LadderRung *rung);
extern void waiting_message_deliver(BrokerMessage *message, WireTable *headers, const BrokerDelivery *delivery,
                                    const WaitingMessage *waiting);

#endif /* ACEMQ_SCHEDULER_MESSAGE_H */
