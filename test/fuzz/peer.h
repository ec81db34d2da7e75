/*
 * peer.h
 *		A connection whose other end is the fuzzer: a socket pair in place of the
 *		dialling, and frames to put into it.
 */
#ifndef ACEMQ_FUZZ_PEER_H
#define ACEMQ_FUZZ_PEER_H

#include "amqp/conn_internal.h"

#include "input.h"

/* What the next connection finds when it reads for the first time, and then no more; NULL: nothing, and more may come. */
extern const char *peer_greeting;
extern Size peer_greeting_len;

/* A connection of the current input; broker_login() decides whether it comes about. */
extern BrokerConn *peer_connect(BrokerError *error);

/* Say something; also throws away what we were told.  The end: nothing more will come. */
extern void peer_say(const void *data, Size len);
extern void peer_end(void);

/* ---- frames ---- */

extern void peer_frame(int type, int channel, const void *payload, Size len);
extern void peer_method(int channel, amqp_method_number_t id, void *method);
extern void peer_header(int channel, uint64 body_size, const amqp_basic_properties_t *properties);

#endif /* ACEMQ_FUZZ_PEER_H */
