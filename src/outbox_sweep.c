/*
 * outbox_sweep.c
 *		acemq.outbox_sweep(): wake the relay and wait until everything that was
 *		committed and due is sent.
 *
 * May depend on: shmem.h, guc.h, slot_text.h, sql_args.h, waited_rows.h.
 */
#include "postgres.h"

#include "guc.h"
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

/* Longest sleep: a state that changes without a broadcast, a slot that gets another owner. */
#define SLEEP_MAX_MS 500

/* Reading the table may take at most one part in so many of our time: the relay reads it too. */
#define REST_FACTOR 4

typedef struct Sweep
{
	WaitedRows *rows;
	TimestampTz deadline;
	TimestampTz worker_seen;
	AcemqSlot *slot; /* the one the two counters below are of */
	uint64 failed;
	uint64 login_refused;
	int64 last_look_us; /* what the last look at the table cost */
	MemoryContext look_context;
} Sweep;

static char *
slot_error(AcemqSlot *slot)
{
	return slot ? slot_texts(slot).last_error : "";
}

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

static void
check_state(AcemqSlot *slot)
{
	switch ((AcemqState) pg_atomic_read_u32(&slot->state))
	{
		case ACEMQ_STATE_PAUSED:
			no_relay("Relaying is paused, or acemq.relay is off.",
			         "Call acemq.relay_resume(), or turn acemq.relay on.");
			break;
		case ACEMQ_STATE_FENCED:
			no_relay("This database is a copy of another one, so its relay is fenced.",
			         "Call acemq.relay_resume() if this copy may send messages.");
			break;
		case ACEMQ_STATE_NEEDS_RESTART:
			no_relay("The library and the extension are of different versions.",
			         "Update the extension with ALTER EXTENSION, or restart the server.");
			break;
		case ACEMQ_STATE_STARTING:
		case ACEMQ_STATE_DISCONNECTED:
			if (acemq_url == NULL || acemq_url[0] == '\0')
				no_relay("No broker URL is set.", "Set acemq.url.");
			break;
		case ACEMQ_STATE_RELAYING:
		case ACEMQ_STATE_IDLE:
		case ACEMQ_STATE_BLOCKED:
			break;
	}
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
	}
	if (slot != NULL && slot->worker_pid != 0)
	{
		sweep->worker_seen = now;
		check_state(slot);
		return;
	}
	if (TimestampDifferenceExceeds(sweep->worker_seen, now, NO_WORKER_GRACE_MS))
		no_relay("No worker serves this database.", "See acemq.doctor() and the server's log for the reason.");
}

/* One that was refused before we came counts too: the worker waits long before it tries again. */
static void
check_login(Sweep *sweep)
{
	AcemqSlot *slot = sweep->slot;

	if (slot != NULL && (pg_atomic_read_u64(&slot->login_refused) != sweep->login_refused ||
	                     pg_atomic_read_u32(&slot->login_refused_last) != 0))
		ereport(ERROR,
		        (errcode(ERRCODE_ACEMQ_BROKER_UNAVAILABLE), errmsg("the broker refused the login"),
		         errdetail_internal("%s", slot_error(slot)), errhint("Correct acemq.url or acemq.password_file.")));
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

static void
timed_out(Sweep *sweep)
{
	AcemqSlot *slot = sweep->slot;
	const char *state = slot ? acemq_state_name((AcemqState) pg_atomic_read_u32(&slot->state)) : "starting";
	char *error = slot_error(slot);

	ereport(ERROR, (errcode(ERRCODE_ACEMQ_BROKER_UNAVAILABLE),
	                errmsg("not everything was sent in time: up to %lld of %lld messages are waiting",
	                       (long long) waited_rows_left(sweep->rows), (long long) waited_rows_count(sweep->rows)),
	                error[0] != '\0' ? errdetail("The relay is in state \"%s\"; its last error was: %s", state, error)
	                                 : errdetail("The relay is in state \"%s\".", state),
	                errhint("The messages stay in the outbox and are sent when the broker takes them.")));
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
		if (look_at_rows(sweep))
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
	sweep.worker_seen = now;
	sweep.look_context = AllocSetContextCreate(CurrentMemoryContext, "acemq sweep", ALLOCSET_SMALL_SIZES);

	/* Counters first, rows afterwards: what fails in between is seen as a change. */
	check_server();
	check_relay(&sweep);
	sweep.rows = waited_rows_collect();
	if (sweep.slot != NULL)
		acemq_wake_worker(sweep.slot);
	wait_until_sent(&sweep);
	PG_RETURN_INT64(waited_rows_count(sweep.rows));
}
