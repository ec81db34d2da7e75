/*
 * doctor_relay.c
 *		acemq.doctor(): checks of shared memory and settings.
 *
 * It never touches the network: it says what the worker last saw, and when.
 *
 * May depend on: doctor.h, shmem.h, slot_text.h, guc.h.
 */
#include "doctor.h"

#include "guc.h"
#include "shmem.h"
#include "slot_text.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

/* A row that has waited longer than this is worth a look. */
#define OLD_ROW_MS (60 * 1000)

static bool
check_preloaded(Doctor *doctor)
{
	bool preloaded = acemq_shared != NULL;

	doctor_report(doctor, "library preloaded", preloaded, preloaded ? "yes" : "no: nothing relays",
	              "Add acemq to shared_preload_libraries and restart the server.");
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

static void
check_worker(Doctor *doctor)
{
	AcemqSlot *slot = acemq_my_slot();

	if (slot != NULL && slot->worker_pid != 0)
		doctor_report(
		    doctor, "worker", true,
		    psprintf("process %d, since %s", (int) slot->worker_pid, timestamptz_to_str(slot->worker_started_at)),
		    NULL);
	else if (slot != NULL && slot->finding == ACEMQ_FOUND_OVER_LIMIT)
		doctor_report(doctor, "worker", false, psprintf("%d other databases are served already", acemq_max_databases),
		              "Raise acemq.max_databases and restart the server.");
	else
		doctor_report(doctor, "worker", false, "no worker serves this database",
		              "It should start within seconds; if it does not, see the server's log.");
}

static void
check_settings(Doctor *doctor)
{
	bool set = acemq_url != NULL && acemq_url[0] != '\0';

	doctor_report(doctor, "broker URL", set, set ? "acemq.url is set" : "acemq.url is empty in this session",
	              "Set acemq.url in the configuration file, or with ALTER DATABASE and acemq.worker_restart().");
	doctor_report(doctor, "relay on", acemq_relay, acemq_relay ? "acemq.relay is on" : "acemq.relay is off",
	              "Turn acemq.relay on and call acemq.worker_restart().");
}

static char *
last_error_text(const SlotTexts *texts)
{
	if (texts->last_error_at == 0)
		return "no error has been seen";
	return psprintf("last error, at %s: %s", timestamptz_to_str(texts->last_error_at), texts->last_error);
}

static void
check_broker(Doctor *doctor, AcemqSlot *slot, const SlotTexts *texts)
{
	AcemqState state = (AcemqState) pg_atomic_read_u32(&slot->state);
	char *since = pstrdup(timestamptz_to_str((TimestampTz) pg_atomic_read_u64(&slot->state_since)));
	bool connected = state == ACEMQ_STATE_RELAYING || state == ACEMQ_STATE_IDLE;

	if (connected)
		doctor_report(doctor, "broker", true,
		              psprintf("%s, %s since %s", texts->broker, acemq_state_name(state), since), NULL);
	else if (state == ACEMQ_STATE_BLOCKED)
		doctor_report(doctor, "broker", false,
		              psprintf("%s takes no messages since %s; %s", texts->broker, since, last_error_text(texts)),
		              "The broker has raised a memory or disk alarm: relaying goes on by itself when it ends.");
	else
		doctor_report(
		    doctor, "broker", false,
		    psprintf("not connected: %s since %s; %s", acemq_state_name(state), since, last_error_text(texts)),
		    "See the other checks; if they are ok, see whether the broker runs and takes the login.");
}

static void
check_backlog(Doctor *doctor, AcemqSlot *slot)
{
	TimestampTz oldest = (TimestampTz) pg_atomic_read_u64(&slot->oldest);
	TimestampTz now = GetCurrentTimestamp();
	int64 pending = Max((int64) pg_atomic_read_u64(&slot->pending), 0);
	bool old = oldest != 0 && TimestampDifferenceExceeds(oldest, now, OLD_ROW_MS);
	char *detail = psprintf("%s%lld messages are waiting",
	                        pg_atomic_read_u32(&slot->pending_approximate) ? "about " : "", (long long) pending);

	if (oldest != 0)
		detail = psprintf("%s, the oldest since %s", detail, timestamptz_to_str(oldest));
	doctor_report(doctor, "backlog", !old, detail, "See the checks of the broker and of held lanes.");
}

static void
check_retired(Doctor *doctor, AcemqSlot *slot)
{
	int64 retired = Max((int64) pg_atomic_read_u64(&slot->retired), 0);

	doctor_report(doctor, "retired messages", retired == 0, psprintf("%lld", (long long) retired),
	              "See acemq.outbox_retired, then call acemq.outbox_release() or acemq.outbox_discard().");
}

static void
check_held_lanes(Doctor *doctor, const SlotTexts *texts)
{
	bool held = texts->held_by[0] != '\0';

	doctor_report(doctor, "held lanes", !held, held ? texts->held_by : "none",
	              "The message that failed is tried again; give messages an ordering_key to narrow what it holds up.");
}

void
doctor_check_processes(Doctor *doctor)
{
	if (!check_preloaded(doctor))
		return;
	check_launcher(doctor);
	check_worker_slots(doctor);
	check_worker(doctor);
	check_settings(doctor);
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
}
