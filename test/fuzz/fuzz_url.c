/*
 * fuzz_url.c
 *		acemq.url, as somebody may write it.
 */
#include "broker_url.h"

#include "input.h"

static void
check_endpoint(const BrokerEndpoint *endpoint)
{
	char *text = broker_endpoint_text(endpoint);

	MUST(endpoint->port > 0 && endpoint->port <= 65535);
	MUST(endpoint->host[0] != '\0' && endpoint->user[0] != '\0' && endpoint->vhost[0] != '\0');
	MUST(strncmp(text, endpoint->tls ? "amqps://" : "amqp://", endpoint->tls ? 8 : 7) == 0);
}

void
fuzz_one(Input *input)
{
	char *list = input_text(input, input->left);
	char *kept = pstrdup(list);
	BrokerEndpoint *endpoints = NULL;
	const char *problem = NULL;
	int count = broker_url_parse(list, &endpoints, &problem);
	bool has_password = broker_url_has_password(list);

	MUST(strcmp(list, kept) == 0);
	MUST(count >= 0 || problem != NULL);
	for (int i = 0; i < count; i++)
	{
		check_endpoint(&endpoints[i]);
		MUST(endpoints[i].password == NULL || has_password);
	}
}
