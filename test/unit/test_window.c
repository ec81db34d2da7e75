/*
 * test_window.c
 *		The window of unconfirmed publishes, alone and against a slow model.
 */
#include "amqp/window.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"

#define CAPACITY 8

static WindowEntry memory[CAPACITY];

static void
push(Window *window, uint64_t token, const char *id, uint64_t route)
{
	CHECK(window_make_room(window));
	window_push(window, token, (int64_t) (token * 10), route, id, (int) strlen(id));
}

static void
fill(Window *window, int count)
{
	static const char *const ids[] = {"a", "b", "c", "d", "e", "f", "g", "h"};

	window_init(window, memory, CAPACITY);
	for (int i = 0; i < count; i++)
		push(window, 101 + i, ids[i], 1);
}

/* Settle and compare the tokens reported, which end with 0. */
static void
expect(Window *window, uint64_t tag, bool multiple, const uint64_t *tokens)
{
	const WindowEntry *entry;

	while ((entry = window_settle(window, tag, multiple)) != NULL)
	{
		CHECK(entry->token == *tokens);
		if (*tokens != 0)
			tokens++;
	}
	CHECK(*tokens == 0);
}

#define TOKENS(...) ((const uint64_t[]){__VA_ARGS__, 0})
#define NO_TOKENS   ((const uint64_t[]){0})

static void
test_single_and_multiple(void)
{
	Window window;

	fill(&window, 6);
	CHECK(window.waiting == 6);
	expect(&window, 1, false, TOKENS(101));
	expect(&window, 4, true, TOKENS(102, 103, 104));
	expect(&window, 4, true, NO_TOKENS);
	expect(&window, 2, false, NO_TOKENS);
	expect(&window, 6, true, TOKENS(105, 106));
	CHECK(window.waiting == 0 && window.unsettled == 0);
	CHECK(window_oldest(&window) == NULL);
}

static void
test_out_of_order(void)
{
	Window window;

	fill(&window, 5);
	expect(&window, 3, false, TOKENS(103));
	expect(&window, 3, false, NO_TOKENS);
	expect(&window, 5, false, TOKENS(105));
	CHECK(window_oldest(&window)->token == 101);
	expect(&window, 4, true, TOKENS(101, 102, 104));
	CHECK(window.waiting == 0);
}

static void
test_tags_never_used(void)
{
	Window window;

	fill(&window, 2);
	expect(&window, 3, false, NO_TOKENS);
	expect(&window, 3, true, NO_TOKENS);
	expect(&window, UINT64_MAX, true, NO_TOKENS);
	expect(&window, 0, false, NO_TOKENS);
	CHECK(window.waiting == 2);
	expect(&window, 0, true, TOKENS(101, 102));
}

static void
test_returned(void)
{
	Window window;

	fill(&window, 5);
	CHECK(window_mark_returned(&window, "c", 1, 1)->token == 103);
	CHECK(window.waiting == 4 && window.unsettled == 5);
	CHECK(window_mark_returned(&window, "c", 1, 1) == NULL);
	CHECK(window_mark_returned(&window, "cc", 2, 1) == NULL);
	CHECK(window_mark_returned(&window, "", 0, 1) == NULL);
	expect(&window, 3, false, NO_TOKENS);
	CHECK(window_mark_returned(&window, "a", 1, 1)->token == 101);
	CHECK(window_oldest(&window)->token == 102);
	expect(&window, 5, true, TOKENS(102, 104, 105));
	CHECK(window_mark_returned(&window, "e", 1, 1) == NULL);
}

static void
test_same_id_twice(void)
{
	Window window;

	window_init(&window, memory, CAPACITY);
	push(&window, 1, "same", 10);
	push(&window, 2, "same", 20);
	push(&window, 3, "same", 10);
	CHECK(window_mark_returned(&window, "same", 4, 20)->token == 2);
	CHECK(window_mark_returned(&window, "same", 4, 10)->token == 3);
	CHECK(window_mark_returned(&window, "same", 4, 99)->token == 1);
	CHECK(window_mark_returned(&window, "same", 4, 10) == NULL);
}

