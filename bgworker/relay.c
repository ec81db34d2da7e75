/*-------------------------------------------------------------------------
 *
 * relay.c
 *		The relay's turn: signals from backends, the broker, the table, and
 *		when to be called again.
 *
 *		relay_fetch.c    table  -> memory
 *		relay_admit.c    which rows of a scan are taken in
 *		relay_memory.c   what is in memory
 *		relay_holders.c  lanes whose failed row is gone
 *		relay_publish.c  memory -> broker
 *		relay_pace.c     how many rows of a lane at a time
 *		relay_trust.c    which destinations may share a channel
 *		relay_ladder.c   rows that wait in the broker
 *		relay_outcome.c  broker -> memory
 *		relay_settle.c   memory -> table
 *		relay_upkeep.c   purging and counting
 *		relay_state.c    what status shows
 *
 * Glossary.  On the wire: published, no outcome yet.  Window: rows on the wire
 * and confirmed rows whose delete is not flushed.  Lane: see lanes.h.  Left:
 * rows of a lane that were passed over and have to be read again.
 *
 * May depend on: relay_internal.h, outbox_store.h, durability.h.
 *
 *-------------------------------------------------------------------------
 */
#include "relay_internal.h"

#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "durability.h"
#include "guc.h"
#include "outbox_store.h"

#define POLL_STRETCH_MAX 10
#define SWEEP_EVERY_MS   600000
#define STANDBY_LOOK_MS  10
#define CONFIRM_LOOK_MS  500
#define PAUSED_LOOK_MS   INT64CONST(200)

static void take_wake_up(Relay *relay);
static void take_freed(Relay *relay);
static bool poll_is_due(Relay *relay);
static void keep_connection(Relay *relay);
static void notice_loss(Relay *relay);
static void release_lanes(Relay *relay);
static void resume_probes(Relay *relay);
static bool database_turn_is_due(Relay *relay, bool polled);
static void ms_after(TimestampTz *at, TimestampTz now, int64 ms);

Relay *
relay_create(MemoryContext parent, AcemqSlot *slot)
{
	MemoryContext context = AllocSetContextCreate(parent, "acemq relay", ALLOCSET_DEFAULT_SIZES);
	Relay *relay = MemoryContextAllocZero(context, sizeof(Relay));

	relay->context = context;
	relay->turn_context = AllocSetContextCreate(context, "acemq turn", ALLOCSET_DEFAULT_SIZES);
	relay->slot = slot;
	relay->link = link_create(context, slot, LINK_RELAY);
	relay->lanes = lanes_create(context);
	relay_memory_init(relay);
	relay_trust_init(relay);

	relay->next_id = 1;
	relay->fetch_wanted = true;
	relay->purge_all = true;
	relay->due_read = PG_INT64_MIN + 1;
	relay->poll_delay_ms = acemq_poll_interval;
	relay->sweep_at = GetCurrentTimestamp() + SWEEP_EVERY_MS * INT64CONST(1000);
	pg_atomic_write_u32(&slot->pending_approximate, 1);
	pg_atomic_write_u64(&slot->in_flight, 0);
	acemq_slot_note_settings(slot);
	return relay;
}

bool
relay_fence_known(Relay *relay)
{
	return relay->fence_known;
}

bool
relay_fence_allows_broker(Relay *relay)
{
	return relay->fence_known && relay->fence != STORE_FOREIGN;
}

bool
relay_may_run(Relay *relay)
{
	return acemq_relay && relay->fence_known && relay->fence == STORE_OWN;
}

bool
relay_may_fetch(Relay *relay)
{
	BrokerConn *conn = link_conn(relay->link);

	return relay_may_run(relay) && conn && !broker_is_blocked(conn) && relay_wants_rows(relay) && relay_has_room(relay);
}

bool
relay_has_read_all(Relay *relay)
{
	return relay->caught_up && link_conn(relay->link) != NULL;
}

bool
relay_step(Relay *relay)
{
	bool polled;
	MemoryContext caller;

	MemoryContextReset(relay->turn_context);
	caller = MemoryContextSwitchTo(relay->turn_context);
	relay->now = GetCurrentTimestamp();

	take_wake_up(relay);
	polled = poll_is_due(relay);
	keep_connection(relay);
	release_lanes(relay);
	resume_probes(relay);
	if (!relay_has_room(relay) && relay_wants_rows(relay))
		relay_relieve_memory(relay);

	if (database_turn_is_due(relay, polled))
	{
		relay_database_turn(relay);
		relay->now = GetCurrentTimestamp();
	}

	if (relay_may_run(relay) && link_conn(relay->link))
	{
		relay->confirmed_upto = durability_confirmed();
		relay_publish(relay);
		notice_loss(relay);
	}
	relay_show_state(relay);
	MemoryContextSwitchTo(caller);
	return database_turn_is_due(relay, false);
}

