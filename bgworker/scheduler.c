/*-------------------------------------------------------------------------
 *
 * scheduler.c
 *		The scheduler's turn: its connection, its timers, what status shows.
 *
 *		scheduler_ladder.c   exchange, rungs and control queue; the consumer
 *		scheduler_move.c     deliveries of the control queue -> broker
 *		scheduler_outcome.c  what the broker said
 *		scheduler_targets.c  which exchanges may share a channel
 *		scheduler_message.c  what a waiting message says, and what is published for it
 *
 * Glossary.  Move: a delivery of the control queue that is not settled.  Hop:
 * its publish onto a rung; the other kind is the delivery to its target.
 * Detour: the hop of one that is due, but whose target does not take it.
 *
 * May depend on: scheduler_internal.h, src/backoff.h, src/guc.h.
 *
 *-------------------------------------------------------------------------
 */
#include "scheduler_internal.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "backoff.h"
#include "guc.h"

/* After an interruption status goes on telling of it for so long. */
#define TROUBLE_SHOWN_MS INT64CONST(60000)
#define LOG_AGAIN_MS     INT64CONST(60000)

#define RECONNECT_FIRST_MS 1000
#define RECONNECT_MAX_MS   20000

static const char *reason_to_be_off(Scheduler *scheduler);
static bool keep_connection(Scheduler *scheduler, bool wanted);
static void notice_loss(Scheduler *scheduler);
static void delay_reconnect(Scheduler *scheduler, bool lost);
static bool work(Scheduler *scheduler);
static void show_state(Scheduler *scheduler, const char *off_because);
static void show_problem(Scheduler *scheduler);
static bool is_stuck(Scheduler *scheduler);
static void earliest(TimestampTz *deadline, TimestampTz at);

/* The setting is in kB. */
static Size
max_body_bytes(void)
{
	return (Size) acemq_max_body_size * 1024;
}

