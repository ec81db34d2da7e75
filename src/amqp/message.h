/*
 * message.h
 *		A message in the terms of the protocol: its method, properties and
 *		frames.  Sends nothing and changes nothing.
 *
 * May depend on: broker.h, rabbit.h.
 */
#ifndef ACEMQ_AMQP_MESSAGE_H
#define ACEMQ_AMQP_MESSAGE_H

#include "broker.h"
#include "rabbit.h"

/* A message up to this size, with all its frames, can be encoded in one piece. */
#define SHORT_MESSAGE_MAX 65536

/* Upper bound of what stands around properties and body in the three frames of a short message. */
#define MESSAGE_METHOD_FRAME_MAX (RABBIT_FRAME_OVERHEAD + 4 + 2 + 2 * (1 + ACEMQ_MAX_SHORTSTR) + 1)
#define MESSAGE_OVERHEAD         (MESSAGE_METHOD_FRAME_MAX + 2 * RABBIT_FRAME_OVERHEAD + RABBIT_CONTENT_HEADER)

extern amqp_basic_publish_t message_method(const BrokerMessage *message);

/* Headers are palloc'd in the current context, everything else points into the message. */
extern amqp_basic_properties_t message_properties(const BrokerMessage *message);

/* Bytes of the content header behind its fixed part, as the library encodes it. */
extern Size message_properties_size(const BrokerMessage *message);

extern bool message_is_short(const BrokerMessage *message, Size properties_len, int frame_max);

/*
 * All frames of a short message, into SHORT_MESSAGE_MAX bytes of memory.  The
 * length, or -1 if the library refuses to encode it.
 */
extern int message_encode_short(uint8 *buffer, int channel, const BrokerMessage *message,
                                amqp_basic_properties_t *properties);

#endif /* ACEMQ_AMQP_MESSAGE_H */
