/*
 * outbox_sweep.c
 *		acemq.outbox_sweep(): wake the relay and wait until everything that was
 *		committed and due is sent.
 *
 * May depend on: as_owner.h, saved_plan.h, identity.h, shmem.h, slot_text.h, sql_args.h, waited_rows.h.
 */
#include "postgres.h"

#include "as_owner.h"
#include "identity.h"
#include "saved_plan.h"
#include "shmem.h"
#include "slot_text.h"
#include "sql_args.h"
#include "waited_rows.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

PG_FUNCTION_INFO_V1(acemq_outbox_sweep);

/* A worker that was killed is back within two seconds; without one for so long, none is coming. */
#define NO_WORKER_GRACE_MS 5000

/* Between a change and the worker's following it: it has to be woken, and may be in the middle of a connect. */
#define FOLLOW_GRACE_MS 3000

/* Counting what is left for the error message must not take long either. */
#define COUNT_LEFT_MAX 100000

/* Longest sleep: a state that changes without a broadcast, a slot that gets another owner. */
#define SLEEP_MAX_MS 500

/* Reading the table may take at most one part in so many of our time: the relay reads it too. */
#define REST_FACTOR 4

typedef struct Obstacle
{
	const char *detail;
	const char *hint;
} Obstacle;

typedef struct Sweep
{
	WaitedRows *rows;
	TimestampTz deadline;
	TimestampTz worker_seen;
	TimestampTz no_obstacle; /* when the worker was last seen able to relay */
	bool obstacle;           /* it is not now */
	AcemqSlot *slot;         /* the one the two counters below are of */
	uint64 failed;
	uint64 login_refused;
	int refusals;       /* of logins that began after we came */
	int64 last_look_us; /* what the last look at the table cost */
	MemoryContext look_context;
} Sweep;

static void
no_relay(const char *detail, const char *hint)
{
	ereport(ERROR, (errcode(ERRCODE_ACEMQ_NO_RELAY), errmsg("no relay is running for this database"),
	                errdetail_internal("%s", detail), errhint("%s", hint)));
}

/* Reasons that are the same before and after the wait. */
static void
check_server(void)
{
	if (acemq_shared == NULL)
		no_relay("The library is not preloaded.", "Add acemq to shared_preload_libraries and restart the server.");
	if (RecoveryInProgress())
		no_relay("This server is a standby.", "Call the function on the primary.");
}

/* Why the worker does not relay, as far as its state and its settings tell; NULL: it does, or tries to. */
static const Obstacle *
obstacle_of(AcemqSlot *slot)
{
	static const Obstacle off = {"acemq.relay is off in the worker of this database.",
	                             "Turn acemq.relay on; if that is a setting of the database, call "
	                             "acemq.worker_restart() afterwards."};
	static const Obstacle paused = {"Relaying is paused.", "Call acemq.relay_resume()."};
	static const Obstacle fenced = {"This database is a copy of another one, so its relay is fenced.",
	                                "Call acemq.relay_resume() if this copy may send messages."};
	static const Obstacle restart = {"The library and the extension are of different versions.",
	                                 "Update the extension with ALTER EXTENSION, or restart the server."};
	static const Obstacle no_url = {"The worker of this database has no broker URL.",
	                                "Set acemq.url; if that is a setting of the database, call "
	                                "acemq.worker_restart() afterwards."};
	uint32 settings = pg_atomic_read_u32(&slot->worker_settings);
	bool settings_known = (settings & ACEMQ_WORKER_READ_SETTINGS) != 0;

	switch ((AcemqState) pg_atomic_read_u32(&slot->state))
	{
		case ACEMQ_STATE_PAUSED:
			return settings_known && (settings & ACEMQ_WORKER_RELAY_ON) == 0 ? &off : &paused;
		case ACEMQ_STATE_FENCED:
			return &fenced;
		case ACEMQ_STATE_NEEDS_RESTART:
			return &restart;
		case ACEMQ_STATE_STARTING:
		case ACEMQ_STATE_DISCONNECTED:
			return settings_known && (settings & ACEMQ_WORKER_HAS_URL) == 0 ? &no_url : NULL;
		case ACEMQ_STATE_RELAYING:
		case ACEMQ_STATE_IDLE:
		case ACEMQ_STATE_BLOCKED:
			break;
	}
	return NULL;
}

/* Paused or fenced also says the table, as committed: then there is nothing for the worker to follow. */
static bool
table_agrees(AcemqSlot *slot)
{
	AcemqState state = (AcemqState) pg_atomic_read_u32(&slot->state);
	Identity identity;
	AsOwner save;

	if (state != ACEMQ_STATE_PAUSED && state != ACEMQ_STATE_FENCED)
		return false;
	as_owner_begin(&save);
	SPI_connect();
	identity = identity_read();
	SPI_finish();
	as_owner_end(&save);
	return state == ACEMQ_STATE_FENCED ? identity.fenced : identity.paused;
}

