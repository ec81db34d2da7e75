/*
 * script.h
 *		The pump on a connection that is none: its frames come from a script, and
 *		what is sent is noted.
 *
 * What a frame points to is gone as soon as the pump gives it back.
 */
#ifndef ACEMQ_UNIT_SCRIPT_H
#define ACEMQ_UNIT_SCRIPT_H

#include "amqp/conn_internal.h"

/* The channel that consumes; BROKER_CHANNEL_MAIN is open too. */
#define CHANNEL BROKER_CHANNEL_CONSUME

#define SCRIPT_MAX 64
#define SENT_MAX   256

typedef struct Step
{
	amqp_frame_t frame;
	int status;    /* negative: the library fails to read it */
	void *payload; /* malloc'd: what the frame points to */
} Step;

extern Step script[SCRIPT_MAX];
extern int steps;
extern int next_step;

extern BrokerConn *conn;

/* Methods sent, and the delivery tag of the last one that settles something. */
extern int sent_methods[SENT_MAX];
extern int nsent;
extern uint64 sent_tag;

/* Every test begins with a new connection and frees it at its end. */
extern void begin_with(Size max_body, Size budget);
extern void end(void);

/* ---- frames to come; what is returned may be filled in ---- */

extern Step *push(int type, int channel, Size payload_len);
extern void *push_method(int channel, amqp_method_number_t id, Size size);
extern amqp_basic_deliver_t *deliver_on(int channel, uint64 tag);
extern amqp_basic_properties_t *header_on(int channel, uint64 body_size);
/* Bytes from `offset` on of the body that every message has. */
extern void body_on(int channel, Size offset, Size len);
extern void close_channel(int channel);

/* Is it the beginning of that body? */
extern bool body_is_right(const BrokerDelivery *delivery);

#endif /* ACEMQ_UNIT_SCRIPT_H */
