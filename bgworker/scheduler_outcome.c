/*-------------------------------------------------------------------------
 *
 * scheduler_outcome.c
 *		What the broker said, and what follows for the delivery
 *		(docs/protocol.md, section 8.3).
 *
 *		                       hop                          delivery to its target
 *		confirmed              settled                      settled
 *		returned               ladder declared again,       once more around the ladder
 *		                       a second later again
 *		nacked                 onto another rung            once more around the ladder
 *		closed the channel     as returned (404),           once more around the ladder;
 *		that it had for itself else later again             too big (406): later again
 *		on a channel that      alone                        alone
 *		several shared
 *
 * May depend on: scheduler_internal.h, src/backoff.h, src/guc.h.
 *
 *-------------------------------------------------------------------------
 */
#include "scheduler_internal.h"

#include "utils/timestamp.h"

#include "backoff.h"
#include "guc.h"
#include "kill_points.h"

#define HOP_AGAIN_MS    INT64CONST(1000)
#define LATER_FIRST_MS  INT64CONST(1000)
#define LATER_MAX_MS    INT64CONST(300000)
#define CONFIRM_LOOK_MS INT64CONST(500)

/* AMQP 0-9-1, section 1.1. */
#define REPLY_ACCESS_REFUSED 403
#define REPLY_NOT_FOUND      404
#define REPLY_PRECONDITION   406

static void take_event(Scheduler *scheduler, const BrokerEvent *event);
static Move *off_the_wire(Scheduler *scheduler, const BrokerEvent *event);
static void confirmed(Scheduler *scheduler, Move *move);
static void returned(Scheduler *scheduler, Move *move, const BrokerEvent *event);
static void nacked(Scheduler *scheduler, Move *move);
static void unsettled(Scheduler *scheduler, Move *move, int channel);
static void closed_alone(Scheduler *scheduler, Move *move);
static void channel_closed(Scheduler *scheduler, const BrokerEvent *event);
static void consumer_channel_closed(Scheduler *scheduler, const BrokerEvent *event);
static void take_detour(Scheduler *scheduler, Move *move, const char *why);
static void hop_in_a_second(Scheduler *scheduler, Move *move);
static void later(Scheduler *scheduler, Move *move, const char *why);

bool
scheduler_take_events(Scheduler *scheduler)
{
	BrokerEvent event;
	bool any = false;

	while (link_conn(scheduler->link) && broker_next_event(link_conn(scheduler->link), &event))
	{
		take_event(scheduler, &event);
		any = true;
	}
	return any;
}

static void
take_event(Scheduler *scheduler, const BrokerEvent *event)
{
	switch (event->kind)
	{
		case BROKER_EVENT_DELIVERY:
			scheduler_take_delivery(scheduler, event->delivery);
			break;
		case BROKER_EVENT_CONFIRMED:
			confirmed(scheduler, off_the_wire(scheduler, event));
			break;
		case BROKER_EVENT_RETURNED:
			returned(scheduler, off_the_wire(scheduler, event), event);
			break;
		case BROKER_EVENT_NACKED:
			nacked(scheduler, off_the_wire(scheduler, event));
			break;
		case BROKER_EVENT_UNSETTLED:
			unsettled(scheduler, off_the_wire(scheduler, event), event->channel);
			break;
		case BROKER_EVENT_CHANNEL_CLOSED:
			channel_closed(scheduler, event);
			break;
		case BROKER_EVENT_CONSUMER_CANCELLED:
			scheduler_consumer_gone(scheduler, "the broker has cancelled the consumer of queue " LADDER_DUE_QUEUE,
			                        NULL);
			break;
		case BROKER_EVENT_BLOCKED:
			scheduler_note_trouble(scheduler, "the broker has blocked publishing", event->text);
			break;
		case BROKER_EVENT_UNBLOCKED:
			ereport(LOG, (errmsg("acemq: scheduler: the broker takes messages again")));
			scheduler->unblocked_at = GetCurrentTimestamp();
			break;
		case BROKER_EVENT_LOST:
			scheduler_lost(scheduler, event->text);
			break;
	}
}

