/*
 * doctor_relay.c
 *		acemq.doctor(): checks of shared memory: the processes, the broker, the backlog.
 *
 * It never touches the network: it says what the worker last saw, and when.
 *
 * May depend on: doctor.h, shmem.h, slot_text.h, guc.h.
 */
#include "doctor.h"

#include "guc.h"
#include "shmem.h"
#include "slot_text.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

/* A row that has waited longer than this is worth a look. */
#define OLD_ROW_MS (60 * 1000)

static bool
check_preloaded(Doctor *doctor)
{
	bool preloaded = acemq_shared != NULL;

	doctor_report(doctor, "library preloaded", preloaded, preloaded ? "yes" : "no: nothing relays",
	              "Add acemq to shared_preload_libraries and restart the server.  Until then any role can read "
	              "acemq.url with SHOW, the password too.");
	return preloaded;
}

static void
check_launcher(Doctor *doctor)
{
	pid_t pid = acemq_shared->launcher_pid;

	doctor_report(doctor, "launcher", pid != 0, pid ? psprintf("process %d", (int) pid) : "not running",
	              "See the server's log; max_worker_processes may be used up.");
}

static void
check_worker_slots(Doctor *doctor)
{
	bool exhausted = acemq_shared->slots_exhausted;

	doctor_report(doctor, "background worker slots", !exhausted,
	              exhausted ? "the last worker could not be started: none was free" : "available",
	              "Raise max_worker_processes and restart the server.");
}

/* A database beyond the limit has no slot that could say so. */
static int
served_elsewhere(void)
{
	int count = 0;

	LWLockAcquire(acemq_shared->lock, LW_SHARED);
	for (int i = 0; i < acemq_shared->nslots; i++)
	{
		AcemqSlot *slot = &acemq_shared->slots[i];

		if (OidIsValid(slot->database) && slot->database != MyDatabaseId && slot->finding == ACEMQ_FOUND_SERVED)
			count++;
	}
	LWLockRelease(acemq_shared->lock);
	return count;
}

static void
check_worker(Doctor *doctor)
{
	AcemqSlot *slot = acemq_my_slot();

	if (slot != NULL && slot->worker_pid != 0)
		doctor_report(
		    doctor, "worker", true,
		    psprintf("process %d, since %s", (int) slot->worker_pid, timestamptz_to_str(slot->worker_started_at)),
		    NULL);
	else if (served_elsewhere() >= acemq_max_databases)
		doctor_report(
		    doctor, "worker", false,
		    psprintf("none: the limit acemq.max_databases = %d is reached by other databases", acemq_max_databases),
		    "Raise acemq.max_databases and restart the server, or drop the extension where it is not used.");
	else
		doctor_report(doctor, "worker", false, "no worker serves this database",
		              "It should start within seconds; if it does not, see the server's log.");
}

/* Why there is no connection, or no publishing, and what to do about it. */
typedef struct Trouble
{
	const char *what;
	const char *hint;
	bool by_broker; /* the connection's last error explains it */
} Trouble;

static Trouble
trouble_of_connection(AcemqSlot *slot)
{
	uint32 settings = pg_atomic_read_u32(&slot->worker_settings);

	if ((settings & ACEMQ_WORKER_READ_SETTINGS) != 0 && (settings & ACEMQ_WORKER_HAS_URL) == 0 &&
	    pg_atomic_read_u32(&slot->connect_problem) == ACEMQ_CONNECT_FINE)
		return (Trouble){"not connected: the worker has no broker URL", "See the check of the broker URL.", false};
	switch ((AcemqConnectProblem) pg_atomic_read_u32(&slot->connect_problem))
	{
		case ACEMQ_CONNECT_LOGIN_REFUSED:
			return (Trouble){"the broker refuses the login",
			                 "Correct user, password and virtual host in acemq.url; where acemq.password_file is set, "
			                 "the password is its first line. The worker tries again twice a minute, and whenever "
			                 "acemq.outbox_sweep() is called.",
			                 true};
		case ACEMQ_CONNECT_MISCONFIGURED:
			return (Trouble){"not connected: a setting or a file that it names cannot be used",
			                 "Correct it; the worker tries again twice a minute, after a reload, and whenever "
			                 "acemq.outbox_sweep() is called.",
			                 true};
		case ACEMQ_CONNECT_UNREACHABLE:
			return (Trouble){
			    "the broker cannot be reached",
			    "See whether it runs, and whether this server gets to the host and port of acemq.url; what "
			    "answers without letting the worker in may be no AMQP broker, or expect TLS (amqps://).  The "
			    "worker goes on trying by itself.",
			    true};
		case ACEMQ_CONNECT_FINE:
			break;
	}
	return (Trouble){"not connected", "The worker is about to connect; see the broker's log if this stays.", true};
}

