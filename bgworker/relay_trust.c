/*-------------------------------------------------------------------------
 *
 * relay_trust.c
 *		Which destinations may share the main channel.
 *
 * The broker closes a channel for one bad message, and then nothing is known
 * of the others that were on it.  An exchange is trusted once it has taken a
 * message on this connection.  One to which a message has closed a channel is
 * not trusted for a while, whatever it takes meanwhile: where one bad message
 * came from there may be more.  The default exchange is always there, so its
 * queues are trusted from the start, each for itself.  What counts is where a
 * row goes on the wire, not the target it has behind the ladder.
 *
 * A destination that confirms nothing costs a connection each time it is tried,
 * however many lanes lead to it.  So it is left alone for a while as a whole, and
 * of those lanes few rows are in memory: the room for probes is for all.
 *
 * May depend on: relay_internal.h, src/backoff.h.
 *
 *-------------------------------------------------------------------------
 */
#include "relay_internal.h"

#include "common/hashfn.h"
#include "utils/hsearch.h"

#include "backoff.h"
#include "guc.h"

#define DISTRUST_MS INT64CONST(60000)
/* Rows in memory that want a probe channel, to one destination: of one that is trusted (its lanes are not), or not. */
#define PROBE_ROWS_TRUSTED (RELAY_PROBE_ROWS / 2)
#define PROBE_ROWS_OTHERS  2
/* Beyond this many, those whose time is over are forgotten. */
#define TRUST_ENTRIES_MAX 10000

struct Trust
{
	uint64 hash[2]; /* hash key: two destinations that share 128 bits share their fate */
	bool proven;
	TimestampTz distrusted_until; /* 0: never was */
	int nprobes;                  /* rows in memory that want a probe channel to it */
	int silences;                 /* acemq.confirm_timeout ran out, times in a row, and nothing came through */
	TimestampTz silent_until;     /* not tried before */
};

static Trust *find_trust(Relay *relay, const OutboxRow *row, HASHACTION action);
static void forget_old(Relay *relay, bool for_room);

void
relay_trust_init(Relay *relay)
{
	HASHCTL control = {0};

	control.keysize = sizeof(uint64) * 2;
	control.entrysize = sizeof(Trust);
	control.hcxt = relay->context;
	relay->trust = hash_create("acemq trusted destinations", 64, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/* Through the default exchange. */
static bool
to_queue(const OutboxRow *row)
{
	return row_wire_exchange(row)[0] == '\0';
}

static void
hash_destination(const OutboxRow *row, uint64 *key)
{
	bool is_queue = to_queue(row);
	const char *name = is_queue ? row_wire_routing_key(row) : row_wire_exchange(row);
	int len = strlen(name);

	key[0] = hash_bytes_extended((const unsigned char *) name, len, is_queue ? 1 : 2);
	key[1] = hash_bytes_extended((const unsigned char *) name, len, is_queue ? 3 : 4);
}

uint64
relay_destination(const OutboxRow *row)
{
	uint64 key[2];

	hash_destination(row, key);
	return key[0];
}

static Trust *
find_trust(Relay *relay, const OutboxRow *row, HASHACTION action)
{
	uint64 key[2];
	Trust *trust;
	bool found;

	hash_destination(row, key);
	trust = hash_search(relay->trust, key, action, &found);
	if (action == HASH_ENTER && !found)
		memset((char *) trust + sizeof(trust->hash), 0, sizeof(Trust) - sizeof(trust->hash));
	return trust;
}

bool
relay_is_trusted(Relay *relay, const OutboxRow *row)
{
	Trust *trust = find_trust(relay, row, HASH_FIND);

	if (trust == NULL)
		return to_queue(row);
	return (trust->proven || (to_queue(row) && trust->silences == 0)) && trust->distrusted_until <= relay->now;
}

/* May one more row that wants a probe channel come into memory? */
bool
relay_trust_allows_probe(Relay *relay, const OutboxRow *row)
{
	Trust *trust = find_trust(relay, row, HASH_FIND);

	if (trust == NULL)
		return true;
	if (trust->silent_until > relay->now)
		return false;
	return trust->nprobes < (relay_is_trusted(relay, row) ? PROBE_ROWS_TRUSTED : PROBE_ROWS_OTHERS);
}

void
relay_trust_probe_begins(Relay *relay, OutboxRow *row)
{
	row->probes = find_trust(relay, row, HASH_ENTER);
	row->probes->nprobes++;
}

/* An outcome, or the row leaves memory; where it goes may have changed since (another rung).  The next one may come. */
void
relay_trust_probe_ends(Relay *relay, OutboxRow *row)
{
	if (row->probes == NULL)
		return;
	row->probes->nprobes--;
	lanes_resume_probes_of(relay->lanes, row->probes->hash[0], 1);
	row->probes = NULL;
}

/* The destination's exchange has taken a message, or returned it: it is there. */
void
relay_trust(Relay *relay, const OutboxRow *row)
{
	Trust *trust;

	if (to_queue(row))
	{
		trust = hash_get_num_entries(relay->trust) > 0 ? find_trust(relay, row, HASH_FIND) : NULL;
		if (trust && trust->silences > 0)
		{
			trust->silences = 0;
			lanes_resume_probes_of(relay->lanes, trust->hash[0], PG_INT32_MAX);
		}
		return;
	}
	if (hash_get_num_entries(relay->trust) >= TRUST_ENTRIES_MAX)
		forget_old(relay, true);
	trust = find_trust(relay, row, HASH_ENTER);
	if (!trust->proven)
		lanes_resume_probes_of(relay->lanes, trust->hash[0], PG_INT32_MAX);
	trust->proven = true;
	trust->silences = 0;
}

/* This message has closed the channel it had for itself. */
void
relay_distrust(Relay *relay, const OutboxRow *row)
{
	Trust *trust = find_trust(relay, row, HASH_ENTER);

	trust->proven = false;
	trust->distrusted_until = relay->now + DISTRUST_MS * 1000;
}

/*
 * No confirm within acemq.confirm_timeout.  Where others came through on this
 * connection it is a matter of this row's queue, and so of its lane.
 */
void
relay_trust_silent(Relay *relay, const OutboxRow *row)
{
	Trust *trust = find_trust(relay, row, HASH_ENTER);

	if (trust->proven || trust->silent_until > relay->now)
		return;
	trust->silences = Min(trust->silences + 1, 30);
	trust->silent_until =
	    relay->now + backoff_delay_ms(trust->silences, acemq_retry_delay, acemq_retry_delay_max) * 1000;
}

/* A new connection, or a main channel that died: everything has to be shown again. */
void
relay_forget_trust(Relay *relay)
{
	forget_old(relay, false);
}

/* How often a destination was silent in a row outlives a connection, which the silence may have cost. */
static bool
is_forgettable(Relay *relay, const Trust *trust, bool for_room)
{
	if (trust->proven || trust->nprobes > 0 || trust->distrusted_until > relay->now)
		return false;
	return trust->silences == 0 || (for_room && trust->silent_until <= relay->now);
}

static void
forget_old(Relay *relay, bool for_room)
{
	HASH_SEQ_STATUS status;
	Trust *trust;

	hash_seq_init(&status, relay->trust);
	while ((trust = hash_seq_search(&status)) != NULL)
	{
		if (!for_room)
			trust->proven = false;
		if (is_forgettable(relay, trust, for_room))
			hash_search(relay->trust, trust->hash, HASH_REMOVE, NULL);
	}
}