/* Flag before table: a commit after this sets the flag and the latch again. */
static void
take_wake_up(Relay *relay)
{
	AcemqSlot *slot = relay->slot;

	if (pg_atomic_exchange_u32(&slot->wake, 0) != 0)
	{
		relay->fetch_wanted = true;
		relay->poll_delay_ms = acemq_poll_interval;
		relay->poll_at = Min(relay->poll_at, relay->now + relay->poll_delay_ms * 1000);
		/* It may be relay_resume; but commits go on while we are paused, and not each of them is worth a look. */
		if (!relay_may_run(relay))
			relay->poll_at = Min(relay->poll_at, Max(relay->now, relay->fence_read_at + PAUSED_LOOK_MS * 1000));
	}
	relay_take_late(relay);
}

void
relay_try_now(Relay *relay)
{
	link_try_now(relay->link);
}

/* Also in the middle of a turn: see relay_fetch(). */
void
relay_take_late(Relay *relay)
{
	AcemqSlot *slot = relay->slot;
	AcemqRange late[ACEMQ_LATE_RANGES];
	int nlate;

	SpinLockAcquire(&slot->late_mutex);
	nlate = slot->nlate;
	memcpy(late, slot->late, sizeof(AcemqRange) * nlate);
	slot->nlate = 0;
	take_freed(relay);
	SpinLockRelease(&slot->late_mutex);
	for (int i = 0; i < nlate; i++)
		relay_add_range(relay, late[i].lo, late[i].hi);
}

/* When the list is full the last range grows: reading too much is only slower. */
static void
add_range(AcemqRange *ranges, int *count, int max, int64 lo, int64 hi)
{
	if (lo > hi)
		return;
	if (*count == max)
	{
		AcemqRange *last = &ranges[*count - 1];

		last->lo = Min(last->lo, (uint64) lo);
		last->hi = Max(last->hi, (uint64) hi);
		return;
	}
	ranges[*count].lo = lo;
	ranges[*count].hi = hi;
	(*count)++;
}

void
relay_add_range(Relay *relay, int64 lo, int64 hi)
{
	add_range(relay->ranges, &relay->nranges, RELAY_MAX_RANGES, lo, hi);
}

void
relay_sweep(Relay *relay)
{
	relay->sweep_again = relay->sweep_from != 0;
	if (relay->sweep_again)
		return;
	relay->sweep_from = 1;
	relay->sweep_upto = relay->next_id - 1;
}

void
relay_note_locked(Relay *relay, int64 id)
{
	add_range(relay->locked, &relay->nlocked, RELAY_MAX_RANGES, id, id);
}

/* Under late_mutex.  Those of a turn at the database that was skipped are still there. */
static void
take_freed(Relay *relay)
{
	AcemqSlot *slot = relay->slot;

	for (int i = 0; i < slot->nfreed; i++)
		add_range(relay->freed, &relay->nfreed, ACEMQ_FREED_RANGES, slot->freed[i].lo, slot->freed[i].hi);
	slot->nfreed = 0;
}

/*
 * The safety net: prepared transactions, rows that came by replication or by
 * hand, locked rows.  Stretched while nothing happens.
 */
static bool
poll_is_due(Relay *relay)
{
	if (relay->now < relay->poll_at)
		return false;

	relay->fetch_wanted = true;
	for (int i = 0; i < relay->nlocked; i++)
		relay_add_range(relay, relay->locked[i].lo, relay->locked[i].hi);
	if (relay->now >= relay->sweep_at)
	{
		relay_sweep(relay);
		ms_after(&relay->sweep_at, relay->now, SWEEP_EVERY_MS);
	}

	/* A row that holds a lane may be deleted by hand. */
	if (relay->nrows > 0 || relay->nlocked > 0 || relay->prepared_seen || !dlist_is_empty(&relay->lanes->holding))
		relay->poll_delay_ms = acemq_poll_interval;
	else
		relay->poll_delay_ms = Min(relay->poll_delay_ms * 2, (int64) acemq_poll_interval * POLL_STRETCH_MAX);
	relay->nlocked = 0;
	relay->upkeep_at = Min(relay->upkeep_at, relay->now);
	ms_after(&relay->poll_at, relay->now, relay->poll_delay_ms);
	return true;
}

