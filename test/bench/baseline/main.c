/*
 * main.c
 *		baseline PROGRAM [name=value ...]: one measurement, printed as a line of
 *		name=value pairs.  test/bench runs it; see there for what is compared.
 *
 *		publish    rate of a plain publisher with confirms
 *		watch      rate of the relay, resumed by this program
 *		publish_latency, outbox_latency
 *		           from publish or commit to delivery
 *		schedule   from the due time to the delivery
 *
 * May depend on: bench.h.
 */
#include "bench.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

Options options = {
    .vhost = "/",
    .user = "guest",
    .database = "",
    .exchange = "orders",
    .routing_key = "order.placed",
    .queue = "",
    .origin = "",
    .count = 1000,
    .window = 1,
    .body = 300,
    .burst = 1,
    .gap_us = 5000,
    .timeout_s = 600,
};

static const struct
{
	const char *name;
	const char **text;
	int *number;
} names[] = {
    {"port", NULL, &options.port},         {"vhost", &options.vhost, NULL},
    {"user", &options.user, NULL},         {"database", &options.database, NULL},
    {"exchange", &options.exchange, NULL}, {"routing_key", &options.routing_key, NULL},
    {"queue", &options.queue, NULL},       {"origin", &options.origin, NULL},
    {"count", NULL, &options.count},       {"window", NULL, &options.window},
    {"body", NULL, &options.body},         {"burst", NULL, &options.burst},
    {"gap_us", NULL, &options.gap_us},     {"timeout_s", NULL, &options.timeout_s},
};

static const struct
{
	const char *name;
	void (*run)(void);
} programs[] = {
    {"publish", run_publish},
    {"watch", run_watch},
    {"publish_latency", run_publish_latency},
    {"outbox_latency", run_outbox_latency},
    {"schedule", run_schedule},
};

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

void
die(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fprintf(stderr, "baseline: ");
	vfprintf(stderr, format, arguments);
	fprintf(stderr, "\n");
	va_end(arguments);
	exit(1);
}

static double
clock_seconds(clockid_t clock)
{
	struct timespec at;

	clock_gettime(clock, &at);
	return at.tv_sec + at.tv_nsec / 1e9;
}

double
now(void)
{
	return clock_seconds(CLOCK_MONOTONIC);
}

double
wall_clock(void)
{
	return clock_seconds(CLOCK_REALTIME);
}

void
sleep_until(double when)
{
	struct timespec at = {.tv_sec = (time_t) when, .tv_nsec = (long) ((when - (time_t) when) * 1e9)};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0)
		;
}

static void
read_option(const char *argument)
{
	const char *value = strchr(argument, '=');

	for (size_t i = 0; value != NULL && i < LENGTH(names); i++)
	{
		size_t length = strlen(names[i].name);

		if ((size_t) (value - argument) != length || strncmp(argument, names[i].name, length) != 0)
			continue;
		if (names[i].text != NULL)
			*names[i].text = value + 1;
		else
			*names[i].number = atoi(value + 1);
		return;
	}
	die("unknown option %s", argument);
}

int
main(int argc, char **argv)
{
	options.password = getenv("BENCH_PASSWORD");
	for (int i = 2; i < argc; i++)
		read_option(argv[i]);
	for (size_t i = 0; argc > 1 && i < LENGTH(programs); i++)
	{
		if (strcmp(argv[1], programs[i].name) != 0)
			continue;
		programs[i].run();
		return 0;
	}
	die("the first argument names a program; see main.c");
}