static Trouble
trouble_of(AcemqSlot *slot, AcemqState state)
{
	bool relay_off = (pg_atomic_read_u32(&slot->worker_settings) & ACEMQ_WORKER_RELAY_ON) == 0;

	switch (state)
	{
		case ACEMQ_STATE_BLOCKED:
			return (Trouble){"the broker has blocked publishing",
			                 "It is low on memory or disk space: relaying goes on by itself when that has ended.",
			                 true};
		case ACEMQ_STATE_PAUSED:
			if (relay_off)
				return (Trouble){"not connected: acemq.relay is off", "See the check \"relay on\".", false};
			return (Trouble){"not connected: relaying is paused", "Call acemq.relay_resume().", false};
		case ACEMQ_STATE_FENCED:
			return (Trouble){
			    "not connected: this database is a copy of another one",
			    "Call acemq.relay_resume() if this copy may send messages; leave it alone if it is for tests.", false};
		case ACEMQ_STATE_NEEDS_RESTART:
			return (Trouble){"not connected: library and extension do not fit", "See the check of the versions.",
			                 false};
		case ACEMQ_STATE_STARTING:
			return (Trouble){"not connected: the worker is starting, or none runs", "See the check of the worker.",
			                 false};
		default:
			return trouble_of_connection(slot);
	}
}

static void
check_broker(Doctor *doctor, AcemqSlot *slot, const SlotTexts *texts)
{
	AcemqState state = (AcemqState) pg_atomic_read_u32(&slot->state);
	const char *name = acemq_state_name(state);
	TimestampTz since = (TimestampTz) pg_atomic_read_u64(&slot->state_since);
	Trouble trouble;
	char *detail;

	/* Before the first worker there is no time. */
	if (since != 0)
		name = psprintf("%s since %s", name, timestamptz_to_str(since));

	if (state == ACEMQ_STATE_RELAYING || state == ACEMQ_STATE_IDLE)
	{
		doctor_report(doctor, "broker", true, psprintf("%s, %s", texts->broker, name), NULL);
		return;
	}
	trouble = trouble_of(slot, state);
	detail = psprintf("%s; %s", trouble.what, name);
	if (trouble.by_broker && texts->connection_error_at != 0)
		detail =
		    psprintf("%s; at %s: %s", detail, timestamptz_to_str(texts->connection_error_at), texts->connection_error);
	doctor_report(doctor, "broker", false, detail, trouble.hint);
}

static void
check_backlog(Doctor *doctor, AcemqSlot *slot)
{
	TimestampTz oldest = (TimestampTz) pg_atomic_read_u64(&slot->oldest);
	TimestampTz now = GetCurrentTimestamp();
	int64 pending = Max((int64) pg_atomic_read_u64(&slot->pending), 0);
	bool approximate = pg_atomic_read_u32(&slot->pending_approximate) != 0;
	bool old = oldest != 0 && TimestampDifferenceExceeds(oldest, now, OLD_ROW_MS);
	char *detail = psprintf("%s%s %s waiting", approximate ? "about " : "", doctor_count_messages(pending),
	                        pending == 1 ? "is" : "are");

	if (oldest != 0)
		detail = psprintf("%s, the oldest since %s", detail, timestamptz_to_str(oldest));
	doctor_report(doctor, "backlog", !old, detail, "See the checks of the broker and of held lanes.");
}

static void
check_retired(Doctor *doctor, AcemqSlot *slot)
{
	int64 retired = Max((int64) pg_atomic_read_u64(&slot->retired), 0);

	doctor_report(doctor, "retired messages", retired == 0, doctor_count_messages(retired),
	              "See acemq.outbox_retired, then call acemq.outbox_release() or acemq.outbox_discard().");
}

static void
check_held_lanes(Doctor *doctor, const SlotTexts *texts)
{
	bool held = texts->held_by[0] != '\0';

	doctor_report(doctor, "held lanes", !held, held ? texts->held_by : "none",
	              "See acemq.outbox_pending, which has each message's last error: it is tried again by itself.  Once "
	              "the cause is mended, "
	              "acemq.outbox_release() tries it at once; acemq.outbox_cancel() gives it up.");
}

void
doctor_check_processes(Doctor *doctor)
{
	if (!check_preloaded(doctor))
		return;
	if (RecoveryInProgress())
	{
		doctor_report(doctor, "launcher", true, "none: this server is a standby", NULL);
		doctor_report(doctor, "worker", true, "none: a standby relays when it has been promoted", NULL);
		return;
	}
	check_launcher(doctor);
	check_worker_slots(doctor);
	check_worker(doctor);
}

void
doctor_check_relay(Doctor *doctor)
{
	AcemqSlot *slot = acemq_my_slot();
	SlotTexts texts;

	if (slot == NULL)
		return;
	texts = slot_texts(slot);
	check_broker(doctor, slot, &texts);
	check_backlog(doctor, slot);
	check_held_lanes(doctor, &texts);
	check_retired(doctor, slot);
	doctor_check_scheduler(doctor);
}
