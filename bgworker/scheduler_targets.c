/*-------------------------------------------------------------------------
 *
 * scheduler_targets.c
 *		What is known of the places that scheduled messages go to.
 *
 * The broker closes a channel for one message to an exchange that is missing,
 * and then nothing is known of the others that were on it.  So an exchange has
 * to take a message that is alone before it shares a channel; the default
 * exchange is always there.
 *
 * One that was missing, and a queue that did not answer, are left alone for a
 * while: what is due there goes once more around the ladder.  Without that each
 * of a thousand messages to a missing exchange would cost a channel every ten
 * seconds, and fifty to a queue that hangs would stop all others.
 *
 * May depend on: scheduler_internal.h, src/backoff.h, src/guc.h.
 *
 *-------------------------------------------------------------------------
 */
#include "scheduler_internal.h"

#include "common/hashfn.h"
#include "utils/hsearch.h"

#include "backoff.h"
#include "guc.h"

/* Shorter than the detour, so that a message comes back to a fresh look. */
#define MISSING_MS INT64CONST(5000)
/* A message that is refused closes its channel, every ten seconds. */
#define REFUSED_MS      INT64CONST(600000)
#define SILENT_FIRST_MS INT64CONST(60000)
#define SILENT_MAX_MS   INT64CONST(600000)
#define SILENT_SLACK_MS 1000
/* Beyond this many, those that say nothing any more are forgotten, then all. */
#define TARGETS_MAX 10000
/* Of the broker's words, the beginning. */
#define TARGET_WHY_LEN 128

typedef struct Target
{
	uint64 hash[2]; /* hash key: two that share 128 bits share their fate */
	bool proven;
	TimestampTz alone_until; /* was refused: shares no channel */
	TimestampTz away_until;
	char why[TARGET_WHY_LEN]; /* the broker's words when it was missing or refused */
	int silences;             /* in a row */
	TimestampTz silent_at;    /* what was sent before that has been counted */
} Target;

static Target *find_exchange(Scheduler *scheduler, const WaitingMessage *waiting, HASHACTION action);
static Target *find_place(Scheduler *scheduler, const WaitingMessage *waiting, HASHACTION action);
static Target *find(Scheduler *scheduler, const char *name, int len, int kind, HASHACTION action);
static void make_room(Scheduler *scheduler);

