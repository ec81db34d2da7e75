/*-------------------------------------------------------------------------
 *
 * launcher.c
 *		The process that starts and restarts the workers, one per cluster.
 *
 * Connected to no database, so it is in nobody's way.  Each turn it looks at
 * what has changed (databases, requests, holds, workers that ended) and moves
 * every database along the edges drawn in bgworker/README.md; then it sleeps
 * until something is due or its latch is set.  How a worker is started and
 * told to end is in launch.c.
 *
 * A worker that is to go is asked to; one that does not hear it gets SIGTERM
 * and nothing harder, which the server would take for a crash.  When the launcher itself ends its workers go on, and the next
 * launcher adopts them.
 *
 * May depend on: databases.h, launch.h, session.h, slots.h, wait.h, src/shmem.h, src/guc.h.
 *
 *-------------------------------------------------------------------------
 */
#include "launcher.h"

#include "databases.h"
#include "guc.h"
#include "launch.h"
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
#include "utils/timestamp.h"

#define SCAN_INTERVAL_MS 60000
/* pg_database was locked, or no background worker slot was free. */
#define RETRY_INTERVAL_MS 5000
/* Things nobody tells us about: a hold whose owner vanished, the end of an adopted worker. */
#define WATCH_INTERVAL_MS 200

/* A worker that ends in error sooner than this is started again with growing delay. */
#define YOUNG_MS       60000
#define FIRST_DELAY_MS 1000
#define LAST_DELAY_MS  30000

static TimestampTz now;
static TimestampTz next_scan = 0;
static TimestampTz wake_at;

static void announce(void);
static void retire(int code, Datum arg);
static void launcher_turn(void);
static bool note_holds(void);
static void attend_all(void);
static void wake_by(TimestampTz when);
static void take_requests(void);
static void wanted(Database *database);
static void attend(Database *database);
static void stop_worker(Database *database);
static void worker_ended(Database *database);
static void died(Database *database, bool on_request);
static void report_over_limit(Database *database);
static void give_up_slot(Database *database);
static void start_due_workers(void);
static void report_exhaustion(Database *refused);

void
acemq_launcher_main(Datum arg)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	session_reload_first();
	BackgroundWorkerUnblockSignals();

	announce();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	pgstat_report_appname("acemq launcher");
	launch_adopt_workers();

	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		launcher_turn();
		wait_for_work(NULL, 0, wake_at);
	}
}

/* Requests are heeded from here on; the latch may be set before the first turn. */
static void
announce(void)
{
	before_shmem_exit(retire, (Datum) 0);
	LWLockAcquire(acemq_shared->lock, LW_EXCLUSIVE);
	acemq_shared->launcher_pid = MyProcPid;
	acemq_shared->launcher_latch = MyLatch;
	LWLockRelease(acemq_shared->lock);
}

static void
retire(int code, Datum arg)
{
	LWLockAcquire(acemq_shared->lock, LW_EXCLUSIVE);
	acemq_shared->launcher_pid = 0;
	acemq_shared->launcher_latch = NULL;
	LWLockRelease(acemq_shared->lock);
}

static void
launcher_turn(void)
{
	now = GetCurrentTimestamp();
	acemq_hold_drop_dead();

	/* Who had a database for himself may have dropped it: what was read before says nothing about it any more. */
	if (note_holds() || pg_atomic_exchange_u32(&acemq_shared->rescan, 0) != 0 || now >= next_scan)
		next_scan = TimestampTzPlusMilliseconds(now, databases_scan() ? SCAN_INTERVAL_MS : RETRY_INTERVAL_MS);
	wake_at = next_scan;

	take_requests();
	attend_all();
	start_due_workers();
}

/* True if a hold has ended since the last turn. */
static bool
note_holds(void)
{
	bool some_ended = false;
	dlist_iter iter;

	LWLockAcquire(acemq_shared->lock, LW_SHARED);
	dlist_foreach (iter, &databases)
	{
		Database *database = dlist_container(Database, node, iter.cur);
		bool was_held = database->held;

		database->held = acemq_is_held(database->oid);
		some_ended |= was_held && !database->held;
	}
	LWLockRelease(acemq_shared->lock);
	return some_ended;
}

static void
wake_by(TimestampTz when)
{
	wake_at = Min(wake_at, when);
}

/* More requests than there was room for: everybody may have asked. */
static void
take_requests(void)
{
	Oid requests[ACEMQ_REQUESTS];
	int count;
	dlist_iter iter;

	SpinLockAcquire(&acemq_shared->request_mutex);
	count = acemq_shared->nrequests;
	memcpy(requests, acemq_shared->requests, sizeof(requests));
	acemq_shared->nrequests = 0;
	SpinLockRelease(&acemq_shared->request_mutex);

	if (count > ACEMQ_REQUESTS)
	{
		dlist_foreach (iter, &databases)
			wanted(dlist_container(Database, node, iter.cur));
		return;
	}
	for (int i = 0; i < count; i++)
	{
		Database *database = databases_find(requests[i]);

		if (database != NULL)
			wanted(database);
	}
}

/* Somebody there says that a worker would find something to do. */
static void
wanted(Database *database)
{
	database->young_deaths = 0;
	database->start_at = now;
	if (database->state == DATABASE_LAUNCHED)
		database->asked_again = true;
	else
		database->state = DATABASE_DUE;
}

static void
attend_all(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &databases)
		attend(dlist_container(Database, node, iter.cur));
}

