/*
 * window.h
 *		The publishes of one channel that the broker has not confirmed yet.
 *
 * Pure bookkeeping.  Entries lie in the order of their delivery tags in
 * memory that the caller gives and may replace by a larger piece.  Settled
 * entries leave a gap that is closed when room is needed, so one message that
 * the broker sits on does not keep later ones from going out.
 *
 * May depend on: nothing at all; unit-tested by itself.
 */
#ifndef ACEMQ_WINDOW_H
#define ACEMQ_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

typedef enum WindowState
{
	WINDOW_WAITING,  /* nothing heard of it yet */
	WINDOW_RETURNED, /* came back as unroutable; its ack is still to come and says nothing new */
	WINDOW_SETTLED   /* acked or nacked */
} WindowState;

typedef struct WindowEntry
{
	uint64_t tag;
	uint64_t token;
	uint64_t route; /* any fingerprint of exchange and routing key */
	int64_t sent_at;
	uint8_t state; /* WindowState */
	uint8_t id_len;
	char id[255]; /* message id, not terminated */
} WindowEntry;

typedef struct Window
{
	WindowEntry *entries;
	int capacity;
	int head;        /* first entry that may be unsettled */
	int tail;        /* one after the last entry */
	int waiting;     /* entries in state WINDOW_WAITING */
	int unsettled;   /* the same and those in WINDOW_RETURNED */
	int return_hint; /* where the last returned entry was found */
	uint64_t next_tag;
} Window;

/* Also for a channel that has just been (re)opened: tags start at 1 again. */
extern void window_init(Window *window, WindowEntry *entries, int capacity);

/*
 * True if the next push will succeed, perhaps after closing gaps.  If false,
 * the memory is too small: see window_move().
 */
extern bool window_make_room(Window *window);

/* Go on in a larger piece of memory; the caller frees the old one. */
extern void window_move(Window *window, WindowEntry *entries, int capacity);

/* Add an entry with the next tag.  Needs room; id_len is at most 255. */
extern void window_push(Window *window, uint64_t token, int64_t sent_at, uint64_t route, const char *id, int id_len);

/*
 * Settle what an ack or nack covers, one waiting entry per call, in publish
 * order; NULL when there is none (left).  The entry stays valid until the next
 * push.  Returned entries are settled on the way without being reported, tags
 * that are settled already or were never used are ignored.  With `multiple`,
 * tag 0 means everything.
 */
extern const WindowEntry *window_settle(Window *window, uint64_t tag, bool multiple);

/*
 * The broker returned the message `id` that was sent to `route`: mark the
 * earliest waiting entry that matches, by both if possible, else by id.  NULL
 * if there is none.
 */
extern const WindowEntry *window_mark_returned(Window *window, const char *id, int id_len, uint64_t route);

/* The earliest waiting entry, or NULL. */
extern const WindowEntry *window_oldest(const Window *window);

#endif /* ACEMQ_WINDOW_H */