static Move *
off_the_wire(Scheduler *scheduler, const BrokerEvent *event)
{
	Move *move = (Move *) (uintptr_t) event->token;

	Assert(move->state == MOVE_ON_WIRE);
	scheduler->nwire--;
	if (move->channel != BROKER_CHANNEL_MAIN)
		scheduler->probes[move->channel - BROKER_CHANNEL_PROBE] = NULL;
	move->state = MOVE_READY;
	return move;
}

static void
confirmed(Scheduler *scheduler, Move *move)
{
	KILL_POINT(SCHEDULER_CONFIRMED);
	if (move->rung != NULL)
	{
		scheduler->ladder_trusted = true;
		pg_atomic_fetch_add_u64(&scheduler->slot->ladder_hops, 1);
	}
	else
	{
		target_took(scheduler, &move->waiting);
		pg_atomic_fetch_add_u64(&scheduler->slot->ladder_delivered, 1);
	}
	scheduler_settle(scheduler, move);
}

/* Whose delivery the broker has in the queue again is no longer ours to care for. */
static bool
is_given_up(Scheduler *scheduler, Move *move)
{
	if (!move->orphan)
		return false;
	scheduler_forget_move(scheduler, move);
	return true;
}

static void
returned(Scheduler *scheduler, Move *move, const BrokerEvent *event)
{
	bool hop = move->rung != NULL;

	KILL_POINT(SCHEDULER_RETURNED);
	if (!hop)
		target_is_there(scheduler, &move->waiting);
	if (is_given_up(scheduler, move))
		return;
	if (hop)
	{
		scheduler_note_trouble(scheduler, "a rung of the ladder was missing", event->text);
		hop_in_a_second(scheduler, move);
	}
	else
		take_detour(scheduler, move, psprintf("%d %s", event->code, event->text));
}

static void
nacked(Scheduler *scheduler, Move *move)
{
	bool hop = move->rung != NULL;

	if (!hop)
		target_is_there(scheduler, &move->waiting);
	if (is_given_up(scheduler, move))
		return;
	if (!hop)
	{
		take_detour(scheduler, move, "the broker refused it (basic.nack)");
		return;
	}
	/* Another rung takes it, so that what is due does not wait behind fifty that nobody takes. */
	scheduler_rung_refuses(scheduler, move->rung);
	if (scheduler_unusable_rungs(scheduler) == (1u << LADDER_RUNGS) - 1)
		later(scheduler, move, "all rungs of the ladder refuse messages (basic.nack)");
	else
		scheduler_note_trouble(scheduler, "a rung of the ladder refuses messages (basic.nack), others are taken",
		                       move->rung->queue);
}

/* Alone on its channel: it is the culprit.  Otherwise it is one of the suspects. */
static void
unsettled(Scheduler *scheduler, Move *move, int channel)
{
	if (is_given_up(scheduler, move))
		return;
	move->suspect = true;
	if (channel != BROKER_CHANNEL_MAIN)
		closed_alone(scheduler, move);
}

static void
closed_alone(Scheduler *scheduler, Move *move)
{
	/* Longer than the broker takes: on a rung it would fare no better. */
	if (scheduler->closed_code == REPLY_PRECONDITION)
		later(scheduler, move, scheduler->closed_text);
	else if (move->rung != NULL && scheduler->closed_code == REPLY_NOT_FOUND)
	{
		scheduler->ladder_trusted = false;
		scheduler_note_trouble(scheduler, "the exchange of the ladder was missing", scheduler->closed_text);
		hop_in_a_second(scheduler, move);
	}
	else if (move->rung != NULL)
		later(scheduler, move, scheduler->closed_text);
	else
	{
		const char *why = psprintf("%d %s", scheduler->closed_code, scheduler->closed_text);

		if (scheduler->closed_code == REPLY_NOT_FOUND)
			target_is_missing(scheduler, &move->waiting, why);
		else if (scheduler->closed_code == REPLY_ACCESS_REFUSED)
			target_refuses(scheduler, &move->waiting, why);
		take_detour(scheduler, move, why);
		move->suspect = false; /* it was the target that closed the channel */
	}
}

