/*-------------------------------------------------------------------------
 *
 * shmem.c
 *		The seam between ordinary backends and our own processes: making the
 *		shared memory, finding a slot, waking, what a worker shows of itself.
 *
 * May depend on: guc.h.
 *
 *-------------------------------------------------------------------------
 */
#include "shmem.h"

#include "guc.h"

#include "common/hashfn.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#define TRANCHE_NAME "acemq"

AcemqShared *acemq_shared = NULL;

static shmem_request_hook_type previous_request_hook = NULL;
static shmem_startup_hook_type previous_startup_hook = NULL;

static void request_memory(void);
static void make_memory(void);
static void first_init(AcemqShared *shared);
static int slot_count(void);
static Size memory_size(void);
static void set_text(AcemqSlot *slot, char *field, Size size, const char *text);
static void note_blocked(AcemqSlot *slot, bool begins, TimestampTz now);

void
acemq_shmem_init(void)
{
	previous_request_hook = shmem_request_hook;
	shmem_request_hook = request_memory;
	previous_startup_hook = shmem_startup_hook;
	shmem_startup_hook = make_memory;
}

static void
request_memory(void)
{
	if (previous_request_hook)
		previous_request_hook();
	RequestAddinShmemSpace(memory_size());
	RequestNamedLWLockTranche(TRANCHE_NAME, 1);
}

/* After a crash of any backend the postmaster comes here again, with fresh memory. */
static void
make_memory(void)
{
	bool found;

	if (previous_startup_hook)
		previous_startup_hook();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	acemq_shared = ShmemInitStruct("acemq", memory_size(), &found);
	if (!found)
		first_init(acemq_shared);
	LWLockRelease(AddinShmemInitLock);
}

/* Seats for served databases, and room beside them for workers that only look. */
static int
slot_count(void)
{
	return acemq_max_databases + ACEMQ_PROBES;
}

static Size
memory_size(void)
{
	return add_size(offsetof(AcemqShared, slots), mul_size(slot_count(), sizeof(AcemqSlot)));
}

static void
first_init(AcemqShared *shared)
{
	memset(shared, 0, memory_size());
	shared->lock = &GetNamedLWLockTranche(TRANCHE_NAME)->lock;
	pg_atomic_init_u32(&shared->rescan, 0);
	ConditionVariableInit(&shared->worker_gone);
	SpinLockInit(&shared->request_mutex);
	shared->nslots = slot_count();

	for (int i = 0; i < shared->nslots; i++)
	{
		AcemqSlot *slot = &shared->slots[i];

		SpinLockInit(&slot->late_mutex);
		LWLockInitialize(&slot->text_lock, shared->lock->tranche);
		ConditionVariableInit(&slot->fetch_done);
		ConditionVariableInit(&slot->progress);
		acemq_slot_reset(slot);
	}
}

/*
 * A backend of the slot's former database may still hold a pointer to it and
 * read a counter here; it sees the old value or zero, which is why the locks
 * and condition variables are left alone.
 */
void
acemq_slot_reset(AcemqSlot *slot)
{
	pg_atomic_uint64 *counters[] = {
	    &slot->scan_cursor,      &slot->state_since,      &slot->pending,       &slot->retired,
	    &slot->oldest,           &slot->in_flight,        &slot->added,         &slot->published,
	    &slot->failed,           &slot->returned,         &slot->nacked,        &slot->reconnects,
	    &slot->overtaken,        &slot->resent,           &slot->login_refused, &slot->skipped_turns,
	    &slot->held_since,       &slot->claims_purged,    &slot->outbox_purged, &slot->lag_since,
	    &slot->ladder_scheduled, &slot->ladder_delivered, &slot->ladder_hops,   &slot->ladder_malformed,
	    &slot->scheduler_since,  &slot->ladder_seen_at};

	for (int i = 0; i < lengthof(counters); i++)
		pg_atomic_init_u64(counters[i], 0);
	for (int i = 0; i < lengthof(slot->fetched); i++)
		pg_atomic_init_u64(&slot->fetched[i], 0);
	for (int half = 0; half < 2; half++)
		for (int i = 0; i < ACEMQ_LAG_BUCKETS; i++)
			pg_atomic_init_u32(&slot->lag[half][i], 0);
	acemq_slot_forget_targets(slot);
	pg_atomic_init_u32(&slot->lag_half, 0);
	pg_atomic_init_u32(&slot->leave, 0);
	pg_atomic_init_u32(&slot->prepared, 0);
	pg_atomic_init_u32(&slot->wake, 0);
	pg_atomic_init_u32(&slot->fetch_epoch, 0);
	pg_atomic_init_u32(&slot->state, ACEMQ_STATE_STARTING);
	pg_atomic_init_u32(&slot->pending_approximate, 1);
	pg_atomic_init_u32(&slot->retry_now, 0);
	pg_atomic_init_u32(&slot->connect_problem, ACEMQ_CONNECT_FINE);
	pg_atomic_init_u32(&slot->worker_settings, 0);
	pg_atomic_init_u32(&slot->scheduler_state, ACEMQ_SCHEDULER_OFF);
	pg_atomic_init_u32(&slot->rungs_differ, 0);
	pg_atomic_init_u32(&slot->ladder_problems, 0);
	pg_atomic_init_u32(&slot->worker_url_hash, 0);

	SpinLockAcquire(&slot->late_mutex);
	slot->nlate = 0;
	slot->nfreed = 0;
	SpinLockRelease(&slot->late_mutex);

	LWLockAcquire(&slot->text_lock, LW_EXCLUSIVE);
	slot->broker[0] = slot->last_error[0] = slot->connection_error[0] = slot->held_by[0] = '\0';
	slot->scheduler_problem[0] = '\0';
	slot->last_error_at = slot->connection_error_at = 0;
	slot->blocked_us = 0;
	slot->blocked_at = 0;
	LWLockRelease(&slot->text_lock);
}

