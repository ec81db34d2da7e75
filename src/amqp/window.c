/*
 * window.c
 *		Unconfirmed publishes of one channel, by delivery tag.
 *
 * May depend on: nothing at all.
 */
#include "window.h"

#include <stddef.h>
#include <string.h>

void
window_init(Window *window, WindowEntry *entries, int capacity)
{
	memset(window, 0, sizeof(*window));
	window->entries = entries;
	window->capacity = capacity;
	window->next_tag = 1;
}

/* Copy the unsettled entries to the front of `target`, which may be the memory they are in. */
static void
compact_into(Window *window, WindowEntry *target)
{
	int kept = 0;

	for (int i = window->head; i < window->tail; i++)
	{
		if (window->entries[i].state == WINDOW_SETTLED)
			continue;
		if (&target[kept] != &window->entries[i])
			target[kept] = window->entries[i];
		kept++;
	}
	window->head = 0;
	window->tail = kept;
	window->return_hint = 0;
}

bool
window_make_room(Window *window)
{
	if (window->tail < window->capacity)
		return true;

	/*
	 * Closing gaps costs a walk over all entries.  Asking for half of them to
	 * be gaps makes that at most one step per push in the long run.
	 */
	if (window->unsettled > window->capacity / 2)
		return false;
	compact_into(window, window->entries);
	return window->tail < window->capacity;
}

void
window_move(Window *window, WindowEntry *entries, int capacity)
{
	compact_into(window, entries);
	window->entries = entries;
	window->capacity = capacity;
}

void
window_push(Window *window, uint64_t token, int64_t sent_at, uint64_t route, const char *id, int id_len)
{
	WindowEntry *entry = &window->entries[window->tail++];

	entry->tag = window->next_tag++;
	entry->token = token;
	entry->sent_at = sent_at;
	entry->route = route;
	entry->state = WINDOW_WAITING;
	entry->id_len = (uint8_t) id_len;
	memcpy(entry->id, id, id_len);
	window->waiting++;
	window->unsettled++;
}

/* True if the entry was waiting, so that there is something to report. */
static bool
settle_entry(Window *window, WindowEntry *entry)
{
	bool was_waiting = entry->state == WINDOW_WAITING;

	if (entry->state != WINDOW_SETTLED)
		window->unsettled--;
	if (was_waiting)
		window->waiting--;
	entry->state = WINDOW_SETTLED;
	return was_waiting;
}

static void
skip_settled(Window *window)
{
	while (window->head < window->tail && window->entries[window->head].state == WINDOW_SETTLED)
		window->head++;
}

/* Tags lie in order and mostly without gaps, so the first guess is nearly always right. */
static WindowEntry *
find_tag(Window *window, uint64_t tag)
{
	WindowEntry *entries = window->entries;
	int low = window->head;
	int high = window->tail - 1;
	uint64_t offset;

	if (low > high || tag < entries[low].tag || tag > entries[high].tag)
		return NULL;

	offset = tag - entries[low].tag;
	if (offset <= (uint64_t) (high - low) && entries[low + offset].tag == tag)
		return &entries[low + offset];

	while (low <= high)
	{
		int middle = low + (high - low) / 2;

		if (entries[middle].tag == tag)
			return &entries[middle];
		if (entries[middle].tag < tag)
			low = middle + 1;
		else
			high = middle - 1;
	}
	return NULL;
}

static const WindowEntry *
settle_one(Window *window, uint64_t tag)
{
	WindowEntry *entry = find_tag(window, tag);
	bool report = entry != NULL && settle_entry(window, entry);

	skip_settled(window);
	return report ? entry : NULL;
}

const WindowEntry *
window_settle(Window *window, uint64_t tag, bool multiple)
{
	/* A tag that was never used settles nothing: believing it could confirm what was never stored. */
	if (tag >= window->next_tag)
		return NULL;
	if (!multiple)
		return settle_one(window, tag);

	while (window->head < window->tail)
	{
		WindowEntry *entry = &window->entries[window->head];

		if (tag != 0 && entry->tag > tag)
			return NULL;
		window->head++;
		if (settle_entry(window, entry))
			return entry;
	}
	return NULL;
}

/* Earliest waiting entry in [from, to) with this id and, if asked for, this route. */
static WindowEntry *
find_id(Window *window, int from, int to, const char *id, int id_len, const uint64_t *route)
{
	for (int i = from; i < to; i++)
	{
		WindowEntry *entry = &window->entries[i];

		if (entry->state == WINDOW_WAITING && entry->id_len == id_len && (route == NULL || entry->route == *route) &&
		    memcmp(entry->id, id, id_len) == 0)
			return entry;
	}
	return NULL;
}

const WindowEntry *
window_mark_returned(Window *window, const char *id, int id_len, uint64_t route)
{
	WindowEntry *entry;
	int hint = window->return_hint > window->head ? window->return_hint : window->head;

	/*
	 * Returns come in publish order.  Looking first behind the last one keeps
	 * a window full of unroutable messages from costing its square.
	 */
	entry = find_id(window, hint, window->tail, id, id_len, &route);
	if (entry == NULL)
		entry = find_id(window, window->head, hint, id, id_len, &route);
	if (entry == NULL)
		entry = find_id(window, window->head, window->tail, id, id_len, NULL);
	if (entry == NULL)
		return NULL;

	window->return_hint = (int) (entry - window->entries);
	entry->state = WINDOW_RETURNED;
	window->waiting--;
	return entry;
}

const WindowEntry *
window_oldest(const Window *window)
{
	if (window->waiting == 0)
		return NULL;
	for (int i = window->head; i < window->tail; i++)
	{
		if (window->entries[i].state == WINDOW_WAITING)
			return &window->entries[i];
	}
	return NULL;
}