/* A worker that has not yet followed a change gets a few seconds, but no more than the caller has. */
static void
check_state(Sweep *sweep, AcemqSlot *slot, TimestampTz now)
{
	const Obstacle *obstacle = obstacle_of(slot);

	sweep->obstacle = obstacle != NULL;
	if (obstacle == NULL)
		sweep->no_obstacle = now;
	else if (now >= sweep->deadline || TimestampDifferenceExceeds(sweep->no_obstacle, now, FOLLOW_GRACE_MS) ||
	         table_agrees(slot))
		no_relay(obstacle->detail, obstacle->hint);
}

static void
try_now(AcemqSlot *slot)
{
	pg_atomic_write_u32(&slot->retry_now, 1);
	acemq_wake_worker(slot);
}

/*
 * Find the worker's slot and see that its worker can do the job.  A worker
 * that is just being restarted gets a few seconds.
 */
static void
check_relay(Sweep *sweep)
{
	AcemqSlot *slot = acemq_my_slot();
	TimestampTz now = GetCurrentTimestamp();

	if (slot != sweep->slot)
	{
		/* In the middle of the wait: any other value, so that every row is looked at. */
		sweep->failed = slot ? pg_atomic_read_u64(&slot->failed) + (sweep->rows ? 1 : 0) : 0;
		sweep->slot = slot;
		sweep->login_refused = slot ? pg_atomic_read_u64(&slot->login_refused) : 0;
		sweep->refusals = 0;
		if (slot != NULL)
			try_now(slot);
	}
	if (slot != NULL && slot->worker_pid != 0)
	{
		sweep->worker_seen = now;
		check_state(sweep, slot, now);
		return;
	}
	if (TimestampDifferenceExceeds(sweep->worker_seen, now, NO_WORKER_GRACE_MS))
		no_relay("No worker serves this database.", "See acemq.doctor() and the server's log for the reason.");
}

/*
 * We have asked the worker to try again: what was mended before the call must
 * count.  It takes that request before it tries, so a refusal that is counted while the
 * request is still there is of an older try.  And the try may have begun a moment
 * before the worker heard of a change of settings, so it takes two.
 */
static void
check_login(Sweep *sweep)
{
	AcemqSlot *slot = sweep->slot;
	uint64 refused;

	if (slot == NULL)
		return;
	refused = pg_atomic_read_u64(&slot->login_refused);
	pg_read_barrier();
	if (refused == sweep->login_refused)
		return;
	sweep->login_refused = refused;
	if (pg_atomic_read_u32(&slot->retry_now) != 0)
		return;
	if (++sweep->refusals > 1)
		ereport(ERROR, (errcode(ERRCODE_ACEMQ_BROKER_UNAVAILABLE), errmsg("the broker refused the login"),
		                errdetail_internal("%s", slot_texts(slot).connection_error),
		                errhint("Correct acemq.url (or what acemq.password_file names, if it is set); if acemq.url is "
		                        "a setting of the database, call "
		                        "acemq.worker_restart() afterwards.")));
	try_now(slot);
}

static void
message_failed(Sweep *sweep)
{
	ereport(ERROR, (errcode(ERRCODE_ACEMQ_MESSAGE_REFUSED),
	                errmsg("message \"%s\" could not be delivered: %s", waited_rows_failed_message(sweep->rows),
	                       waited_rows_failed_reason(sweep->rows)),
	                errhint("It stays in the outbox and is tried again until acemq.max_attempts is reached; see "
	                        "acemq.outbox_pending and acemq.outbox_retired.")));
}

static bool
is_cut_off(AcemqState state)
{
	return state == ACEMQ_STATE_DISCONNECTED || state == ACEMQ_STATE_BLOCKED;
}

/* The connection's error explains a missing connection, and nothing else does. */
static char *
what_the_relay_does(AcemqState state, const SlotTexts *texts)
{
	if (is_cut_off(state) && texts->connection_error_at != 0)
		return psprintf("The relay is in state \"%s\": %s", acemq_state_name(state), texts->connection_error);
	if (!is_cut_off(state) && texts->held_by[0] != '\0')
		return psprintf("The relay is in state \"%s\", and a message that failed or is leased holds its lane: %s",
		                acemq_state_name(state), texts->held_by);
	return psprintf("The relay is in state \"%s\".", acemq_state_name(state));
}

