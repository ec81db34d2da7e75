/*
 * link_consume.c
 *		What a connection that consumes needs beside publishing: topology,
 *		the consumer, acknowledgements.  Each call under the same condition as
 *		those of link.c: no transaction is open.
 *
 * May depend on: link.h.
 */
#include "link.h"

BrokerRequest
link_declare_exchange(Link *link, int channel, const char *name, const char *type, BrokerDenial *denial)
{
	link_require_no_transaction("declaring an exchange");
	return broker_declare_exchange(link_conn(link), channel, name, type, denial);
}

BrokerRequest
link_declare_queue(Link *link, int channel, const char *name, const WireTable *arguments, BrokerDenial *denial)
{
	link_require_no_transaction("declaring a queue");
	return broker_declare_queue(link_conn(link), channel, name, arguments, denial);
}

BrokerRequest
link_bind_queue(Link *link, int channel, const char *queue, const char *exchange, const char *routing_key,
                BrokerDenial *denial)
{
	link_require_no_transaction("binding a queue");
	return broker_bind_queue(link_conn(link), channel, queue, exchange, routing_key, denial);
}

BrokerRequest
link_inspect_queue(Link *link, int channel, const char *name, uint32 *consumers, uint32 *messages, BrokerDenial *denial)
{
	link_require_no_transaction("looking at a queue");
	return broker_inspect_queue(link_conn(link), channel, name, consumers, messages, denial);
}

BrokerRequest
link_consume(Link *link, int channel, const BrokerConsumer *consumer, BrokerDenial *denial)
{
	link_require_no_transaction("consuming");
	return broker_consume(link_conn(link), channel, consumer, denial);
}

bool
link_ack(Link *link, int channel, uint64 tag)
{
	link_require_no_transaction("acknowledging");
	return broker_ack(link_conn(link), channel, tag);
}

bool
link_reject(Link *link, int channel, uint64 tag, bool requeue)
{
	link_require_no_transaction("rejecting");
	return broker_reject(link_conn(link), channel, tag, requeue);
}
