/*
 * test_broker_url.c
 *		acemq.url: what is accepted, what is refused, what is shown.
 */
#include "broker_url.h"

#include "check.h"

static void
free_all(BrokerEndpoint *endpoints, int count)
{
	for (int i = 0; i < count; i++)
	{
		pfree(endpoints[i].host);
		pfree(endpoints[i].user);
		pfree(endpoints[i].password);
		pfree(endpoints[i].vhost);
	}
	pfree(endpoints);
}

static int
same(const char *a, const char *b)
{
	return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

typedef struct Good
{
	const char *url;
	bool tls;
	const char *host;
	int port;
	const char *user;
	const char *password;
	const char *vhost;
	const char *shown;
} Good;

static const Good good[] = {
    {"amqp://u:p@h", false, "h", 5672, "u", "p", "/", "amqp://h:5672/"},
    {"amqps://u:p@h", true, "h", 5671, "u", "p", "/", "amqps://h:5671/"},
    {"AMQPS://u:p@h", true, "h", 5671, "u", "p", "/", "amqps://h:5671/"},
    {"amqp://u@h/", false, "h", 5672, "u", NULL, "/", "amqp://h:5672/"},
    {"amqp://u:@h", false, "h", 5672, "u", NULL, "/", "amqp://h:5672/"},
    {"amqp://u:p@h:1234/shop", false, "h", 1234, "u", "p", "shop", "amqp://h:1234/shop"},
    {"amqp://u:p@h:65535/%2F", false, "h", 65535, "u", "p", "/", "amqp://h:65535/"},
    {"amqp://u:p@h/%2Fa%2fb", false, "h", 5672, "u", "p", "/a/b", "amqp://h:5672/%2Fa%2Fb"},
    {"amqp://u:p@[::1]", false, "::1", 5672, "u", "p", "/", "amqp://[::1]:5672/"},
    {"amqps://u:p@[fe80::1%25eth0]:99/v", true, "fe80::1%eth0", 99, "u", "p", "v", "amqps://[fe80::1%25eth0]:99/v"},
    {"amqp://us%40er:p%3A%2C%2f%25@h", false, "h", 5672, "us@er", "p:,/%", "/", "amqp://h:5672/"},
    {"amqp://u:p@ss:w@h", false, "h", 5672, "u", "p@ss:w", "/", "amqp://h:5672/"},
    {"amqp://u:p\xc3\xa4\x73s@h", false, "h", 5672, "u", "p\xc3\xa4\x73s", "/", "amqp://h:5672/"},
    {"amqp://u:p%C3%A4@h/%c3%a4", false, "h", 5672, "u", "p\xc3\xa4", "\xc3\xa4", "amqp://h:5672/%C3%A4"},
    {"  amqp://u:p@h  ", false, "h", 5672, "u", "p", "/", "amqp://h:5672/"},
    {"amqp://u:p@h/%0A", false, "h", 5672, "u", "p", "\n", "amqp://h:5672/%0A"},
};

static void
test_good(void)
{
	for (int i = 0; i < (int) lengthof(good); i++)
	{
		const Good *want = &good[i];
		BrokerEndpoint *got;
		const char *problem;
		int count = broker_url_parse(want->url, &got, &problem);
		char *shown;

		CHECK_CASE(count == 1 && problem == NULL, want->url);
		if (count != 1)
			continue;
		CHECK_CASE(got->tls == want->tls && got->port == want->port, want->url);
		CHECK_CASE(same(got->host, want->host), want->url);
		CHECK_CASE(same(got->user, want->user), want->url);
		CHECK_CASE(same(got->password, want->password), want->url);
		CHECK_CASE(same(got->vhost, want->vhost), want->url);
		CHECK_CASE(broker_url_has_password(want->url) == (want->password != NULL), want->url);
		shown = broker_endpoint_text(got);
		CHECK_CASE(same(shown, want->shown), shown);
		pfree(shown);
		free_all(got, count);
	}
}

typedef struct Bad
{
	const char *url;
	bool password;
} Bad;

static const Bad bad[] = {
    {"http://u:secret@h", true},
    {"amqp:/u:secret@h", true},
    {"amqp//u:secret@h", true},
    {"u:secret@h", true},
    {"amqp://h", false},
    {"amqp://h:5672", false},
    {"amqp://", false},
    {"amqp", false},
    {"amqp://@h", false},
    {"amqp://:secret@h", true},
    {"amqp://u:secret@", true},
    {"amqp://u:secret@:5672", true},
    {"amqp://u:secret@h:", true},
    {"amqp://u:secret@h:0", true},
    {"amqp://u:secret@h:65536", true},
    {"amqp://u:secret@h:99999999999999999999", true},
    {"amqp://u:secret@h:-1", true},
    {"amqp://u:secret@h:5x", true},
    {"amqp://u:secret@h:1:2", true},
    {"amqp://u:secret@[::1", true},
    {"amqp://u:secret@[::1]x", true},
    {"amqp://u:secret@[]:1", true},
    {"amqp://u:secret@h/a/b", true},
    {"amqp://u:secret@h/?heartbeat=1", true},
    {"amqp://u:secret?@h", true},
    {"amqp://u:secret@h/v#x", true},
    {"amqp://u:se%cret@h", true},
    {"amqp://u:secret%@h", true},
    {"amqp://u:secret%4@h", true},
    {"amqp://u:secret%00@h", true},
    {"amqp://u:sec,ret@h", true},
    {"amqp://u:sec/ret@h", true},
    {"amqp://u:sec ret@h", true},
    {"amqp://u:secret@h\x01", true},
    {"amqp://u@h,", false},
    {",amqp://u@h", false},
    {"amqp://u@h,,amqp://u@h", false},
    {"amqp://u@h , http://u@h", false},
    {",", false},
};

static void
test_bad(void)
{
	for (int i = 0; i < (int) lengthof(bad); i++)
	{
		BrokerEndpoint *got;
		const char *problem;
		int count = broker_url_parse(bad[i].url, &got, &problem);

		CHECK_CASE(count == -1 && got == NULL, bad[i].url);
		CHECK_CASE(problem != NULL && strstr(problem, "secret") == NULL, bad[i].url);
		CHECK_CASE(broker_url_has_password(bad[i].url) == bad[i].password, bad[i].url);
	}
}

static void
test_lists(void)
{
	BrokerEndpoint *got;
	const char *problem;
	int count;

	CHECK(broker_url_parse("", &got, &problem) == 0 && got == NULL);
	CHECK(broker_url_parse(" \t\n", &got, &problem) == 0 && got == NULL);
	CHECK(!broker_url_has_password(" "));

	count = broker_url_parse("amqp://a@one , amqps://b:x@two:1/v,\namqp://c@[::2]", &got, &problem);
	CHECK(count == 3);
	CHECK(same(got[0].host, "one") && same(got[1].vhost, "v") && same(got[2].host, "::2"));
	free_all(got, count);
	CHECK(broker_url_has_password("amqp://a@one,amqps://b:x@two"));
	CHECK(!broker_url_has_password("amqp://a@one:1,amqps://b@two:2"));
}

static void
test_long_vhost(void)
{
	char url[300] = "amqp://u@h/";
	BrokerEndpoint *got;
	const char *problem;
	int prefix = (int) strlen(url);

	memset(url + prefix, 'v', 256);
	CHECK(broker_url_parse(url, &got, &problem) == -1);
	url[prefix + 255] = '\0';
	CHECK(broker_url_parse(url, &got, &problem) == 1);
	free_all(got, 1);
}

/* Memory that runs out at any point is a refusal; the leak checker sees the rest. */
static void
test_out_of_memory(void)
{
	const char *url = "amqp://u:p@h/v,amqps://u:p@h/v";
	BrokerEndpoint *got;
	const char *problem;

	for (int i = 0; i < 9; i++)
	{
		standin_fail_after(i);
		CHECK(broker_url_parse(url, &got, &problem) == -1 && same(problem, "out of memory"));
	}
	standin_fail_after(-1);
}

/* No input of any kind may read or write out of bounds. */
static void
test_noise(void)
{
	static const char alphabet[] = "amqps://u:p@h%2F,[]:5?# /\xc3\x01";
	char text[40];

	srand(7);
	for (int round = 0; round < 200000; round++)
	{
		BrokerEndpoint *got;
		const char *problem;
		int len = rand() % (int) sizeof(text);
		int prefix = rand() % 2 ? 7 : 0;
		int count;

		memcpy(text, "amqp://", 7);
		for (int i = prefix; i < len; i++)
			text[i] = alphabet[rand() % (int) (sizeof(alphabet) - 1)];
		text[len < prefix ? prefix : len] = '\0';
		(void) broker_url_has_password(text);
		count = broker_url_parse(text, &got, &problem);
		for (int i = 0; i < count; i++)
			pfree(broker_endpoint_text(&got[i]));
		if (count > 0)
			free_all(got, count);
	}
	CHECK(true);
}

int
main(void)
{
	RUN(test_good());
	RUN(test_bad());
	RUN(test_lists());
	RUN(test_long_vhost());
	RUN(test_out_of_memory());
	RUN(test_noise());
	return check_report();
}
