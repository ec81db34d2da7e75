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
 * May depend on: relay_internal.h.
 *
 *-------------------------------------------------------------------------
 */
#include "relay_internal.h"

#include "common/hashfn.h"
#include "utils/hsearch.h"

#define DISTRUST_MS INT64CONST(60000)
/* Beyond this many, those whose time is over are forgotten. */
#define TRUST_ENTRIES_MAX 10000

typedef struct Trust
{
	uint64 hash[2]; /* hash key: two destinations that share 128 bits share their fate */
	bool proven;
	TimestampTz distrusted_until; /* 0: never was */
} Trust;

static Trust *find_trust(Relay *relay, const OutboxRow *row, HASHACTION action);
static void forget_old(Relay *relay, bool all_proven);

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

static Trust *
find_trust(Relay *relay, const OutboxRow *row, HASHACTION action)
{
	bool is_queue = to_queue(row);
	const char *name = is_queue ? row_wire_routing_key(row) : row_wire_exchange(row);
	int len = strlen(name);
	uint64 key[2];
	Trust *trust;
	bool found;

	key[0] = hash_bytes_extended((const unsigned char *) name, len, is_queue ? 1 : 2);
	key[1] = hash_bytes_extended((const unsigned char *) name, len, is_queue ? 3 : 4);
	trust = hash_search(relay->trust, key, action, &found);
	if (action == HASH_ENTER && !found)
	{
		trust->proven = false;
		trust->distrusted_until = 0;
	}
	return trust;
}

bool
relay_is_trusted(Relay *relay, const OutboxRow *row)
{
	Trust *trust = find_trust(relay, row, HASH_FIND);

	if (trust == NULL)
		return to_queue(row);
	return (trust->proven || to_queue(row)) && trust->distrusted_until <= relay->now;
}

/* The destination's exchange has taken a message, or returned it: it is there. */
void
relay_trust(Relay *relay, const OutboxRow *row)
{
	Trust *trust;

	if (to_queue(row))
		return;
	if (hash_get_num_entries(relay->trust) >= TRUST_ENTRIES_MAX)
		forget_old(relay, false);
	trust = find_trust(relay, row, HASH_ENTER);
	if (!trust->proven)
		lanes_resume_probes(relay->lanes, RELAY_PROBE_ROWS); /* some of them may have waited for this */
	trust->proven = true;
}

/* This message has closed the channel it had for itself. */
void
relay_distrust(Relay *relay, const OutboxRow *row)
{
	Trust *trust = find_trust(relay, row, HASH_ENTER);

	trust->proven = false;
	trust->distrusted_until = relay->now + DISTRUST_MS * 1000;
}

/* A new connection, or a main channel that died: everything has to be shown again. */
void
relay_forget_trust(Relay *relay)
{
	forget_old(relay, true);
}

static void
forget_old(Relay *relay, bool all_proven)
{
	HASH_SEQ_STATUS status;
	Trust *trust;

	hash_seq_init(&status, relay->trust);
	while ((trust = hash_seq_search(&status)) != NULL)
	{
		if (all_proven)
			trust->proven = false;
		if (!trust->proven && trust->distrusted_until <= relay->now)
			hash_search(relay->trust, trust->hash, HASH_REMOVE, NULL);
	}
}
