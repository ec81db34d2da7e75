/*
 * broker_url.c
 *		Parser for acemq.url.
 *
 * Strict where leniency would connect to something nobody asked for: no user
 * or no host is refused instead of guessed.  Lenient only with an unescaped
 * "@" in the password, which has one sensible reading (the last one ends it).
 * Runs in check hooks, so it neither raises errors nor leaks on refusal:
 * every allocation may fail quietly and all of them hang off the result.
 *
 * May depend on: acemq.h.
 */
#include "broker_url.h"

#include <ctype.h>
#include <strings.h>

#define AMQP_PORT  5672
#define AMQPS_PORT 5671

/* A piece of the text being parsed. */
typedef struct Span
{
	const char *start;
	const char *end;
} Span;

static const char *const out_of_memory = "out of memory";

static bool
span_is_empty(Span span)
{
	return span.start >= span.end;
}

static const char *
span_find(Span span, char wanted)
{
	return span_is_empty(span) ? NULL : memchr(span.start, wanted, span.end - span.start);
}

static const char *
span_find_last(Span span, char wanted)
{
	for (const char *p = span.end; p > span.start; p--)
	{
		if (p[-1] == wanted)
			return p - 1;
	}
	return NULL;
}

static Span
span_trim(Span span)
{
	while (!span_is_empty(span) && isspace((unsigned char) *span.start))
		span.start++;
	while (!span_is_empty(span) && isspace((unsigned char) span.end[-1]))
		span.end--;
	return span;
}

static int
hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Percent-decode into fresh memory; NULL with *problem set if that cannot be done. */
static char *
decode(Span span, const char **problem)
{
	char *result = palloc_extended(span.end - span.start + 1, MCXT_ALLOC_NO_OOM);
	char *out = result;

	if (result == NULL)
	{
		*problem = out_of_memory;
		return NULL;
	}
	for (const char *p = span.start; p < span.end; p++)
	{
		int high;
		int low;

		if (*p != '%')
		{
			*out++ = *p;
			continue;
		}
		high = span.end - p > 2 ? hex_digit(p[1]) : -1;
		low = high >= 0 ? hex_digit(p[2]) : -1;
		if (low < 0 || (high == 0 && low == 0))
		{
			*problem = low < 0 ? "a % is not followed by two hexadecimal digits" : "%00 is not allowed";
			pfree(result);
			return NULL;
		}
		*out++ = (char) (high * 16 + low);
		p += 2;
	}
	*out = '\0';
	return result;
}

/* Takes the scheme off the front of *url. */
static bool
take_scheme(Span *url, BrokerEndpoint *endpoint, const char **problem)
{
	static const char plain[] = "amqp://";
	static const char secure[] = "amqps://";
	size_t length = url->end - url->start;
	size_t taken = 0;

	if (length >= sizeof(secure) - 1 && strncasecmp(url->start, secure, sizeof(secure) - 1) == 0)
		taken = sizeof(secure) - 1;
	else if (length >= sizeof(plain) - 1 && strncasecmp(url->start, plain, sizeof(plain) - 1) == 0)
		taken = sizeof(plain) - 1;
	if (taken == 0)
	{
		*problem = "it does not begin with amqp:// or amqps://";
		return false;
	}
	endpoint->tls = (taken == sizeof(secure) - 1);
	url->start += taken;
	return true;
}

/* user[:password] */
static bool
parse_login(Span login, BrokerEndpoint *endpoint, const char **problem)
{
	const char *colon = span_find(login, ':');
	Span user = {login.start, colon != NULL ? colon : login.end};

	if (span_is_empty(user))
	{
		*problem = "it names no user";
		return false;
	}
	endpoint->user = decode(user, problem);
	if (endpoint->user == NULL)
		return false;

	/* "user:" means that the password comes from elsewhere: brokers accept no empty one. */
	if (colon != NULL && colon + 1 < login.end)
	{
		endpoint->password = decode((Span){colon + 1, login.end}, problem);
		return endpoint->password != NULL;
	}
	return true;
}