/* One message that stays unconfirmed must not stop the others. */
static void
test_straggler(void)
{
	Window window;

	fill(&window, 1);
	for (uint64_t tag = 2; tag < 1000; tag++)
	{
		push(&window, 1000 + tag, "x", 1);
		expect(&window, tag, false, TOKENS(1000 + tag));
	}
	CHECK(window_oldest(&window)->token == 101);
	push(&window, 5000, "y", 1);
	expect(&window, 1, false, TOKENS(101));
	expect(&window, 1000, true, TOKENS(5000));
}

static void
test_growing(void)
{
	Window window;
	WindowEntry larger[CAPACITY * 2];

	fill(&window, CAPACITY);
	expect(&window, 2, false, TOKENS(102));
	CHECK(!window_make_room(&window));
	window_move(&window, larger, CAPACITY * 2);
	push(&window, 109, "late", 1);
	expect(&window, 9, true, TOKENS(101, 103, 104, 105, 106, 107, 108, 109));
}

static void
test_long_id(void)
{
	Window window;
	char id[256];

	memset(id, 'i', sizeof(id));
	window_init(&window, memory, CAPACITY);
	window_push(&window, 1, 0, 1, id, 255);
	window_push(&window, 2, 0, 1, id, 0);
	CHECK(window_mark_returned(&window, id, 0, 1)->token == 2);
	CHECK(window_mark_returned(&window, id, 254, 1) == NULL);
	CHECK(window_mark_returned(&window, id, 255, 1)->token == 1);
}

/* ---- against a model that keeps everything for ever ---- */

#define MODEL_PUBLISHES 20000
#define MODEL_WINDOW    60

typedef enum Fate
{
	OUT,
	BACK,
	DONE
} Fate;

static Fate fate[MODEL_PUBLISHES + 1];

static void
settle_in_both(Window *window, uint64_t tag, bool multiple, uint64_t pushed)
{
	const WindowEntry *entry;
	uint64_t next = multiple ? 1 : tag;
	bool right = true;

	while ((entry = window_settle(window, tag, multiple)) != NULL)
	{
		while (next <= pushed && fate[next] != OUT)
			fate[next++] = DONE;
		right = right && entry->tag == next && entry->token == next + 7;
		fate[next++] = DONE;
	}
	for (; next <= tag && next <= pushed; next++)
	{
		right = right && fate[next] != OUT;
		fate[next] = DONE;
	}
	CHECK_CASE(right, "settled what the model settles");
}

static void
test_against_model(unsigned seed)
{
	Window window;
	WindowEntry *entries = malloc(128 * sizeof(WindowEntry));
	uint64_t pushed = 0;
	int waiting = 0;

	srand(seed);
	memset(fate, 0, sizeof(fate));
	window_init(&window, entries, 128);
	while (pushed < MODEL_PUBLISHES)
	{
		int dice = rand() % 10;
		uint64_t recent = pushed > 0 ? pushed - rand() % (pushed < 90 ? pushed : 90) : 0;

		if (recent == 0 || (dice < 6 && window.unsettled < MODEL_WINDOW))
		{
			char id[24];
			int len = snprintf(id, sizeof(id), "%llu", (unsigned long long) ++pushed);

			CHECK_CASE(window_make_room(&window), "room while half the window is free");
			window_push(&window, pushed + 7, 0, pushed % 3, id, len);
		}
		else if (dice < 8)
			settle_in_both(&window, recent, false, pushed);
		else if (dice < 9)
			settle_in_both(&window, recent > 40 ? recent - 40 : recent, true, pushed);
		else if (recent > 0)
		{
			char id[24];
			int len = snprintf(id, sizeof(id), "%llu", (unsigned long long) recent);
			const WindowEntry *entry = window_mark_returned(&window, id, len, recent % 3);

			CHECK_CASE((entry != NULL) == (fate[recent] == OUT), "returned what was out");
			if (entry != NULL)
				fate[recent] = BACK;
		}
	}
	for (uint64_t tag = 1; tag <= pushed; tag++)
		waiting += fate[tag] == OUT;
	CHECK(window.waiting == waiting);
	free(entries);
}

int
main(void)
{
	RUN(test_single_and_multiple());
	RUN(test_out_of_order());
	RUN(test_tags_never_used());
	RUN(test_returned());
	RUN(test_same_id_twice());
	RUN(test_straggler());
	RUN(test_growing());
	RUN(test_long_id());
	for (unsigned seed = 1; seed <= 5; seed++)
		RUN(test_against_model(seed));
	return check_report();
}
