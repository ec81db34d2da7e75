/*
 * broker_url.h
 *		acemq.url: a comma-separated list of amqp:// and amqps:// URLs.
 *
 * Parsed by us and not by librabbitmq, which silently fills in
 * guest@localhost, refuses UTF-8 in %-escapes and reads "/" as an empty vhost.
 * No message of this file ever repeats a password.
 *
 * May depend on: acemq.h.
 */
#ifndef ACEMQ_BROKER_URL_H
#define ACEMQ_BROKER_URL_H

#include "acemq.h"

typedef struct BrokerEndpoint
{
	bool tls;
	char *host; /* without the brackets of an IPv6 literal */
	int port;   /* 5672 or 5671 when not given */
	char *user;
	char *password; /* NULL: none in the URL */
	char *vhost;    /* "/" when the path is absent, empty or "/" */
} BrokerEndpoint;

/*
 * Parse one list.  Returns the number of endpoints (palloc'd array in
 * *endpoints), 0 for an empty or blank list, -1 with a reason in *problem (static text,
 * no part of the URL in it) for one that cannot be used: other scheme, no
 * user, no host, bad port, bad %-escape, query or fragment, %00.
 * Never raises an error: it runs in a GUC check hook too.
 */
extern int broker_url_parse(const char *list, BrokerEndpoint **endpoints, const char **problem);

/* True if some URL of the list carries a password (also of a list that is otherwise unusable). */
extern bool broker_url_has_password(const char *list);

/* "amqps://host:port/vhost": what status and log lines may show.  palloc'd. */
extern char *broker_endpoint_text(const BrokerEndpoint *endpoint);

#endif /* ACEMQ_BROKER_URL_H */
