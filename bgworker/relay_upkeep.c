/*-------------------------------------------------------------------------
 *
 * relay_upkeep.c
 *		What the relay does once per poll while something happens: kept
 *		messages are purged, rows counted, prepared transactions looked for.
 *
 * May depend on: relay_internal.h, outbox_store.h, src/guc.h.
 *
 *-------------------------------------------------------------------------
 */
#include "relay_internal.h"

#include "access/twophase.h"
#include "utils/hsearch.h"
#include "utils/timestamp.h"

#include "guc.h"
#include "outbox_store.h"

/* Counting takes no more than a twentieth of the time. */
#define COUNT_AGAIN_MS    INT64CONST(10000)
#define COUNT_PAUSE       20
#define COUNT_PREPARED_MS INT64CONST(600000)
#define PURGE_BATCH       1000
#define COUNT_STEP        50000

static void look_for_prepared(Relay *relay);
static void count_step(Relay *relay);
static bool count_looks_wrong(Relay *relay);
static uint64 count_changes(Relay *relay);

/* Of the rows that have not been read: since when the first of them could have gone out. */
static TimestampTz
oldest_unread(Relay *relay)
{
	TimestampTz oldest = store_oldest(relay->next_id);
	TimestampTz due = store_next_due(PG_INT64_MIN + 1);

	return due != 0 && due <= relay->now && (oldest == 0 || due < oldest) ? due : oldest;
}

int
relay_upkeep(Relay *relay)
{
	int purged = 0;

	relay->upkeep_at = relay->now + (int64) acemq_poll_interval * 1000;
	relay->upkeep_more = false;
	if (acemq_outbox_retention > 0 || relay->purge_all)
	{
		purged = store_purge_published(PURGE_BATCH);
		relay->upkeep_more = purged == PURGE_BATCH;
		/* Without retention there is nothing new to purge, once what an earlier setting has kept is gone. */
		relay->purge_all = relay->upkeep_more;
	}
	relay->oldest_unread = relay_has_read_all(relay) ? 0 : oldest_unread(relay);
	if (max_prepared_xacts > 0)
		look_for_prepared(relay);
	count_step(relay);
	if (relay->upkeep_more)
		relay->upkeep_at = relay->now;
	return purged;
}

/*
 * Rows of a prepared transaction were counted at its PREPARE, as if it were to
 * be committed for certain; a count of the table cannot see them.  So there is
 * none, as a rule, until no transaction is prepared any more, and then there is.
 */
static void
look_for_prepared(Relay *relay)
{
	bool announced = pg_atomic_exchange_u32(&relay->slot->prepared, 0) != 0;
	bool prepared = store_prepared_exists();

	/* What was prepared at the last look, or since, may be committed now, with ids that the forward scan has passed. */
	if (prepared || announced || relay->prepared_seen)
	{
		relay_sweep(relay);
		relay->fetch_wanted = true;
	}
	relay->prepared_seen = prepared || announced;

	/* After a start nobody knows whose they are. */
	relay->prepared_rows |= announced || (prepared && !relay->prepared_known);
	relay->prepared_known = true;
	if (relay->prepared_rows)
		pg_atomic_write_u32(&relay->slot->pending_approximate, 1);
	if (relay->prepared_rows && !prepared)
	{
		relay->prepared_rows = false;
		relay->counting = false;
	}
}

static bool
may_count(Relay *relay)
{
	TimestampTz at = relay->count_again_at;

	/* The first count after a start does not wait; later ones not for ever. */
	if (relay->prepared_rows && at != 0)
		at += COUNT_PREPARED_MS * 1000;
	return relay->now >= at;
}

/*
 * `pending` and `retired` are counted at commit; after a start they are counted
 * once from the table, in steps.  If nothing was added or removed meanwhile the
 * count is exact, otherwise it is taken as an approximation and repeated.
 */
static void
count_step(Relay *relay)
{
	AcemqSlot *slot = relay->slot;
	int64 pending;
	int64 retired;
	int64 upto;

	if (count_looks_wrong(relay))
		pg_atomic_write_u32(&slot->pending_approximate, 1);
	if (!relay->counting)
	{
		if (pg_atomic_read_u32(&slot->pending_approximate) == 0 || !may_count(relay))
			return;
		relay->counting = true;
		relay->count_began_at = relay->now;
		relay->count_next = store_first_id(1);
		relay->count_last = store_last_id();
		relay->count_pending = relay->count_retired = 0;
		relay->count_changes = count_changes(relay);
	}

	upto = Min(relay->count_last, relay->count_next + COUNT_STEP - 1);
	if (relay->count_next > 0 && relay->count_next <= relay->count_last)
	{
		store_count(relay->count_next, upto, &pending, &retired);
		relay->count_pending += pending;
		relay->count_retired += retired;
		relay->count_next = upto + 1;
	}
	if (relay->count_next > 0 && relay->count_next <= relay->count_last)
	{
		relay->upkeep_more = true;
		return;
	}
	relay->counting = false;
	relay->count_again_at =
	    relay->now + Max(COUNT_AGAIN_MS * 1000, COUNT_PAUSE * (GetCurrentTimestamp() - relay->count_began_at));
	pg_atomic_write_u64(&slot->pending, (uint64) relay->count_pending);
	pg_atomic_write_u64(&slot->retired, (uint64) relay->count_retired);
	if (relay->count_changes == count_changes(relay) && !relay->prepared_rows)
		pg_atomic_write_u32(&slot->pending_approximate, 0);
}

/* Rows that came past outbox_add come and leave without having been counted. */
static bool
count_looks_wrong(Relay *relay)
{
	int64 pending = (int64) pg_atomic_read_u64(&relay->slot->pending);
	bool nothing_left = relay->caught_up && relay->nrows == 0 && relay->nranges == 0 && relay->sweep_from == 0 &&
	                    relay->next_due == 0 && hash_get_num_entries(relay->lanes->lanes) == 0;

	return pending < 0 || (pending == 0 && relay->oldest_unread != 0) ||
	       (nothing_left && pending > 0 && relay->fence == STORE_OWN && !relay->fetch_wanted);
}

static uint64
count_changes(Relay *relay)
{
	AcemqSlot *slot = relay->slot;

	return pg_atomic_read_u64(&slot->added) + pg_atomic_read_u64(&slot->published) + pg_atomic_read_u64(&slot->failed) +
	       relay->nconfirmed;
}