AcemqSlot *
acemq_slot_of(Oid database)
{
	if (acemq_shared == NULL || !OidIsValid(database))
		return NULL;
	for (int i = 0; i < acemq_shared->nslots; i++)
		if (acemq_shared->slots[i].database == database)
			return &acemq_shared->slots[i];
	return NULL;
}

/* Looked up again only when the slot was given to another database meanwhile. */
AcemqSlot *
acemq_my_slot(void)
{
	static AcemqSlot *cached = NULL;

	if (cached == NULL || cached->database != MyDatabaseId)
		cached = acemq_slot_of(MyDatabaseId);
	return cached;
}

/*
 * Only the first of many commits pays for the signal: a flag that is already
 * set will be seen, because the worker clears it before it reads the table.
 * The latch is that of a PGPROC, so one that was just recycled costs somebody
 * a needless wake-up and nothing else.
 */
void
acemq_wake_worker(AcemqSlot *slot)
{
	if (pg_atomic_exchange_u32(&slot->wake, 1) == 0)
	{
		Latch *latch = *(Latch *volatile *) &slot->worker_latch;

		if (latch != NULL)
			SetLatch(latch);
	}
}

/* Not by way of the wake flag: a worker with nothing to relay does not clear that one. */
void
acemq_ask_to_leave(AcemqSlot *slot)
{
	Latch *latch;

	pg_atomic_write_u32(&slot->leave, 1);
	pg_memory_barrier();
	latch = *(Latch *volatile *) &slot->worker_latch;
	if (latch != NULL)
		SetLatch(latch);
	acemq_nudge_launcher();
}

void
acemq_wake_launcher(void)
{
	acemq_wake_launcher_for(MyDatabaseId);
}

void
acemq_wake_launcher_for(Oid database)
{
	if (acemq_shared == NULL)
		return;
	if (OidIsValid(database))
	{
		SpinLockAcquire(&acemq_shared->request_mutex);
		if (acemq_shared->nrequests < ACEMQ_REQUESTS)
			acemq_shared->requests[acemq_shared->nrequests] = database;
		if (acemq_shared->nrequests <= ACEMQ_REQUESTS)
			acemq_shared->nrequests++;
		SpinLockRelease(&acemq_shared->request_mutex);
	}
	pg_atomic_write_u32(&acemq_shared->rescan, 1);
	acemq_nudge_launcher();
}

void
acemq_nudge_launcher(void)
{
	Latch *latch;

	/* The change has to be there before the launcher wakes; SetLatch() has a barrier of its own. */
	latch = *(Latch *volatile *) &acemq_shared->launcher_latch;
	if (latch != NULL)
		SetLatch(latch);
}

const char *
acemq_state_name(AcemqState state)
{
	static const char *const names[] = {
	    [ACEMQ_STATE_STARTING] = "starting", [ACEMQ_STATE_RELAYING] = "relaying",
	    [ACEMQ_STATE_IDLE] = "idle",         [ACEMQ_STATE_DISCONNECTED] = "disconnected",
	    [ACEMQ_STATE_BLOCKED] = "blocked",   [ACEMQ_STATE_PAUSED] = "paused",
	    [ACEMQ_STATE_FENCED] = "fenced",     [ACEMQ_STATE_NEEDS_RESTART] = "needs restart"};

	return names[state];
}

