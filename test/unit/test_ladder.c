/*
 * test_ladder.c
 *		Which rung fits the time that is left, and what the rungs are called.
 */
#include "ladder.h"

#include <string.h>

#include "check.h"

#define HOUR   INT64_C(3600000)
#define MINUTE INT64_C(60000)

static void
check_choice(int64 left_ms, const char *queue)
{
	const LadderRung *rung = ladder_rung_for(left_ms);
	char words[100];

	snprintf(words, sizeof(words), "%lld ms left: %s", (long long) left_ms, rung ? rung->queue : "now");
	CHECK_CASE(queue == NULL ? rung == NULL : rung != NULL && strcmp(rung->queue, queue) == 0, words);
}

static void
test_choice(void)
{
	check_choice(INT64_MIN, NULL);
	check_choice(-3600000, NULL);
	check_choice(-1, NULL);
	check_choice(0, NULL);
	check_choice(999, NULL);
	check_choice(1000, "acemq.schedule.1s");
	check_choice(9999, "acemq.schedule.1s");
	check_choice(10000, "acemq.schedule.10s");
	check_choice(59999, "acemq.schedule.10s");
	check_choice(60000, "acemq.schedule.1m");
	check_choice(90 * 1000, "acemq.schedule.1m");
	check_choice(10 * MINUTE - 1, "acemq.schedule.1m");
	check_choice(10 * MINUTE, "acemq.schedule.10m");
	check_choice(HOUR - 1, "acemq.schedule.10m");
	check_choice(HOUR, "acemq.schedule.1h");
	check_choice(4 * HOUR, "acemq.schedule.1h");
	check_choice(24 * HOUR, "acemq.schedule.1h");
	check_choice(INT64_MAX, "acemq.schedule.1h");
}

/* Rungs until it is delivered, if every one takes exactly as long as it says. */
static int
hops(int64 left_ms)
{
	const LadderRung *rung;
	int count = 0;

	for (; (rung = ladder_rung_for(left_ms)) != NULL; left_ms -= rung->wait_ms)
		count++;
	CHECK(left_ms < 1000);
	return count;
}

static void
test_hops(void)
{
	CHECK(hops(999) == 0);
	CHECK(hops(1000) == 1);
	CHECK(hops(90 * 1000) == 4); /* a minute, three times ten seconds */
	CHECK(hops(4 * HOUR) == 4);
	CHECK(hops(24 * HOUR) == 24);
	CHECK(hops(HOUR - 1) == 5 + 9 + 5 + 9);
}

/* {n}h, {n}m or {n}s, from the wait. */
static void
test_names(void)
{
	for (int i = 0; i < LADDER_RUNGS; i++)
	{
		const LadderRung *rung = &ladder_rungs[i];
		char name[64];

		if (rung->wait_ms % HOUR == 0)
			snprintf(name, sizeof(name), "%s.%dh", LADDER_EXCHANGE, (int) (rung->wait_ms / HOUR));
		else if (rung->wait_ms % MINUTE == 0)
			snprintf(name, sizeof(name), "%s.%dm", LADDER_EXCHANGE, (int) (rung->wait_ms / MINUTE));
		else
			snprintf(name, sizeof(name), "%s.%ds", LADDER_EXCHANGE, (int) (rung->wait_ms / 1000));
		CHECK_CASE(strcmp(name, rung->queue) == 0, name);
		CHECK(i == 0 || rung->wait_ms < ladder_rungs[i - 1].wait_ms);
	}
	CHECK(ladder_detour()->wait_ms == 10000);
}

int
main(void)
{
	RUN(test_choice());
	RUN(test_hops());
	RUN(test_names());
	return check_report();
}
