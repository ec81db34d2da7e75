/*
 * latency.c
 *		From the publish, or from the commit, to the delivery: one process, one
 *		clock.  And from a due time to the delivery.
 *
 * Messages go out in bursts at fixed times: a burst of the publisher is so many
 * publishes in a row, one of the outbox is a transaction with so many rows.
 * The publisher's time counts from before the first publish of the burst; the
 * outbox's from the moment COMMIT has returned ("from_commit"), and also from
 * before COMMIT was sent ("from_call"), which includes the flush of the WAL.
 *
 * May depend on: bench.h.
 */
#include "bench.h"

#include <stdio.h>
#include <string.h>

#define DIGITS 10
/* The first ones find cold caches, on both sides. */
#define WARM_UP_SHARE 20

typedef struct Times
{
	double called;
	double began; /* what the latency counts from */
	double arrived;
} Times;

static Times *times;

/* A JSON string: the number first, so that the delivery can be told. */
static void
put_number(char *body, int number)
{
	char digits[DIGITS + 2];

	snprintf(digits, sizeof(digits), "%0*d", DIGITS, number);
	memcpy(body + 1, digits, DIGITS);
}

static void
note_delivery(const char *body, size_t length, double when)
{
	int number = length > DIGITS ? atoi(body + 1) : -1;

	if (number < 0 || number >= options.count)
		die("a delivery that is none of ours");
	if (times[number].arrived == 0)
		times[number].arrived = when;
}

static void
await_deliveries(void)
{
	double deadline = now() + options.timeout_s;

	while (consumer_count() < (uint64_t) options.count)
	{
		if (now() > deadline)
			die("%llu of %d messages were delivered", (unsigned long long) consumer_count(), options.count);
		sleep_until(now() + 0.01);
	}
}

static int
compare(const void *a, const void *b)
{
	double x = *(const double *) a;
	double y = *(const double *) b;

	return x < y ? -1 : x > y;
}

/* In milliseconds. */
static void
print_percentiles(const char *name, double *values, int count)
{
	static const double shares[] = {1, 10, 25, 50, 75, 90, 95, 99, 99.9, 100};

	qsort(values, count, sizeof(double), compare);
	for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++)
	{
		int at = (int) (count * shares[i] / 100);

		printf("%s_p%g=%.4f ", name, shares[i], values[at < count ? at : count - 1] * 1000);
	}
}

static void
print_latencies(double took)
{
	int skipped = options.count / WARM_UP_SHARE;
	int count = options.count - skipped;
	double *from_commit = malloc(count * sizeof(double));
	double *from_call = malloc(count * sizeof(double));

	for (int i = 0; i < count; i++)
	{
		from_commit[i] = times[i + skipped].arrived - times[i + skipped].began;
		from_call[i] = times[i + skipped].arrived - times[i + skipped].called;
	}
	print_percentiles("from_commit", from_commit, count);
	print_percentiles("from_call", from_call, count);
	printf("rate=%.1f\n", options.count / took);
}

static void
begin(void)
{
	times = calloc(options.count, sizeof(Times));
	consumer_start(note_delivery);
	sleep_until(now() + 0.1);
}

static int
burst_end(int first)
{
	return first + options.burst < options.count ? first + options.burst : options.count;
}

/* ---- the plain publisher ---- */

static void
publish_burst(Publisher *publisher, char *body, int first)
{
	double began = now();

	for (int n = first; n < burst_end(first); n++)
	{
		times[n].called = times[n].began = began;
		put_number(body, n);
		while (in_flight(publisher) >= (uint64_t) options.window)
			take_confirms(publisher, true);
		publish(publisher, body, options.body);
	}
	take_confirms(publisher, false);
}

void
run_publish_latency(void)
{
	Publisher publisher;
	char *body = malloc(options.body + 1);
	double begun, due;

	memset(body, 'x', options.body);
	body[0] = body[options.body - 1] = '"';
	publisher_open(&publisher);
	begin();
	begun = due = now();
	for (int first = 0; first < options.count; first += options.burst)
	{
		sleep_until(due);
		due += options.gap_us / 1e6;
		publish_burst(&publisher, body, first);
	}
	due = now();
	await_deliveries();
	print_latencies(due - begun);
}

/* ---- the outbox ---- */

static void
prepare_add(PGconn *connection)
{
	char sql[1024];

	snprintf(sql, sizeof(sql),
	         "PREPARE add (int, int) AS SELECT count(acemq.outbox_add('%s', '%s', "
	         "'\"' || lpad(n::text, %d, '0') || repeat('x', %d) || '\"')) FROM generate_series($1, $2) n",
	         options.exchange, options.routing_key, DIGITS, options.body - DIGITS - 2);
	database_run(connection, sql);
}

static void
add_burst(PGconn *connection, int first)
{
	char sql[64];
	double called, committed;

	snprintf(sql, sizeof(sql), "EXECUTE add (%d, %d)", first, burst_end(first) - 1);
	database_run(connection, "BEGIN");
	database_run(connection, sql);
	called = now();
	database_run(connection, "COMMIT");
	committed = now();
	for (int n = first; n < burst_end(first); n++)
	{
		times[n].called = called;
		times[n].began = committed;
	}
}

void
run_outbox_latency(void)
{
	PGconn *connection = database_connect();
	double begun, due;

	prepare_add(connection);
	begin();
	begun = due = now();
	for (int first = 0; first < options.count; first += options.burst)
	{
		sleep_until(due);
		due += options.gap_us / 1e6;
		add_burst(connection, first);
	}
	due = now();
	await_deliveries();
	print_latencies(due - begun);
	PQfinish(connection);
}

/* ---- due times ---- */

/* Due one after the other, gap_us apart, from a second after the last one was added. */
void
run_schedule(void)
{
	PGconn *connection = database_connect();
	double offset = wall_clock() - now();
	double first_due;
	char sql[1024];

	begin();
	first_due = wall_clock() + 1 + options.count * 20e-6;
	for (int n = 0; n < options.count; n++)
		times[n].began = times[n].called = first_due + n * (options.gap_us / 1e6) - offset;
	snprintf(sql, sizeof(sql),
	         "SELECT count(acemq.schedule_at(to_timestamp(%.6f + n * %d / 1e6), '%s', '%s', "
	         "'\"' || lpad(n::text, %d, '0') || '\"')) FROM generate_series(0, %d) n",
	         first_due, options.gap_us, options.exchange, options.routing_key, DIGITS, options.count - 1);
	database_run(connection, sql);
	if (wall_clock() > first_due)
		die("adding took longer than expected");
	await_deliveries();
	print_latencies(options.count * (options.gap_us / 1e6));
	PQfinish(connection);
}