static bool
parse_port(Span text, BrokerEndpoint *endpoint, const char **problem)
{
	int port = 0;

	for (const char *p = text.start; p < text.end; p++)
	{
		if (*p < '0' || *p > '9' || port > 65535)
		{
			port = 0;
			break;
		}
		port = port * 10 + (*p - '0');
	}
	if (port < 1 || port > 65535)
	{
		*problem = "its port is not a number from 1 to 65535";
		return false;
	}
	endpoint->port = port;
	return true;
}

/* host[:port] or [address][:port] */
static bool
parse_address(Span address, BrokerEndpoint *endpoint, const char **problem)
{
	Span host = address;
	const char *after;

	if (!span_is_empty(address) && *address.start == '[')
	{
		const char *bracket = span_find(address, ']');

		if (bracket == NULL || (bracket + 1 < address.end && bracket[1] != ':'))
		{
			*problem = "its IPv6 address is not closed by a bracket";
			return false;
		}
		host = (Span){address.start + 1, bracket};
		after = bracket + 1;
	}
	else
	{
		const char *colon = span_find(address, ':');

		after = colon != NULL ? colon : address.end;
		host.end = after;
	}

	if (span_is_empty(host))
	{
		*problem = "it names no host";
		return false;
	}
	endpoint->host = decode(host, problem);
	if (endpoint->host == NULL)
		return false;

	endpoint->port = endpoint->tls ? AMQPS_PORT : AMQP_PORT;
	return after == address.end || parse_port((Span){after + 1, address.end}, endpoint, problem);
}

/* What follows the slash; nothing, or a slash by itself, means the virtual host "/". */
static bool
parse_vhost(Span path, BrokerEndpoint *endpoint, const char **problem)
{
	static const char root[] = "/";

	if (span_find(path, '/') != NULL)
	{
		*problem = "its path has more than one part (write a slash in a virtual host as %2F)";
		return false;
	}
	endpoint->vhost = decode(span_is_empty(path) ? (Span){root, &root[1]} : path, problem);
	if (endpoint->vhost == NULL)
		return false;
	if (strlen(endpoint->vhost) > ACEMQ_MAX_SHORTSTR)
	{
		*problem = "its virtual host is longer than 255 bytes";
		return false;
	}
	return true;
}

/* Blanks would be cut or kept by accident, control characters have no business in a log line. */
static bool
has_blank_or_control(Span url)
{
	for (const char *p = url.start; p < url.end; p++)
	{
		if ((unsigned char) *p <= ' ' || *p == 0x7f)
			return true;
	}
	return false;
}

static bool
parse_one(Span url, BrokerEndpoint *endpoint, const char **problem)
{
	Span authority;
	Span path;
	const char *at;

	if (span_is_empty(url))
	{
		*problem = "the list has an empty entry";
		return false;
	}
	if (has_blank_or_control(url))
	{
		*problem = "it contains a blank or a control character";
		return false;
	}
	if (!take_scheme(&url, endpoint, problem))
		return false;
	if (span_find(url, '?') != NULL || span_find(url, '#') != NULL)
	{
		*problem = "it has a query or a fragment (write a ? as %3F and a # as %23)";
		return false;
	}

	authority.start = url.start;
	authority.end = span_find(url, '/');
	if (authority.end == NULL)
		authority.end = url.end;
	path.start = authority.end < url.end ? authority.end + 1 : url.end;
	path.end = url.end;

	at = span_find_last(authority, '@');
	if (at == NULL)
	{
		*problem = "it names no user";
		return false;
	}
	return parse_login((Span){authority.start, at}, endpoint, problem) &&
	       parse_address((Span){at + 1, authority.end}, endpoint, problem) && parse_vhost(path, endpoint, problem);
}

