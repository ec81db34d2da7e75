/*
 * link.h
 *		A connection of the worker to the broker: which endpoint, when to try
 *		again, which password; and the worker's one wrapper around src/amqp.
 *
 * The relay has one and the scheduler has one: a connection that the broker
 * has blocked because it publishes must not keep the other from what it does.
 *
 * Every call here that may touch the network first makes sure that no
 * transaction is open: in production too, it is one comparison.
 *
 * Broker column: knows no row.
 * May depend on: src/amqp/broker.h, src/guc.h, src/shmem.h.
 */
#ifndef ACEMQ_LINK_H
#define ACEMQ_LINK_H

#include "amqp/broker.h"

#include "shmem.h"

/* Once in a process, after its signal handlers are installed. */
extern void link_process_init(void);
/* From the SIGTERM handler: gets a call that waits for the broker out.  Async-signal-safe. */
extern void link_kick(void);

typedef struct Link Link;

/* Whose connection it is: its name at the broker, and where its troubles are shown. */
typedef enum LinkRole
{
	LINK_RELAY,    /* broker, last_error, reconnects of acemq.status */
	LINK_SCHEDULER /* scheduler_problem */
} LinkRole;

extern Link *link_create(MemoryContext parent, AcemqSlot *slot, LinkRole role);

/* Is there anything to connect to? */
extern bool link_has_endpoint(Link *link);

/* Connect if it is time to.  True when connected, also if it was before. */
extern bool link_ensure(Link *link, TimestampTz now);
/* The connection, NULL when there is none. */
extern BrokerConn *link_conn(Link *link);
/* When the next attempt to connect is due; 0: connected, or nothing to connect to. */
extern TimestampTz link_next_try_at(Link *link);
/* Give up the connection: it was lost, or we do not want it any more.  `reason` is logged unless NULL. */
extern void link_drop(Link *link, const char *reason, bool politely);
/* After a reload: would a new connection be made differently?  Then drop the old one before rereading. */
extern bool link_settings_changed(Link *link);
extern void link_reread_settings(Link *link);
/* Somebody waits for us: try to connect now, whatever the last try said, but not more often than about once a second. */
extern void link_try_now(Link *link);

/* An ERROR if a transaction is open; `what` says what it would have been open for. */
extern void link_require_no_transaction(const char *what);

extern void link_pump(Link *link);
extern bool link_open_channel(Link *link, int channel);
extern BrokerPublish link_publish(Link *link, int channel, const BrokerMessage *message, uint64 token,
                                  BrokerError *error);

/* ---- link_consume.c: topology and consuming; broker.h says what they do ---- */

extern BrokerRequest link_declare_exchange(Link *link, int channel, const char *name, const char *type,
                                           BrokerDenial *denial);
extern BrokerRequest link_declare_queue(Link *link, int channel, const char *name, const WireTable *arguments,
                                        BrokerDenial *denial);
extern BrokerRequest link_bind_queue(Link *link, int channel, const char *queue, const char *exchange,
                                     const char *routing_key, BrokerDenial *denial);
extern BrokerRequest link_inspect_queue(Link *link, int channel, const char *name, uint32 *consumers, uint32 *messages,
                                        BrokerDenial *denial);
extern BrokerRequest link_consume(Link *link, int channel, const BrokerConsumer *consumer, BrokerDenial *denial);
extern bool link_ack(Link *link, int channel, uint64 tag);
extern bool link_reject(Link *link, int channel, uint64 tag, bool requeue);

#endif /* ACEMQ_LINK_H */