static void
take_detour(Scheduler *scheduler, Move *move, const char *why)
{
	move->detour = true;
	scheduler_note_detour(scheduler, &move->waiting, why);
}

static void
hop_in_a_second(Scheduler *scheduler, Move *move)
{
	scheduler_declare_again(scheduler);
	move->not_before = scheduler->now + HOP_AGAIN_MS * 1000;
}

/* It stays unsettled: nothing that we could publish would be taken. */
static void
later(Scheduler *scheduler, Move *move, const char *why)
{
	move->failures = Min(move->failures + 1, 30);
	move->not_before = scheduler->now + backoff_delay_ms(move->failures, LATER_FIRST_MS, LATER_MAX_MS) * 1000;
	scheduler_note_trouble(scheduler, "a message cannot be passed on and is tried again", why);
}

/* ---- channels ---- */

/* Its UNSETTLED events follow. */
static void
channel_closed(Scheduler *scheduler, const BrokerEvent *event)
{
	scheduler->closed_code = event->code;
	strlcpy(scheduler->closed_text, event->text, sizeof(scheduler->closed_text));
	if (event->channel == BROKER_CHANNEL_CONSUME)
		consumer_channel_closed(scheduler, event);
	else if (event->channel == BROKER_CHANNEL_MAIN)
	{
		/* What was good may be good no more: each exchange has to show it again before it shares a channel. */
		targets_forget_proofs(scheduler);
		scheduler->ladder_trusted = false;
		scheduler_declare_again(scheduler);
		ereport(LOG, (errmsg("acemq: scheduler: channel closed by the broker: %s", event->text),
		              errdetail("The messages in flight are sent again one by one to find the cause.")));
	}
}

/* The broker delivers again all that was not settled; what is on the wire may arrive twice. */
static void
consumer_channel_closed(Scheduler *scheduler, const BrokerEvent *event)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &scheduler->moves)
	{
		Move *move = dlist_container(Move, node, iter.cur);

		move->orphan = true;
		if (move->state != MOVE_ON_WIRE)
			scheduler_forget_move(scheduler, move);
	}
	scheduler_consumer_gone(scheduler, "the broker has closed the consumer's channel", event->text);
}

/*
 * A confirm that does not come would belong to nobody if we just published
 * again: the connection has to go first.  The broker delivers again, and where
 * no answer came from is left alone for a while.
 */
void
scheduler_check_confirm_timeout(Scheduler *scheduler)
{
	TimestampTz limit = scheduler->now - (int64) acemq_confirm_timeout * 1000;
	bool expired = false;
	uint64 taken;
	bool moves;
	dlist_iter iter;

	if (scheduler->nwire == 0 || scheduler->now < scheduler->confirm_look_at)
		return;
	scheduler->confirm_look_at = scheduler->now + CONFIRM_LOOK_MS * 1000;
	if (scheduler->unblocked_at > limit || broker_is_blocked(link_conn(scheduler->link)))
		return;
	taken = broker_bytes_taken(link_conn(scheduler->link));
	moves = taken > scheduler->bytes_taken;
	scheduler->bytes_taken = taken;
	dlist_foreach (iter, &scheduler->moves)
	{
		Move *move = dlist_container(Move, node, iter.cur);

		if (move->state != MOVE_ON_WIRE)
			continue;
		/* On its way still, on a line that is slow and not dead: its time begins when it is there. */
		if (moves && move->sent_upto > taken)
			move->sent_at = scheduler->now;
		if (move->sent_at > limit)
			continue;
		expired = true;
		if (move->rung == NULL)
			target_is_silent(scheduler, &move->waiting, move->sent_at);
	}
	if (expired)
		scheduler_lost(scheduler, "no confirm within acemq.confirm_timeout");
}