static void
free_endpoints(BrokerEndpoint *endpoints, int count)
{
	for (int i = 0; i < count; i++)
	{
		char *parts[] = {endpoints[i].host, endpoints[i].user, endpoints[i].password, endpoints[i].vhost};

		for (int j = 0; j < (int) lengthof(parts); j++)
		{
			if (parts[j] != NULL)
				pfree(parts[j]);
		}
	}
	pfree(endpoints);
}

static int
count_entries(const char *list)
{
	int count = 1;

	for (const char *p = list; *p != '\0'; p++)
		count += (*p == ',');
	return count;
}

int
broker_url_parse(const char *list, BrokerEndpoint **endpoints, const char **problem)
{
	Span rest = {list, list + strlen(list)};
	int count = count_entries(list);

	*endpoints = NULL;
	*problem = NULL;
	if (span_is_empty(span_trim(rest)))
		return 0;

	*endpoints = palloc_extended(count * sizeof(BrokerEndpoint), MCXT_ALLOC_NO_OOM | MCXT_ALLOC_ZERO);
	if (*endpoints == NULL)
	{
		*problem = out_of_memory;
		return -1;
	}
	for (int i = 0; i < count; i++)
	{
		const char *comma = span_find(rest, ',');
		Span entry = {rest.start, comma != NULL ? comma : rest.end};

		if (!parse_one(span_trim(entry), &(*endpoints)[i], problem))
		{
			free_endpoints(*endpoints, count);
			*endpoints = NULL;
			return -1;
		}
		rest.start = comma != NULL ? comma + 1 : rest.end;
	}
	return count;
}

/*
 * For a list that cannot be parsed: is there anything of the form x:y@ in it?
 * Splitting it at commas or slashes would miss a password that contains one,
 * which may be the very reason why it cannot be parsed.
 */
static bool
looks_like_password(const char *list)
{
	const char *at = strrchr(list, '@');
	const char *p = list;

	while (at != NULL && (p = memchr(p, ':', at - p)) != NULL)
	{
		if (strncmp(p, "://", 3) == 0)
			p += 3;
		else if (++p < at)
			return true;
	}
	return false;
}

bool
broker_url_has_password(const char *list)
{
	BrokerEndpoint *endpoints;
	const char *problem;
	int count = broker_url_parse(list, &endpoints, &problem);
	bool found = false;

	if (count < 0)
		return looks_like_password(list);
	for (int i = 0; i < count; i++)
		found = found || endpoints[i].password != NULL;
	if (endpoints != NULL)
		free_endpoints(endpoints, count);
	return found;
}

/* Appends `text` with everything escaped that is not plain in a URL; returns the new end. */
static char *
append_escaped(char *out, const char *text, const char *also_plain)
{
	static const char digits[] = "0123456789ABCDEF";

	for (; *text != '\0'; text++)
	{
		unsigned char c = (unsigned char) *text;

		if (c < 0x80 && (isalnum(c) || strchr("-._~", c) != NULL || strchr(also_plain, c) != NULL))
			*out++ = (char) c;
		else
		{
			*out++ = '%';
			*out++ = digits[c >> 4];
			*out++ = digits[c & 15];
		}
	}
	*out = '\0';
	return out;
}

char *
broker_endpoint_text(const BrokerEndpoint *endpoint)
{
	bool is_v6 = strchr(endpoint->host, ':') != NULL;
	Size room = 3 * (strlen(endpoint->host) + strlen(endpoint->vhost)) + 32;
	char *text = palloc(room);
	char *out = text;

	out += snprintf(out, room, "%s://%s", endpoint->tls ? "amqps" : "amqp", is_v6 ? "[" : "");
	out = append_escaped(out, endpoint->host, ":");
	out += snprintf(out, room - (out - text), "%s:%d/", is_v6 ? "]" : "", endpoint->port);
	if (strcmp(endpoint->vhost, "/") != 0)
		append_escaped(out, endpoint->vhost, "");
	return text;
}