Scheduler *
scheduler_create(MemoryContext parent, AcemqSlot *slot)
{
	MemoryContext context = AllocSetContextCreate(parent, "acemq scheduler", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	Scheduler *scheduler = palloc0(sizeof(Scheduler));

	scheduler->context = context;
	scheduler->turn_context = AllocSetContextCreate(context, "acemq scheduler turn", ALLOCSET_DEFAULT_SIZES);
	scheduler->slot = slot;
	scheduler->link = link_create(context, slot, LINK_SCHEDULER);
	scheduler->max_body = max_body_bytes();
	dlist_init(&scheduler->moves);
	initStringInfo(&scheduler->found);
	targets_init(scheduler);
	scheduler_ladder_reset(scheduler);
	MemoryContextSwitchTo(caller);

	acemq_slot_set_scheduler_state(slot, acemq_scheduler ? ACEMQ_SCHEDULER_DISCONNECTED : ACEMQ_SCHEDULER_OFF);
	acemq_slot_set_scheduler_problem(slot, "");
	pg_atomic_write_u64(&slot->ladder_seen_at, 0);
	pg_atomic_write_u32(&slot->rungs_differ, 0);
	pg_atomic_write_u32(&slot->ladder_problems, 0);
	return scheduler;
}

bool
scheduler_step(Scheduler *scheduler, SchedulerPermission permission)
{
	MemoryContext caller;
	const char *off_because;
	bool more = false;

	MemoryContextReset(scheduler->turn_context);
	caller = MemoryContextSwitchTo(scheduler->turn_context);
	scheduler->now = GetCurrentTimestamp();
	scheduler->permission = permission;

	off_because = reason_to_be_off(scheduler);
	if (keep_connection(scheduler, off_because == NULL))
	{
		if (off_because == NULL)
			more = work(scheduler);
		else
			scheduler_check_confirm_timeout(scheduler);
	}
	show_state(scheduler, off_because);
	MemoryContextSwitchTo(caller);
	return more;
}

/* NULL: it is to run.  "" where nobody has to be told why it does not. */
static const char *
reason_to_be_off(Scheduler *scheduler)
{
	const char *why = "";

	if (!acemq_scheduler)
		return "";
	if (scheduler->permission == SCHEDULER_FENCED)
		return "this database is a copy of another one: acemq.relay_resume() lets it talk to the broker";
	if (!broker_may_consume(&why))
		return why;
	if (!link_has_endpoint(scheduler->link))
		return acemq_url == NULL || acemq_url[0] == '\0' ? "acemq.url is not set" : "acemq.url cannot be used";
	return scheduler->permission == SCHEDULER_ALLOWED ? NULL : "";
}

/* ---- connection ---- */

/* True while there is one. */
static bool
keep_connection(Scheduler *scheduler, bool wanted)
{
	bool was_connected = link_conn(scheduler->link) != NULL;

	if (!wanted && was_connected && (scheduler->nwire == 0 || scheduler->permission != SCHEDULER_ALLOWED))
	{
		/* Switched off: what is on the wire has been waited for. */
		scheduler_lost(scheduler, NULL);
		return false;
	}
	if (wanted && scheduler->now >= scheduler->reconnect_at && link_ensure(scheduler->link, scheduler->now) &&
	    !was_connected)
	{
		scheduler->now = GetCurrentTimestamp();
		scheduler_ladder_reset(scheduler);
		scheduler->consume_failures = 0;
	}
	if (link_conn(scheduler->link) == NULL)
		return false;

	link_pump(scheduler->link);
	scheduler_take_events(scheduler);
	notice_loss(scheduler);
	return link_conn(scheduler->link) != NULL;
}

/* What came before the end still counts: events first. */
static void
notice_loss(Scheduler *scheduler)
{
	if (link_conn(scheduler->link) == NULL || !broker_is_lost(link_conn(scheduler->link)))
		return;
	scheduler_take_events(scheduler);
	if (link_conn(scheduler->link))
		scheduler_lost(scheduler, broker_lost_reason(link_conn(scheduler->link)));
}

/*
 * One that was lost before it was of any use, or over a request that was not
 * answered, would be lost in the same way again, and each time the relay waits.
 */
static void
delay_reconnect(Scheduler *scheduler, bool lost)
{
	bool hung = scheduler->hung_until > GetCurrentTimestamp();

	if (!lost || (scheduler->consuming && !hung))
		scheduler->losses = 0;
	scheduler->reconnect_at = 0;
	if (scheduler->losses > 0 || (lost && hung))
		scheduler->reconnect_at =
		    GetCurrentTimestamp() +
		    backoff_delay_ms(Max(scheduler->losses, 1), RECONNECT_FIRST_MS, RECONNECT_MAX_MS) * 1000;
	if (lost)
		scheduler->losses = Min(scheduler->losses + 1, 30);
}

void
scheduler_lost(Scheduler *scheduler, const char *reason)
{
	char words[ACEMQ_ERROR_TEXT] = "";

	if (reason != NULL)
		strlcpy(words, reason, sizeof(words)); /* it may be the connection's own memory */
	delay_reconnect(scheduler, reason != NULL);

	/* The deliveries are memory of the connection. */
	dlist_init(&scheduler->moves);
	scheduler->nmoves = scheduler->nwhole = scheduler->nover = scheduler->nwire = 0;
	scheduler->held = 0;
	scheduler->bytes_taken = 0;
	memset(scheduler->probes, 0, sizeof(scheduler->probes));
	scheduler->socket_full = false;
	scheduler->more = false;
	targets_forget_proofs(scheduler);
	scheduler_ladder_reset(scheduler);
	link_drop(scheduler->link, reason != NULL ? words : NULL, reason == NULL);
	if (reason != NULL)
	{
		/* The link has logged it. */
		strlcpy(scheduler->trouble, words, sizeof(scheduler->trouble));
		scheduler->trouble_at = scheduler->trouble_logged_at = scheduler->now;
	}
}

void
scheduler_config_changed(Scheduler *scheduler)
{
	bool changed = link_settings_changed(scheduler->link) || scheduler->max_body != max_body_bytes();

	if (changed && link_conn(scheduler->link))
		scheduler_lost(scheduler, NULL);
	scheduler->max_body = max_body_bytes();
	scheduler->reconnect_at = 0;
	link_reread_settings(scheduler->link);
}

/* What delay_reconnect() wants is waited for all the same: the relay would wait with us. */
void
scheduler_try_now(Scheduler *scheduler)
{
	link_try_now(scheduler->link);
}

/* ---- the turn with a connection ---- */

static bool
work(Scheduler *scheduler)
{
	bool more = false;

	if (scheduler->nmoves > SCHEDULER_MAX_MOVES)
	{
		scheduler_lost(scheduler, "too many deliveries of consumers that were cancelled are not settled");
		return true;
	}
	/* A blocked connection is not read: requests would time out.  Neither are confirms to be expected. */
	if (broker_is_blocked(link_conn(scheduler->link)))
		return false;

	more = scheduler_keep_ladder(scheduler);
	if (!broker_is_lost(link_conn(scheduler->link)))
		scheduler_keep_consumer(scheduler);
	if (!broker_is_lost(link_conn(scheduler->link)))
	{
		scheduler_requeue(scheduler);
		scheduler_publish(scheduler);
		scheduler_check_confirm_timeout(scheduler);
	}
	/* Requests and long bodies read what has come meanwhile: no socket would announce it again. */
	if (scheduler_take_events(scheduler))
		more = true;
	notice_loss(scheduler);
	return link_conn(scheduler->link) != NULL && (more || scheduler->more);
}

void
scheduler_shutdown(Scheduler *scheduler)
{
	link_drop(scheduler->link, NULL, true);
	MemoryContextDelete(scheduler->context);
}

/* ---- what to wait for ---- */

pgsocket
scheduler_socket(Scheduler *scheduler)
{
	return link_conn(scheduler->link) ? broker_socket(link_conn(scheduler->link)) : PGINVALID_SOCKET;
}

bool
scheduler_wants_write(Scheduler *scheduler)
{
	return scheduler->socket_full && link_conn(scheduler->link) && !broker_is_blocked(link_conn(scheduler->link));
}

static void
earliest(TimestampTz *deadline, TimestampTz at)
{
	if (*deadline == 0 || at < *deadline)
		*deadline = at;
}

TimestampTz
scheduler_next_deadline(Scheduler *scheduler)
{
	TimestampTz deadline = 0;
	dlist_iter iter;

	if (reason_to_be_off(scheduler) == NULL && link_next_try_at(scheduler->link) != 0)
		earliest(&deadline, Max(link_next_try_at(scheduler->link), scheduler->reconnect_at));
	if (link_conn(scheduler->link) == NULL)
		return deadline;

	earliest(&deadline, scheduler->now + (int64) Max(acemq_heartbeat, 1) * USECS_PER_SEC / 2);
	if (scheduler->trouble_at != 0)
		earliest(&deadline, Max(scheduler->trouble_at + TROUBLE_SHOWN_MS * 1000, scheduler->now + USECS_PER_SEC));
	if (scheduler->detour_at != 0)
		earliest(&deadline, Max(scheduler->detour_at + TROUBLE_SHOWN_MS * 1000, scheduler->now + USECS_PER_SEC));
	if (scheduler->nwire > 0)
		earliest(&deadline, Max(scheduler->confirm_look_at, scheduler->now + 1000));
	if (broker_is_blocked(link_conn(scheduler->link)) || reason_to_be_off(scheduler) != NULL)
		return deadline;

	if (scheduler->asked_at != 0)
		earliest(&deadline, broker_request_deadline(link_conn(scheduler->link)));
	else
		earliest(&deadline, scheduler->declare_at);
	if (!scheduler->consuming && scheduler->ladder_seen)
		earliest(&deadline, scheduler->consume_at);
	if (scheduler_may_requeue(scheduler))
		earliest(&deadline, scheduler->requeue_at);
	dlist_foreach (iter, &scheduler->moves)
	{
		const Move *move = dlist_container(Move, node, iter.cur);

		if (move->state == MOVE_READY && move->not_before > scheduler->now)
			earliest(&deadline, move->not_before);
	}
	return deadline;
}

/* ---- what status shows ---- */

static AcemqSchedulerState
current_state(Scheduler *scheduler, const char *off_because)
{
	BrokerConn *conn = link_conn(scheduler->link);

	if (off_because != NULL && !(acemq_scheduler && scheduler->permission == SCHEDULER_NOT_KNOWN_YET))
		return ACEMQ_SCHEDULER_OFF;
	if (conn == NULL)
		return ACEMQ_SCHEDULER_DISCONNECTED;
	if (broker_is_blocked(conn))
		return ACEMQ_SCHEDULER_BLOCKED;
	return scheduler->consuming ? ACEMQ_SCHEDULER_CONSUMING : ACEMQ_SCHEDULER_NOT_CONSUMING;
}

static void
show_text(Scheduler *scheduler, const char *text)
{
	if (scheduler->shown_known && strncmp(scheduler->shown, text, sizeof(scheduler->shown) - 1) == 0)
		return;
	strlcpy(scheduler->shown, text, sizeof(scheduler->shown));
	scheduler->shown_known = true;
	acemq_slot_set_scheduler_problem(scheduler->slot, text);
}

static void
show_state(Scheduler *scheduler, const char *off_because)
{
	AcemqSchedulerState state = current_state(scheduler, off_because);

	if (state == ACEMQ_SCHEDULER_OFF)
		show_text(scheduler, off_because);
	else if (state == ACEMQ_SCHEDULER_DISCONNECTED)
		scheduler->shown_known = false; /* the link shows why */
	else
		show_problem(scheduler);
	acemq_slot_set_scheduler_state(scheduler->slot, state);
}

static void
show_problem(Scheduler *scheduler)
{
	bool fresh = scheduler->now - scheduler->trouble_at < TROUBLE_SHOWN_MS * 1000;
	bool well = scheduler->consuming && !broker_is_blocked(link_conn(scheduler->link)) && !is_stuck(scheduler);
	StringInfoData text;

	if (scheduler->trouble_at != 0 && well && !fresh)
		scheduler->trouble_at = 0;
	if (scheduler->now - scheduler->detour_at >= TROUBLE_SHOWN_MS * 1000)
		scheduler->detour_at = 0;
	initStringInfo(&text);
	if (scheduler->trouble_at != 0)
		appendStringInfo(&text, "at %s: %s", timestamptz_to_str(scheduler->trouble_at), scheduler->trouble);
	if (scheduler->ladder_problem[0] != '\0')
		appendStringInfo(&text, "%s%s", text.len > 0 ? "; " : "", scheduler->ladder_problem);
	if (scheduler->detour_at != 0)
		appendStringInfo(&text, "%sat %s: %s", text.len > 0 ? "; " : "", timestamptz_to_str(scheduler->detour_at),
		                 scheduler->detour);
	show_text(scheduler, text.data);
}

/* Is something held that the broker does not take at all? */
static bool
is_stuck(Scheduler *scheduler)
{
	dlist_iter iter;

	dlist_foreach (iter, &scheduler->moves)
	{
		if (dlist_container(Move, node, iter.cur)->failures > 0)
			return true;
	}
	return false;
}

void
scheduler_note_trouble(Scheduler *scheduler, const char *what, const char *detail)
{
	char text[ACEMQ_ERROR_TEXT];

	if (detail != NULL)
		snprintf(text, sizeof(text), "%s: %s", what, detail);
	else
		strlcpy(text, what, sizeof(text));
	if (strcmp(text, scheduler->trouble) != 0 || scheduler->now - scheduler->trouble_logged_at >= LOG_AGAIN_MS * 1000)
	{
		ereport(LOG, (errmsg("acemq: scheduler: %s", text)));
		scheduler->trouble_logged_at = scheduler->now;
	}
	strlcpy(scheduler->trouble, text, sizeof(scheduler->trouble));
	scheduler->trouble_at = scheduler->now;
}

/* A missing target may have thousands of messages, each of which comes back every ten seconds. */
void
scheduler_note_detour(Scheduler *scheduler, const WaitingMessage *waiting, const char *why)
{
	snprintf(scheduler->detour, sizeof(scheduler->detour),
	         "a message is not taken by its target and is tried there again every 10 s (exchange \"%s\", routing key "
	         "\"%s\"): %s",
	         waiting->exchange, waiting->routing_key, why);
	scheduler->detour_at = scheduler->now;
	scheduler->detours_unlogged++;
	if (scheduler->detours_logged_at != 0 && scheduler->now - scheduler->detours_logged_at < LOG_AGAIN_MS * 1000)
		return;
	ereport(LOG, (errmsg("acemq: scheduler: %s", scheduler->detour),
	              errdetail("Attempts that ended so since the last line of this kind: %llu.",
	                        (unsigned long long) scheduler->detours_unlogged)));
	scheduler->detours_unlogged = 0;
	scheduler->detours_logged_at = scheduler->now;
}
