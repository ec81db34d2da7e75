/*-------------------------------------------------------------------------
 *
 * scheduler_move.c
 *		Deliveries of the control queue: taken in, published again, settled
 *		(docs/protocol.md, section 8).
 *
 * A delivery stays unsettled until what was published for it is confirmed, so
 * whatever happens in between the broker still has it.  What cannot be read is
 * dropped: it would come back for ever.
 *
 * Several share the main channel.  Alone on a probe channel goes what may make
 * the broker close it: the first message to an exchange, and whatever was on a
 * channel that died.
 *
 * May depend on: scheduler_internal.h, src/uuid.h.
 *
 *-------------------------------------------------------------------------
 */
#include "scheduler_internal.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "kill_points.h"
#include "uuid.h"

#define PUBLISHES_PER_TURN 50
#define REQUEUE_EVERY_MS   50
#define LOG_AGAIN_MS       60000

/* Nothing fits, so the socket is not asked again in this turn. */
typedef enum SendResult
{
	SEND_DONE,
	SEND_NOT_YET, /* its turn comes when a probe channel is free */
	SEND_STOP     /* the socket is full, or the connection is lost */
} SendResult;

static void drop_malformed(Scheduler *scheduler, Move *move, const char *reason);
static void log_malformed(Scheduler *scheduler, const char *reason);
static SendResult send_move(Scheduler *scheduler, Move *move);
static const LadderRung *choose_rung(Scheduler *scheduler, const Move *move, const char **away);
static int choose_channel(Scheduler *scheduler, const Move *move, bool hop);
static int free_probe(Scheduler *scheduler, const Move *move, bool hop, bool proven);
static bool same_exchange(const Move *a, const Move *b, bool hop);
static int64 now_ms(Scheduler *scheduler);

/* ---- taking in and letting go ---- */

void
scheduler_take_delivery(Scheduler *scheduler, BrokerDelivery *delivery)
{
	Move *move = MemoryContextAllocZero(delivery->context, sizeof(Move));
	const char *problem = NULL;

	move->delivery = delivery;
	move->state = delivery->state == BROKER_DELIVERY_OVER_BUDGET ? MOVE_OVER_BUDGET : MOVE_READY;
	dlist_push_tail(&scheduler->moves, &move->node);
	scheduler->nmoves++;
	if (move->state == MOVE_OVER_BUDGET)
	{
		scheduler->nover++;
		return;
	}
	scheduler->nwhole++;
	scheduler->held += delivery->memory;

	if (delivery->state == BROKER_DELIVERY_TOO_LONG)
		problem = "its body is longer than acemq.max_body_size";
	else if (delivery->state == BROKER_DELIVERY_UNREADABLE)
		problem = "its headers are nested too deep";
	else
	{
		MemoryContext caller = MemoryContextSwitchTo(delivery->context);

		problem = waiting_message_read(delivery, &move->waiting);
		if (problem == NULL && move->waiting.message_id == NULL)
		{
			char *id = palloc(UUID_TEXT_LEN + 1);

			uuid_v4(id);
			move->waiting.message_id = id;
		}
		MemoryContextSwitchTo(caller);
	}
	KILL_POINT(SCHEDULER_DELIVERED);
	if (problem != NULL)
		drop_malformed(scheduler, move, problem);
}

void
scheduler_forget_move(Scheduler *scheduler, Move *move)
{
	dlist_delete(&move->node);
	scheduler->nmoves--;
	if (move->state == MOVE_OVER_BUDGET)
		scheduler->nover--;
	else
	{
		scheduler->nwhole--;
		scheduler->held -= move->delivery->memory;
	}
	broker_delivery_free(link_conn(scheduler->link), move->delivery);
}

void
scheduler_settle(Scheduler *scheduler, Move *move)
{
	if (!move->orphan)
		(void) link_ack(scheduler->link, move->delivery->channel, move->delivery->tag);
	KILL_POINT(SCHEDULER_SETTLED);
	scheduler_forget_move(scheduler, move);
}

static void
drop_malformed(Scheduler *scheduler, Move *move, const char *reason)
{
	pg_atomic_fetch_add_u64(&scheduler->slot->ladder_malformed, 1);
	log_malformed(scheduler, reason);
	KILL_POINT(SCHEDULER_MALFORMED);
	if (!move->orphan)
		(void) link_reject(scheduler->link, move->delivery->channel, move->delivery->tag, false);
	scheduler_forget_move(scheduler, move);
}

/* Whoever sends such messages may send many. */
static void
log_malformed(Scheduler *scheduler, const char *reason)
{
	scheduler->malformed_unlogged++;
	if (scheduler->malformed_logged_at != 0 &&
	    scheduler->now - scheduler->malformed_logged_at < LOG_AGAIN_MS * INT64CONST(1000))
		return;
	ereport(LOG, (errmsg("acemq: scheduler: %llu malformed %s dropped from queue %s, the last because %s",
	                     (unsigned long long) scheduler->malformed_unlogged,
	                     scheduler->malformed_unlogged == 1 ? "message" : "messages", LADDER_DUE_QUEUE, reason)));
	scheduler->malformed_unlogged = 0;
	scheduler->malformed_logged_at = scheduler->now;
}

bool
scheduler_may_requeue(Scheduler *scheduler)
{
	return scheduler->nover > 0 && (scheduler->nwhole == 0 || scheduler->held <= SCHEDULER_REST);
}

/*
 * What goes back comes again at once.  One at a time, and only with room for
 * it, so that it is not thrown to and fro.
 */