/* Everything that may happen to one database, but for starting its worker. */
static void
attend(Database *database)
{
	if (database->state == DATABASE_LAUNCHED)
	{
		if (!launch_is_running(database))
			worker_ended(database);
		else if (database->held || !database->listed || launch_is_leaving(database))
			stop_worker(database);
	}
	if (database->state == DATABASE_OVER_LIMIT && slot_seat_is_free())
		database->state = DATABASE_DUE;
	if (database->held || (database->state == DATABASE_LAUNCHED && database->handle == NULL))
		wake_by(TimestampTzPlusMilliseconds(now, WATCH_INTERVAL_MS));

	/* Dropped, or closed to connections. */
	if (!database->listed && database->state != DATABASE_LAUNCHED)
	{
		give_up_slot(database);
		databases_remove(database);
	}
}

static void
stop_worker(Database *database)
{
	TimestampTz again = launch_stop(database, now);

	if (again != 0)
		wake_by(again);
}

static void
worker_ended(Database *database)
{
	bool on_request;
	AcemqFinding finding = slot_end_launch(database->slot, &on_request);
	bool asked_again = database->asked_again;

	launch_forget(database);
	database->start_at = now;
	database->state = DATABASE_DUE;

	switch (finding)
	{
		case ACEMQ_FOUND_ABSENT:
			give_up_slot(database);
			/* It may have looked before the commit of whoever asked. */
			if (!asked_again)
				database->state = DATABASE_ABSENT;
			break;
		case ACEMQ_FOUND_OVER_LIMIT:
			give_up_slot(database);
			database->state = DATABASE_OVER_LIMIT;
			report_over_limit(database);
			break;
		case ACEMQ_FOUND_SERVED:
			database->limit_reported = false;
			died(database, on_request || asked_again);
			break;
		default:
			/* It did not get as far as looking: leave the slot to others while this one waits. */
			give_up_slot(database);
			died(database, on_request || asked_again);
			break;
	}
}

/*
 * Start again at once after the first death, so that a worker that somebody
 * killed is back in no time; one that keeps dying must not fill the log.
 */
static void
died(Database *database, bool on_request)
{
	int64 delay_ms = 0;

	if (on_request)
		return;
	if (now - database->launched_at >= YOUNG_MS * INT64CONST(1000))
		database->young_deaths = 0;
	if (database->young_deaths > 0)
		delay_ms = Min((int64) FIRST_DELAY_MS << Min(database->young_deaths - 1, 10), LAST_DELAY_MS);
	database->young_deaths++;
	database->start_at = TimestampTzPlusMilliseconds(now, delay_ms);

	if (delay_ms > 0)
		ereport(LOG, (errmsg("acemq worker of database \"%s\" ended %d times in a row soon after its start",
		                     database->name, database->young_deaths),
		              errdetail("It is started again in %d s.", (int) (delay_ms / 1000))));
}

/* Once for each database and each time it loses its seat. */
static void
report_over_limit(Database *database)
{
	if (database->limit_reported)
		return;
	database->limit_reported = true;
	ereport(WARNING,
	        (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
	         errmsg("more databases have the extension \"acemq\" than \"acemq.max_databases\" allows"),
	         errdetail("Messages in database \"%s\" wait until there is room.", database->name),
	         errhint("Increase \"acemq.max_databases\", which is %d, and restart the server.", acemq_max_databases)));
}

static void
give_up_slot(Database *database)
{
	if (database->slot != NULL)
		slot_free(database->slot);
	database->slot = NULL;
}

/*
 * At most ACEMQ_PROBES workers may be on their way to find out whether there
 * is an extension: a cluster of a thousand databases is looked through
 * without a thousand processes at once.
 */
static void
start_due_workers(void)
{
	int probes = launch_count_probes();
	bool all_tried = true;
	Database *refused = NULL;
	dlist_iter iter;

	dlist_foreach (iter, &databases)
	{
		Database *database = dlist_container(Database, node, iter.cur);
		bool is_probe = database->slot == NULL;

		if (database->state != DATABASE_DUE || database->held)
			continue;
		if (database->start_at > now)
		{
			wake_by(database->start_at);
			continue;
		}
		if (is_probe && probes >= ACEMQ_PROBES)
		{
			all_tried = false;
			continue;
		}
		switch (launch_worker(database, now))
		{
			case LAUNCH_DONE:
				probes += is_probe;
				break;
			case LAUNCH_NOT_NOW:
				all_tried = false;
				break;
			case LAUNCH_EXHAUSTED:
				refused = database;
				break;
		}
		if (refused != NULL)
			break;
	}

	if (refused != NULL || all_tried)
		report_exhaustion(refused);
}

/* Once when it begins, once when it is over. */
static void
report_exhaustion(Database *refused)
{
	bool exhausted = refused != NULL;

	if (exhausted)
		wake_by(TimestampTzPlusMilliseconds(now, RETRY_INTERVAL_MS));
	if (exhausted == acemq_shared->slots_exhausted)
		return;
	acemq_shared->slots_exhausted = exhausted;

	if (exhausted)
		ereport(WARNING,
		        (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
		         errmsg("no background worker is free for the acemq worker of database \"%s\"", refused->name),
		         errdetail("Nothing is relayed there.  It is tried again every %d s.", RETRY_INTERVAL_MS / 1000),
		         errhint("Increase \"max_worker_processes\" and restart the server: acemq takes one for its launcher, "
		                 "one for each database with the extension, and one more to look into other databases.")));
	else
		ereport(LOG, (errmsg("background workers for acemq are free again")));
}
