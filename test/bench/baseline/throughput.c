/*
 * throughput.c
 *		Messages per second, from the first confirm that is seen to the last:
 *		of the plain publisher, and of the relay.
 *
 * Both count what the broker has confirmed.  The relay's count comes from
 * acemq.status, looked at every few milliseconds: one short statement that
 * reads shared memory.
 *
 * May depend on: bench.h.
 */
#include "bench.h"

#include <stdio.h>
#include <string.h>

#define LOOK_EVERY_S 0.005

typedef struct Progress
{
	double begun;
	double first_at; /* 0: nothing yet */
	uint64_t first;  /* confirmed then */
	double last_at;
	uint64_t last;
} Progress;

static void
note_progress(Progress *progress, uint64_t confirmed)
{
	if (confirmed == progress->last)
		return;
	progress->last = confirmed;
	progress->last_at = now();
	if (progress->first_at == 0)
	{
		progress->first = confirmed;
		progress->first_at = progress->last_at;
	}
}

static void
print_progress(const Progress *progress)
{
	printf("confirmed=%llu rate=%.1f seconds=%.4f until_first=%.4f", (unsigned long long) progress->last,
	       (progress->last - progress->first) / (progress->last_at - progress->first_at),
	       progress->last_at - progress->first_at, progress->first_at - progress->begun);
}

void
run_publish(void)
{
	Publisher publisher;
	Progress progress = {0};
	char *body = malloc(options.body + 1);

	memset(body, 'x', options.body);
	body[0] = body[options.body - 1] = '"';
	publisher_open(&publisher);
	if (options.queue[0] != '\0')
		consumer_start(NULL);
	progress.begun = now();
	while (publisher.confirmed < (uint64_t) options.count)
	{
		while (in_flight(&publisher) < (uint64_t) options.window && publisher.published < (uint64_t) options.count)
			publish(&publisher, body, options.body);
		take_confirms(&publisher, true);
		note_progress(&progress, publisher.confirmed);
	}
	print_progress(&progress);
	printf("\n");
}

static void
look(PGconn *connection, uint64_t *published, uint64_t *pending)
{
	PGresult *result = PQexecPrepared(connection, "look", 0, NULL, NULL, NULL, 0);

	if (PQresultStatus(result) != PGRES_TUPLES_OK || PQntuples(result) != 1)
		die("look at the relay: %s", PQerrorMessage(connection));
	*published = strtoull(PQgetvalue(result, 0, 0), NULL, 10);
	*pending = strtoull(PQgetvalue(result, 0, 1), NULL, 10);
	PQclear(result);
}

/* "pending" falls when the rows are deleted: the last ones a little after their confirm. */
void
run_watch(void)
{
	PGconn *connection = database_connect();
	Progress progress = {0};
	uint64_t before, published, pending, left;
	double looked_at;

	database_run(connection, "PREPARE look AS SELECT s.published, s.pending FROM acemq.status s");
	if (options.queue[0] != '\0')
		consumer_start(NULL);
	look(connection, &before, &pending);
	left = pending > (uint64_t) options.count ? pending - options.count : 0;
	progress.begun = looked_at = now();
	database_run(connection, "SELECT acemq.relay_resume()");
	do
	{
		looked_at += LOOK_EVERY_S;
		if (looked_at > now())
			sleep_until(looked_at);
		look(connection, &published, &pending);
		note_progress(&progress, published - before);
		if (now() - progress.begun > options.timeout_s)
			die("the relay sent %llu of %d messages in %d s", (unsigned long long) progress.last, options.count,
			    options.timeout_s);
	} while (progress.last < (uint64_t) options.count);
	print_progress(&progress);
	while (pending > left && now() - progress.last_at < options.timeout_s)
	{
		sleep_until(now() + LOOK_EVERY_S);
		look(connection, &published, &pending);
	}
	printf(" until_deleted=%.4f\n", now() - progress.last_at);
	PQfinish(connection);
}