static void
keep_connection(Relay *relay)
{
	if (relay_may_run(relay))
		link_ensure(relay->link, relay->now);
	else if (link_conn(relay->link) && (relay->fence == STORE_FOREIGN || relay->on_wire == 0))
	{
		/* Paused: what is on the wire is waited for.  Fenced: this copy must not talk to the broker at all. */
		relay_lost(relay, NULL, 0);
		return;
	}
	if (link_conn(relay->link) == NULL)
		return;

	link_pump(relay->link);
	relay_take_events(relay);
	notice_loss(relay);
	if (link_conn(relay->link) && relay->now >= relay->confirm_look_at)
	{
		ms_after(&relay->confirm_look_at, relay->now, CONFIRM_LOOK_MS);
		relay_check_confirm_timeout(relay);
	}
}

/* What came before the end still counts: events first. */
static void
notice_loss(Relay *relay)
{
	if (link_conn(relay->link) == NULL || !broker_is_lost(link_conn(relay->link)))
		return;
	relay_take_events(relay);
	if (link_conn(relay->link))
		relay_lost(relay, broker_lost_reason(link_conn(relay->link)), broker_lost_code(link_conn(relay->link)));
}

static void
release_lanes(Relay *relay)
{
	Lane *lane;

	while ((lane = lanes_next_released(relay->lanes, relay->now)) != NULL)
		lane_forget_if_unused(relay->lanes, lane);
}

/* Lanes whose rows were not taken in for want of a probe channel get a chance again, those of a slow queue among them. */
static void
resume_probes(Relay *relay)
{
	if (dlist_is_empty(&relay->lanes->probe_backlog) || relay->now < relay->resume_at)
		return;
	ms_after(&relay->resume_at, relay->now, RELAY_RESUME_MS);
	lanes_resume_probes(relay->lanes, RELAY_PROBE_ROWS);
}

static bool
database_turn_is_due(Relay *relay, bool polled)
{
	if (relay->db_skipped && relay->now < relay->retry_db_at)
		return false;
	return polled || !relay->fence_known || relay->db_skipped || relay->upkeep_more || relay->nfreed > 0 ||
	       relay_settle_is_due(relay) || relay_may_fetch(relay);
}

void
relay_config_changed(Relay *relay)
{
	if (link_settings_changed(relay->link) && link_conn(relay->link))
	{
		/* Our own decision and no error: the log says it, status does not. */
		ereport(LOG, (errmsg("acemq: connecting again, because settings of the connection have changed")));
		relay_lost(relay, NULL, 0);
	}
	link_reread_settings(relay->link);
	acemq_slot_note_settings(relay->slot);
	relay->purge_all = true;
	relay->poll_at = 0;
}

pgsocket
relay_socket(Relay *relay)
{
	return link_conn(relay->link) ? broker_socket(link_conn(relay->link)) : PGINVALID_SOCKET;
}

bool
relay_wants_write(Relay *relay)
{
	return relay->socket_full && link_conn(relay->link) && !broker_is_blocked(link_conn(relay->link));
}

static void
ms_after(TimestampTz *at, TimestampTz now, int64 ms)
{
	*at = now + ms * 1000;
}

static void
earliest(TimestampTz *deadline, TimestampTz at)
{
	if (at != 0 && at < *deadline)
		*deadline = at;
}

TimestampTz
relay_next_deadline(Relay *relay)
{
	TimestampTz deadline = relay->poll_at;

	if (relay_may_run(relay))
		earliest(&deadline, link_next_try_at(relay->link));
	if (link_conn(relay->link))
	{
		earliest(&deadline, relay->now + (int64) Max(acemq_heartbeat, 1) * USECS_PER_SEC / 2);
		earliest(&deadline, lanes_next_release_at(relay->lanes));
		if (!dlist_is_empty(&relay->lanes->probe_backlog))
			earliest(&deadline, Max(relay->resume_at, relay->now + 1000));
		if (relay->next_due > relay->now)
			earliest(&deadline, relay->next_due);
		if (relay->channel_at > relay->now)
			earliest(&deadline, relay->channel_at);
		if (relay->fetch_wanted && relay->look_at > relay->now)
			earliest(&deadline, relay->look_at);
		if (relay->on_wire > 0)
			earliest(&deadline, relay->now + CONFIRM_LOOK_MS * INT64CONST(1000));
	}
	if (relay->db_skipped)
		earliest(&deadline, relay->retry_db_at);
	else
		earliest(&deadline, relay_settle_due_at(relay));
	if (relay->waits_for_standby)
		earliest(&deadline, relay->now + STANDBY_LOOK_MS * INT64CONST(1000));
	return deadline;
}

void
relay_shutdown(Relay *relay)
{
	link_drop(relay->link, NULL, true);
	MemoryContextDelete(relay->context);
}