static const char *
what_to_do(AcemqState state, const SlotTexts *texts)
{
	if (!is_cut_off(state) && texts->held_by[0] != '\0')
		return "acemq.outbox_pending shows what has failed and why, and when it is tried again; acemq.outbox_release() "
		       "has it tried at once, acemq.outbox_cancel() gives it up.";
	return "They stay in the outbox and are sent when the broker takes them.";
}

static void
timed_out(Sweep *sweep)
{
	int64 left = waited_rows_count_left(sweep->rows, COUNT_LEFT_MAX);
	AcemqState state = ACEMQ_STATE_STARTING;
	SlotTexts texts = {.held_by = ""};

	if (sweep->slot != NULL)
	{
		state = (AcemqState) pg_atomic_read_u32(&sweep->slot->state);
		texts = slot_texts(sweep->slot);
	}

	ereport(ERROR,
	        (errcode(ERRCODE_ACEMQ_BROKER_UNAVAILABLE),
	         errmsg("not everything was sent in time: %s%lld of %lld messages left",
	                left > COUNT_LEFT_MAX ? "more than " : "", (long long) Min(left, COUNT_LEFT_MAX),
	                (long long) waited_rows_count(sweep->rows)),
	         errdetail_internal("%s", what_the_relay_does(state, &texts)), errhint("%s", what_to_do(state, &texts))));
}

/* Are they gone?  Every row is looked at only if some row has failed since the last time. */
static bool
look_at_rows(Sweep *sweep)
{
	uint64 failed = sweep->slot ? pg_atomic_read_u64(&sweep->slot->failed) : sweep->failed;
	TimestampTz begin = GetCurrentTimestamp();
	MemoryContext old = MemoryContextSwitchTo(sweep->look_context);
	WaitedOutcome outcome = waited_rows_look(sweep->rows, failed != sweep->failed);

	MemoryContextSwitchTo(old);
	if (outcome == WAITED_FAILED)
		message_failed(sweep);
	MemoryContextReset(sweep->look_context);
	sweep->failed = failed;
	sweep->last_look_us = GetCurrentTimestamp() - begin;
	return outcome == WAITED_GONE;
}

/* Interruptible sleep on our own latch, while we are in no condition variable's queue. */
static void
rest(long ms)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms, PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/*
 * Until the relay reports progress.  At full speed it does so a thousand times
 * a second, hence the rest: a look at a large table must stay rare compared to its cost.
 * We queue up again before the next look, so that no report after it is missed.
 */
static void
wait_for_progress(Sweep *sweep, TimestampTz now)
{
	long left = TimestampDifferenceMilliseconds(now, sweep->deadline);
	long pause = sweep->last_look_us * REST_FACTOR / 1000;

	if (sweep->slot == NULL)
	{
		rest(Min(left, SLEEP_MAX_MS));
		return;
	}
	ConditionVariableTimedSleep(&sweep->slot->progress, Min(left, SLEEP_MAX_MS), PG_WAIT_EXTENSION);
	if (pause > 0)
	{
		ConditionVariableCancelSleep();
		rest(Min(pause, left));
		ConditionVariablePrepareToSleep(&sweep->slot->progress);
	}
}

static void
wait_until_sent(Sweep *sweep)
{
	for (;;)
	{
		TimestampTz now;

		check_relay(sweep);
		/* Nothing to wait for is no success where nothing would be sent. */
		if (look_at_rows(sweep) && (waited_rows_count(sweep->rows) > 0 || !sweep->obstacle))
			break;
		check_login(sweep);
		now = GetCurrentTimestamp();
		if (now >= sweep->deadline)
			timed_out(sweep);
		wait_for_progress(sweep, now);
	}
	ConditionVariableCancelSleep();
}

Datum
acemq_outbox_sweep(PG_FUNCTION_ARGS)
{
	int64 timeout_ms = arg_interval_ms(fcinfo, 0, "timeout", 0);
	TimestampTz now = GetCurrentTimestamp();
	Sweep sweep = {0};

	sweep.deadline = TimestampTzPlusMilliseconds(now, timeout_ms);
	sweep.worker_seen = sweep.no_obstacle = now;
	sweep.look_context = AllocSetContextCreate(CurrentMemoryContext, "acemq sweep", ALLOCSET_SMALL_SIZES);

	/* Counters first, rows afterwards: what fails in between is seen as a change. */
	check_server();
	check_relay(&sweep);
	sweep.rows = waited_rows_collect();
	if (sweep.slot != NULL)
		try_now(sweep.slot);
	wait_until_sent(&sweep);
	PG_RETURN_INT64(waited_rows_count(sweep.rows));
}