static void
note_blocked(AcemqSlot *slot, bool begins, TimestampTz now)
{
	LWLockAcquire(&slot->text_lock, LW_EXCLUSIVE);
	if (slot->blocked_at != 0)
		slot->blocked_us += Max(now - slot->blocked_at, 0);
	slot->blocked_at = begins ? now : 0;
	LWLockRelease(&slot->text_lock);
}

int64
acemq_slot_blocked_us(AcemqSlot *slot)
{
	int64 blocked;

	LWLockAcquire(&slot->text_lock, LW_SHARED);
	blocked = slot->blocked_us;
	if (slot->blocked_at != 0)
		blocked += Max(GetCurrentTimestamp() - slot->blocked_at, 0);
	LWLockRelease(&slot->text_lock);
	return blocked;
}

void
acemq_slot_set_state(AcemqSlot *slot, AcemqState state)
{
	AcemqState before = (AcemqState) pg_atomic_read_u32(&slot->state);
	TimestampTz now;

	if (before == state)
		return;
	now = GetCurrentTimestamp();
	if (before == ACEMQ_STATE_BLOCKED || state == ACEMQ_STATE_BLOCKED)
		note_blocked(slot, state == ACEMQ_STATE_BLOCKED, now);
	pg_atomic_write_u64(&slot->state_since, now);
	pg_atomic_write_u32(&slot->state, state);
	ConditionVariableBroadcast(&slot->progress);
}

uint32
acemq_url_hash(void)
{
	const char *url = acemq_url ? acemq_url : "";

	return hash_bytes((const unsigned char *) url, (int) strlen(url));
}

void
acemq_slot_note_settings(AcemqSlot *slot)
{
	uint32 settings = ACEMQ_WORKER_READ_SETTINGS;

	if (acemq_url != NULL && acemq_url[strspn(acemq_url, " \t\r\n")] != '\0')
		settings |= ACEMQ_WORKER_HAS_URL;
	if (acemq_relay)
		settings |= ACEMQ_WORKER_RELAY_ON;
	pg_atomic_write_u32(&slot->worker_url_hash, acemq_url_hash());
	pg_atomic_write_u32(&slot->worker_settings, settings);
	ConditionVariableBroadcast(&slot->progress);
}

void
acemq_slot_set_error(AcemqSlot *slot, const char *text)
{
	set_text(slot, slot->last_error, sizeof(slot->last_error), text);
}

void
acemq_slot_set_connection_error(AcemqSlot *slot, const char *text)
{
	set_text(slot, slot->connection_error, sizeof(slot->connection_error), text);
}

void
acemq_slot_set_broker(AcemqSlot *slot, const char *text)
{
	set_text(slot, slot->broker, sizeof(slot->broker), text);
}

void
acemq_slot_set_scheduler_problem(AcemqSlot *slot, const char *text)
{
	set_text(slot, slot->scheduler_problem, sizeof(slot->scheduler_problem), text);
}

void
acemq_slot_set_scheduler_state(AcemqSlot *slot, AcemqSchedulerState state)
{
	if (pg_atomic_read_u32(&slot->scheduler_state) == (uint32) state)
		return;
	pg_atomic_write_u64(&slot->scheduler_since, GetCurrentTimestamp());
	pg_atomic_write_u32(&slot->scheduler_state, state);
}

const char *
acemq_scheduler_state_name(AcemqSchedulerState state)
{
	static const char *const names[] = {[ACEMQ_SCHEDULER_OFF] = "off",
	                                    [ACEMQ_SCHEDULER_DISCONNECTED] = "disconnected",
	                                    [ACEMQ_SCHEDULER_NOT_CONSUMING] = "not consuming",
	                                    [ACEMQ_SCHEDULER_CONSUMING] = "consuming",
	                                    [ACEMQ_SCHEDULER_BLOCKED] = "blocked"};

	return names[state];
}

void
acemq_slot_set_held_by(AcemqSlot *slot, const char *text)
{
	set_text(slot, slot->held_by, sizeof(slot->held_by), text);
}

/* The texts are UTF-8 whatever the database: half a character would make the whole view unreadable. */
static void
set_text(AcemqSlot *slot, char *field, Size size, const char *text)
{
	int len = pg_encoding_mbcliplen(PG_UTF8, text, strlen(text), size - 1);

	LWLockAcquire(&slot->text_lock, LW_EXCLUSIVE);
	memcpy(field, text, len);
	field[len] = '\0';
	if (field == slot->last_error)
		slot->last_error_at = GetCurrentTimestamp();
	else if (field == slot->connection_error)
		slot->connection_error_at = GetCurrentTimestamp();
	LWLockRelease(&slot->text_lock);
}
