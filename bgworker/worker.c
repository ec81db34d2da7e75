/*-------------------------------------------------------------------------
 *
 * worker.c
 *		The process that serves one database: from its start to the loop.
 *
 * It first finds out whether there is anything to serve, and tells the
 * launcher.  Then it lets the relay, the scheduler and housekeeping work in
 * bounded steps and sleeps at the bottom of the loop.  An ERROR anywhere ends
 * the process; the launcher starts another one.
 *
 * May depend on: relay.h, scheduler.h, housekeeping.h, db.h, slots.h, session.h, wait.h, link.h, src/shmem.h.
 *
 *-------------------------------------------------------------------------
 */
#include "worker.h"

#include "db.h"
#include "housekeeping.h"
#include "link.h"
#include "relay.h"
#include "scheduler.h"
#include "session.h"
#include "shmem.h"
#include "slots.h"
#include "wait.h"

#include <signal.h>

#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* While the extension is locked by somebody, or of a version that we cannot serve. */
#define LOOK_AGAIN_MS 1000

/* Nothing is left to do but saying goodbye. */
static volatile sig_atomic_t leaving = false;

static AcemqSlot *own_slot = NULL;
static emit_log_hook_type next_log_hook = NULL;

static void handle_sigterm(SIGNAL_ARGS);
static void pass_over_own_end(ErrorData *error);
static bool find_extension(AcemqSlot *slot);
static void report_other_version(AcemqSlot *slot);
static void serve(AcemqSlot *slot);
static SchedulerPermission may_talk_to_broker(Relay *relay);
static void sleep_until_needed(Relay *relay, Scheduler *scheduler);
static bool reload_if_needed(void);
static bool told_to_leave(AcemqSlot *slot);

void
acemq_worker_main(Datum arg)
{
	Oid database = DatumGetObjectId(arg);
	AcemqSlot *slot;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, handle_sigterm);
	session_reload_first();
	BackgroundWorkerUnblockSignals();
	link_process_init();

	slot = slot_attach(database);
	if (slot == NULL)
		proc_exit(0);
	own_slot = slot;
	next_log_hook = emit_log_hook;
	emit_log_hook = pass_over_own_end;

	/* The launcher looks whether connections are allowed; being refused here would be one more error in the log. */
	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, BGWORKER_BYPASS_ALLOWCONN);
	session_fix_settings();
	session_keep_memory();
	session_name_messages("acemq worker");
	pgstat_report_appname("acemq worker");
	pgstat_report_activity(STATE_IDLE, NULL);

	if (find_extension(slot))
		serve(slot);

	/* Going was asked for, or there is nothing here: no error either way. */
	slot_note_request();
	proc_exit(0);
}

/*
 * A call into the client library that is waiting for the broker has to be got
 * out first.  die() does the rest at the next CHECK_FOR_INTERRUPTS, and it is
 * what a wait of the server's own looks for.  It also logs a FATAL, which is
 * not called for when a goodbye that is too long is cut short.
 */
static void
handle_sigterm(SIGNAL_ARGS)
{
	int saved_errno = errno;

	slot_note_request();
	link_kick();
	errno = saved_errno;
	if (!leaving)
		die(postgres_signal_arg);
}

/*
 * Told to leave in the middle of a request to the broker, the worker is cut
 * short by a SIGTERM of ours: a FATAL in the log would be an alarm somewhere.
 */
static void
pass_over_own_end(ErrorData *error)
{
	if (error->elevel == FATAL && error->sqlerrcode == ERRCODE_ADMIN_SHUTDOWN && told_to_leave(own_slot))
		error->output_to_server = false;
	if (next_log_hook != NULL)
		next_log_hook(error);
}

/* True when there is an extension that we can and may serve; false when we are to go. */
static bool
find_extension(AcemqSlot *slot)
{
	while (!told_to_leave(slot))
	{
		CHECK_FOR_INTERRUPTS();
		(void) reload_if_needed();

		switch (db_check_extension())
		{
			case DB_EXTENSION_PRESENT:
				return slot_take_seat(slot);
			case DB_EXTENSION_ABSENT:
				slot_report(slot, ACEMQ_FOUND_ABSENT);
				return false;
			case DB_EXTENSION_OTHER_VERSION:
				if (!slot_take_seat(slot))
					return false;
				report_other_version(slot);
				break;
			case DB_BUSY:
				slot_report(slot, ACEMQ_FOUND_BUSY);
				break;
		}
		wait_for_work(NULL, 0, TimestampTzPlusMilliseconds(GetCurrentTimestamp(), LOOK_AGAIN_MS));
	}
	return false;
}

static void
report_other_version(AcemqSlot *slot)
{
	if (pg_atomic_read_u32(&slot->state) == ACEMQ_STATE_NEEDS_RESTART)
		return;
	acemq_slot_set_state(slot, ACEMQ_STATE_NEEDS_RESTART);
	ereport(WARNING, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
	                  errmsg("the SQL objects of extension \"acemq\" do not fit the library, which is of version %s",
	                         ACEMQ_VERSION),
	                  errdetail("Nothing is relayed."),
	                  errhint("Run ALTER EXTENSION acemq UPDATE in this database, or restart the server if the library "
	                          "is the older one.")));
}

static void
serve(AcemqSlot *slot)
{
	Relay *relay = relay_create(TopMemoryContext, slot);
	Scheduler *scheduler = scheduler_create(TopMemoryContext, slot);

	while (!told_to_leave(slot))
	{
		bool more;

		CHECK_FOR_INTERRUPTS();
		if (reload_if_needed())
		{
			relay_config_changed(relay);
			scheduler_config_changed(scheduler);
		}
		if (pg_atomic_exchange_u32(&slot->retry_now, 0) != 0)
		{
			relay_try_now(relay);
			scheduler_try_now(scheduler);
		}
		housekeeping_step();
		more = relay_step(relay);
		more |= scheduler_step(scheduler, may_talk_to_broker(relay));
		if (!more)
			sleep_until_needed(relay, scheduler);
	}
	leaving = true;
	relay_shutdown(relay);
	scheduler_shutdown(scheduler);
}

static SchedulerPermission
may_talk_to_broker(Relay *relay)
{
	if (!relay_fence_known(relay))
		return SCHEDULER_NOT_KNOWN_YET;
	return relay_fence_allows_broker(relay) ? SCHEDULER_ALLOWED : SCHEDULER_FENCED;
}

static void
sleep_until_needed(Relay *relay, Scheduler *scheduler)
{
	WaitSocket sockets[] = {{relay_socket(relay), relay_wants_write(relay)},
	                        {scheduler_socket(scheduler), scheduler_wants_write(scheduler)}};
	TimestampTz until = Min(relay_next_deadline(relay), housekeeping_next_deadline());
	TimestampTz scheduled = scheduler_next_deadline(scheduler);

	if (scheduled != 0)
		until = Min(until, scheduled);
	wait_for_work(sockets, lengthof(sockets), until);
}

static bool
reload_if_needed(void)
{
	if (!ConfigReloadPending)
		return false;
	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
	return true;
}

/* Our successor, if there is to be one, finds out what there is now. */
static bool
told_to_leave(AcemqSlot *slot)
{
	return pg_atomic_read_u32(&slot->leave) != 0;
}