void
scheduler_requeue(Scheduler *scheduler)
{
	dlist_mutable_iter iter;

	if (!scheduler_may_requeue(scheduler) || scheduler->now < scheduler->requeue_at)
		return;
	dlist_foreach_modify (iter, &scheduler->moves)
	{
		Move *move = dlist_container(Move, node, iter.cur);

		if (move->state != MOVE_OVER_BUDGET)
			continue;
		(void) link_reject(scheduler->link, move->delivery->channel, move->delivery->tag, true);
		scheduler_forget_move(scheduler, move);
		scheduler->requeue_at = scheduler->now + REQUEUE_EVERY_MS * 1000;
		return;
	}
}

/* ---- publishing ---- */

void
scheduler_publish(Scheduler *scheduler)
{
	BrokerConn *conn = link_conn(scheduler->link);
	dlist_mutable_iter iter;
	int nsent = 0;

	scheduler->socket_full = false;
	scheduler->more = false;
	broker_cork(conn);
	dlist_foreach_modify (iter, &scheduler->moves)
	{
		Move *move = dlist_container(Move, node, iter.cur);
		SendResult result;

		if (move->state != MOVE_READY || move->not_before > scheduler->now)
			continue;
		if (nsent == PUBLISHES_PER_TURN)
		{
			scheduler->more = true;
			break;
		}
		result = send_move(scheduler, move);
		if (result == SEND_STOP)
			break;
		if (result == SEND_DONE)
			nsent++;
	}
	if (!broker_is_lost(conn))
		broker_uncork(conn);
}

static SendResult
send_move(Scheduler *scheduler, Move *move)
{
	const char *away = NULL;
	const LadderRung *rung = choose_rung(scheduler, move, &away);
	bool hop = rung != NULL;
	int channel = choose_channel(scheduler, move, hop);
	BrokerMessage message;
	WireTable headers;
	BrokerError error;
	BrokerPublish result;

	if (channel == 0)
		return SEND_NOT_YET;
	if (!link_open_channel(scheduler->link, channel))
		return SEND_STOP;
	if (hop)
		waiting_message_hop(&message, &headers, move->delivery, &move->waiting, rung);
	else
		waiting_message_deliver(&message, &headers, move->delivery, &move->waiting);

	KILL_POINT(SCHEDULER_PUBLISHING);
	result = link_publish(scheduler->link, channel, &message, (uint64) (uintptr_t) move, &error);
	switch (result)
	{
		case BROKER_SENT:
			KILL_POINT(SCHEDULER_PUBLISHED);
			break;
		case BROKER_WOULD_BLOCK:
			scheduler->socket_full = broker_channel_is_open(link_conn(scheduler->link), channel);
			return SEND_STOP;
		case BROKER_REFUSED:
			drop_malformed(scheduler, move, error.text);
			return SEND_DONE;
		case BROKER_LOST:
			break; /* it may be among the events */
	}
	if (away != NULL)
		scheduler_note_detour(scheduler, &move->waiting, away);
	move->state = MOVE_ON_WIRE;
	move->rung = rung;
	move->channel = channel;
	move->sent_at = GetCurrentTimestamp(); /* a long one may have taken a while */
	move->sent_upto = broker_bytes_sent(link_conn(scheduler->link));
	if (scheduler->nwire++ == 0)
		scheduler->confirm_look_at = 0;
	if (channel != BROKER_CHANNEL_MAIN)
		scheduler->probes[channel - BROKER_CHANNEL_PROBE] = move;
	if (!hop)
		target_is_tried(scheduler, &move->waiting);
	return result == BROKER_LOST ? SEND_STOP : SEND_DONE;
}

/* NULL: to its target.  `away` is set if it could be tried there and is not, because that would be in vain. */
static const LadderRung *
choose_rung(Scheduler *scheduler, const Move *move, const char **away)
{
	const LadderRung *rung;

	if (move->detour)
		return ladder_usable_rung(ladder_detour(), scheduler_unusable_rungs(scheduler));
	rung = ladder_rung_for(waiting_message_left_ms(&move->waiting, now_ms(scheduler)));
	if (rung == NULL && (*away = target_is_away(scheduler, &move->waiting)) != NULL)
		rung = ladder_detour();
	return rung != NULL ? ladder_usable_rung(rung, scheduler_unusable_rungs(scheduler)) : NULL;
}

/* 0: none now. */
static int
choose_channel(Scheduler *scheduler, const Move *move, bool hop)
{
	bool proven = hop ? scheduler->ladder_trusted : target_is_proven(scheduler, &move->waiting);

	if (proven && !move->suspect)
		return BROKER_CHANNEL_MAIN;
	return free_probe(scheduler, move, hop, proven);
}

/* An exchange that has not shown itself has one of them at most, so that the others get theirs. */
static int
free_probe(Scheduler *scheduler, const Move *move, bool hop, bool proven)
{
	int channel = 0;

	for (int i = 0; i < SCHEDULER_PROBES; i++)
	{
		const Move *other = scheduler->probes[i];

		if (other == NULL)
			channel = BROKER_CHANNEL_PROBE + i;
		else if (!proven && same_exchange(move, other, hop))
			return 0;
	}
	return channel;
}

/* As `move` is to be published, and as `other` is. */
static bool
same_exchange(const Move *move, const Move *other, bool hop)
{
	const char *mine = hop ? LADDER_EXCHANGE : move->waiting.exchange;
	const char *theirs = other->rung != NULL ? LADDER_EXCHANGE : other->waiting.exchange;

	return strcmp(mine, theirs) == 0;
}

/* Since 1970. */
static int64
now_ms(Scheduler *scheduler)
{
	return scheduler->now / 1000 + (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * (SECS_PER_DAY * INT64CONST(1000));
}
