/*
 * doctor_scheduler.c
 *		acemq.doctor(): checks of shared memory: the scheduler and its ladder.
 *
 * May depend on: doctor.h, shmem.h, slot_text.h.
 */
#include "doctor.h"

#include "shmem.h"
#include "slot_text.h"

#include "utils/timestamp.h"

/* Off without a problem is off because it was asked for. */
static bool
is_switched_off(AcemqSchedulerState state, const SlotTexts *texts)
{
	return state == ACEMQ_SCHEDULER_OFF && texts->scheduler_problem[0] == '\0';
}

static const char *
hint_of(AcemqSchedulerState state, AcemqSlot *slot)
{
	switch (state)
	{
		case ACEMQ_SCHEDULER_OFF:
			if (pg_atomic_read_u32(&slot->state) == ACEMQ_STATE_FENCED)
				return "See the check of the identity.";
			return "Scheduled messages that are due in the broker wait until this is mended, or another AceMQ "
			       "scheduler takes them.";
		case ACEMQ_SCHEDULER_DISCONNECTED:
			return "See the check of the broker; the worker goes on trying by itself.";
		case ACEMQ_SCHEDULER_NOT_CONSUMING:
			if (pg_atomic_read_u32(&slot->ladder_problems) > 0)
				return "See the check of the ladder.";
			return "The worker declares the control queue and consumes it again by itself; see the broker's log if "
			       "this stays.";
		case ACEMQ_SCHEDULER_BLOCKED:
			return "The broker is low on memory or disk space: the scheduler goes on by itself when that has ended.";
		case ACEMQ_SCHEDULER_CONSUMING:
			break;
	}
	return NULL;
}

/* Without a connection the text of the problem tells of that. */
static bool
tells_of_ladder(AcemqSchedulerState state, AcemqSlot *slot)
{
	return pg_atomic_read_u32(&slot->ladder_problems) > 0 && state != ACEMQ_SCHEDULER_OFF &&
	       state != ACEMQ_SCHEDULER_DISCONNECTED;
}

static void
check_scheduler(Doctor *doctor, AcemqSlot *slot, AcemqSchedulerState state, const SlotTexts *texts)
{
	TimestampTz since = (TimestampTz) pg_atomic_read_u64(&slot->scheduler_since);
	char *detail;

	if (is_switched_off(state, texts))
	{
		doctor_report(doctor, "scheduler", true, "off: acemq.scheduler is off in the worker", NULL);
		return;
	}
	detail = pstrdup(acemq_scheduler_state_name(state));
	if (since != 0)
		detail = psprintf("%s since %s", detail, timestamptz_to_str(since));
	/* The check of the ladder has the same text. */
	if (texts->scheduler_problem[0] != '\0' && !tells_of_ladder(state, slot))
		detail = psprintf("%s; %s", detail, texts->scheduler_problem);
	doctor_report(doctor, "scheduler", state == ACEMQ_SCHEDULER_CONSUMING, detail, hint_of(state, slot));
}

static const char *
ladder_detail(AcemqSchedulerState state, AcemqSlot *slot, const SlotTexts *texts, uint32 problems, TimestampTz seen_at)
{
	if (tells_of_ladder(state, slot))
		return texts->scheduler_problem;
	return psprintf("%u of its objects were not as they should be at %s", problems, timestamptz_to_str(seen_at));
}

static void
check_ladder(Doctor *doctor, AcemqSlot *slot, AcemqSchedulerState state, const SlotTexts *texts)
{
	TimestampTz seen_at = (TimestampTz) pg_atomic_read_u64(&slot->ladder_seen_at);
	uint32 problems = pg_atomic_read_u32(&slot->ladder_problems);

	if (is_switched_off(state, texts))
		doctor_report(doctor, "ladder", true, "not looked at: acemq.scheduler is off in the worker", NULL);
	else if (problems > 0)
		doctor_report(
		    doctor, "ladder", false, ladder_detail(state, slot, texts, problems, seen_at),
		    "Delete an object that differs while it is empty: the worker declares it again within seconds.  Where "
		    "access is refused, give the user of acemq.url all permissions on ^acemq\\.schedule, or set "
		    "acemq.scheduler "
		    "= off.");
	else if (seen_at == 0)
		doctor_report(doctor, "ladder", false, "not looked at yet", "See the check of the scheduler.");
	else
		doctor_report(doctor, "ladder", true,
		              psprintf("rungs and control queue are as they should be, at %s", timestamptz_to_str(seen_at)),
		              NULL);
}

/* What an earlier worker has left there says nothing. */
void
doctor_check_scheduler(Doctor *doctor)
{
	AcemqSlot *slot = acemq_my_slot();
	AcemqSchedulerState state;
	SlotTexts texts;

	if (slot == NULL || slot->worker_pid == 0)
		return;
	state = (AcemqSchedulerState) pg_atomic_read_u32(&slot->scheduler_state);
	texts = slot_texts(slot);
	check_scheduler(doctor, slot, state, &texts);
	check_ladder(doctor, slot, state, &texts);
}