void
targets_init(Scheduler *scheduler)
{
	HASHCTL control = {0};

	control.keysize = sizeof(uint64) * 2;
	control.entrysize = sizeof(Target);
	control.hcxt = scheduler->context;
	scheduler->targets =
	    hash_create("acemq targets of the ladder", 64, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

static Target *
find(Scheduler *scheduler, const char *name, int len, int kind, HASHACTION action)
{
	uint64 key[2];
	Target *target;
	bool found;

	key[0] = hash_bytes_extended((const unsigned char *) name, len, kind);
	key[1] = hash_bytes_extended((const unsigned char *) name, len, kind + 2);
	if (action == HASH_ENTER)
		make_room(scheduler);
	target = hash_search(scheduler->targets, key, action, &found);
	if (action == HASH_ENTER && !found)
	{
		target->proven = false;
		target->away_until = 0;
		target->why[0] = '\0';
		target->alone_until = 0;
		target->silences = 0;
		target->silent_at = 0;
	}
	return target;
}

static Target *
find_exchange(Scheduler *scheduler, const WaitingMessage *waiting, HASHACTION action)
{
	return find(scheduler, waiting->exchange, (int) strlen(waiting->exchange), 1, action);
}

/* Exchange and routing key: which queues those are is the broker's affair. */
static Target *
find_place(Scheduler *scheduler, const WaitingMessage *waiting, HASHACTION action)
{
	char place[2 * (ACEMQ_MAX_SHORTSTR + 1)];
	int exchange_len = (int) strlen(waiting->exchange) + 1; /* with its zero */
	int key_len = (int) strlen(waiting->routing_key);

	memcpy(place, waiting->exchange, exchange_len);
	memcpy(place + exchange_len, waiting->routing_key, key_len);
	return find(scheduler, place, exchange_len + key_len, 2, action);
}

bool
target_is_proven(Scheduler *scheduler, const WaitingMessage *waiting)
{
	Target *target;

	if (waiting->exchange[0] == '\0')
		return true;
	target = find_exchange(scheduler, waiting, HASH_FIND);
	if (target == NULL || !target->proven)
		return false;
	target = find_place(scheduler, waiting, HASH_FIND);
	return target == NULL || target->alone_until <= scheduler->now;
}

const char *
target_is_away(Scheduler *scheduler, const WaitingMessage *waiting)
{
	Target *exchange = find_exchange(scheduler, waiting, HASH_FIND);
	Target *place = find_place(scheduler, waiting, HASH_FIND);

	if (exchange != NULL && exchange->away_until > scheduler->now)
		return exchange->why;
	if (place != NULL && place->away_until > scheduler->now)
		return place->silences > 0 ? "no confirm within acemq.confirm_timeout when it was last tried" : place->why;
	return NULL;
}

void
target_is_there(Scheduler *scheduler, const WaitingMessage *waiting)
{
	Target *target;

	if (waiting->exchange[0] == '\0')
		return;
	target = find_exchange(scheduler, waiting, HASH_ENTER);
	target->proven = true;
	target->away_until = 0;
}

void
target_took(Scheduler *scheduler, const WaitingMessage *waiting)
{
	Target *place = find_place(scheduler, waiting, HASH_FIND);

	target_is_there(scheduler, waiting);
	if (place != NULL)
	{
		place->silences = 0;
		place->away_until = 0;
	}
}

void
target_is_missing(Scheduler *scheduler, const WaitingMessage *waiting, const char *why)
{
	Target *target = find_exchange(scheduler, waiting, HASH_ENTER);

	target->proven = false;
	strlcpy(target->why, why, sizeof(target->why));
	target->away_until = scheduler->now + MISSING_MS * 1000;
}

/* The right may be missing for that routing key only, so it says nothing of the others of its exchange. */
void
target_refuses(Scheduler *scheduler, const WaitingMessage *waiting, const char *why)
{
	Target *place = find_place(scheduler, waiting, HASH_ENTER);

	strlcpy(place->why, why, sizeof(place->why));
	place->away_until = scheduler->now + MISSING_MS * 1000;
	place->alone_until = scheduler->now + REFUSED_MS * 1000;
}

/* Each time it is tried again may cost a copy of the message, so less and less often. */
void
target_is_silent(Scheduler *scheduler, const WaitingMessage *waiting, TimestampTz sent_at)
{
	Target *place = find_place(scheduler, waiting, HASH_ENTER);

	if (place->silent_at >= sent_at)
		return; /* several of its messages were on the wire */
	place->silent_at = scheduler->now;
	place->silences = Min(place->silences + 1, 30);
	place->away_until = scheduler->now + backoff_delay_ms(place->silences, SILENT_FIRST_MS, SILENT_MAX_MS) * 1000;
}

/* One message shows whether it answers again; the others wait for what becomes of it. */
void
target_is_tried(Scheduler *scheduler, const WaitingMessage *waiting)
{
	Target *place = find_place(scheduler, waiting, HASH_FIND);

	if (place != NULL && place->silences > 0)
		place->away_until = scheduler->now + ((int64) acemq_confirm_timeout + SILENT_SLACK_MS) * 1000;
}

void
targets_forget_proofs(Scheduler *scheduler)
{
	HASH_SEQ_STATUS status;
	Target *target;

	hash_seq_init(&status, scheduler->targets);
	while ((target = hash_seq_search(&status)) != NULL)
		target->proven = false;
}

static void
make_room(Scheduler *scheduler)
{
	HASH_SEQ_STATUS status;
	Target *target;
	bool all;

	if (hash_get_num_entries(scheduler->targets) < TARGETS_MAX)
		return;
	for (all = false;; all = true)
	{
		hash_seq_init(&status, scheduler->targets);
		while ((target = hash_seq_search(&status)) != NULL)
		{
			if (all || (!target->proven && target->silences == 0 && target->away_until <= scheduler->now &&
			            target->alone_until <= scheduler->now))
				hash_search(scheduler->targets, target->hash, HASH_REMOVE, NULL);
		}
		if (hash_get_num_entries(scheduler->targets) < TARGETS_MAX / 2 || all)
			return;
	}
}
