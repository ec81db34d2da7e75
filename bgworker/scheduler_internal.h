/*
 * scheduler_internal.h
 *		What the files of the scheduler share: scheduler.c (connection, states,
 *		timers), scheduler_ladder.c (topology and consumer), scheduler_move.c
 *		(deliveries out again), scheduler_outcome.c (what the broker said),
 *		scheduler_targets.c (which exchanges may share a channel).
 *
 * May depend on: scheduler.h, scheduler_message.h, link.h, src/ladder.h.
 */
#ifndef ACEMQ_SCHEDULER_INTERNAL_H
#define ACEMQ_SCHEDULER_INTERNAL_H

#include "scheduler.h"

#include "lib/ilist.h"
#include "lib/stringinfo.h"

#include "ladder.h"
#include "link.h"
#include "scheduler_message.h"

/* docs/protocol.md, section 8. */
#define SCHEDULER_PREFETCH 50
#define SCHEDULER_TAG      "acemq-scheduler"

/*
 * Memory of deliveries that are not settled; more where acemq.max_body_size
 * needs it, so that the longest one fits beside what else is allowed to be
 * there when it is asked for again.
 */
#define SCHEDULER_BUDGET     ((Size) 16 * 1024 * 1024)
#define SCHEDULER_BESIDE_MAX ((Size) 4 * 1024 * 1024)
#define SCHEDULER_REST       ((Size) 1024 * 1024)

/*
 * Each consumer that was cancelled may leave as many unsettled as it was given;
 * with more than this the connection is made anew.
 */
#define SCHEDULER_MAX_MOVES 1000

/* One at a time on each of these: suspects, and the first message to an exchange. */
#define SCHEDULER_PROBES (BROKER_CHANNEL_CONSUME - BROKER_CHANNEL_PROBE)

/* Exchange; declare and bind the control queue and each rung; look at the control queue. */
#define LADDER_STEPS (1 + 2 * (1 + LADDER_RUNGS) + 1)

typedef enum MoveState
{
	MOVE_READY,      /* to be published, from `not_before` on */
	MOVE_ON_WIRE,    /* published, no outcome yet */
	MOVE_OVER_BUDGET /* its body was not kept: back into the queue when there is room */
} MoveState;

/* A delivery of the control queue that is not settled, in the delivery's own memory. */
typedef struct Move
{
	dlist_node node;
	BrokerDelivery *delivery;
	WaitingMessage waiting;
	MoveState state;
	TimestampTz not_before;
	int failures;           /* in a row, of what is not the target's to take or leave */
	bool detour;            /* its target did not take it: once more around the ladder */
	bool suspect;           /* was on a channel that died: goes alone */
	bool orphan;            /* the broker has it in the queue again: nothing is left to settle */
	const LadderRung *rung; /* what is on the wire is a hop onto it; NULL: to its target */
	int channel;            /* it is on the wire of */
	TimestampTz sent_at;
	uint64 sent_upto; /* of the bytes of the connection */
} Move;

struct Scheduler
{
	MemoryContext context;
	MemoryContext turn_context; /* reset every turn */
	AcemqSlot *slot;
	Link *link;
	TimestampTz now; /* start of this turn */
	SchedulerPermission permission;
	Size max_body; /* as the consumer was told */

	/* ---- deliveries that are not settled ---- */
	dlist_head moves; /* Move.node, in the order they came */
	int nmoves;
	int nwhole; /* with their bodies */
	int nover;
	Size held; /* memory of those with their bodies */
	int nwire;
	Move *probes[SCHEDULER_PROBES];
	int closed_code; /* of the channel close that is being reported */
	char closed_text[ACEMQ_ERROR_TEXT];
	bool socket_full;         /* last publish found no room in the socket */
	bool more;                /* stopped for the turn's limit */
	int losses;               /* of connections, in a row, before anything was consumed */
	TimestampTz reconnect_at; /* not before */
	TimestampTz unblocked_at; /* confirm deadlines count from here at the earliest */
	TimestampTz confirm_look_at;
	uint64 bytes_taken; /* by the other side, at that look */
	TimestampTz requeue_at;
	struct HTAB *targets; /* see scheduler_targets.c */

	/* ---- the ladder ---- */
	int next_step;        /* of the pass under way; LADDER_STEPS: none is */
	TimestampTz asked_at; /* the request of that step; 0: not yet */
	TimestampTz declare_at;
	bool declare_again;        /* once more when this pass has ended */
	bool ladder_seen;          /* a pass has ended since the connection or the consumer was lost */
	bool ladder_trusted;       /* its exchange is there */
	uint32 rungs_differ;       /* not to be used: what they do with a message is not known; for the relay too */
	uint32 rungs_differ_found; /* by this pass so far */
	TimestampTz rung_refused_until[LADDER_RUNGS]; /* it nacked */
	int hung_queue; /* did not answer a request: left out until then; see queue_of_step() */
	TimestampTz hung_until;
	StringInfoData found; /* problems of this pass */
	int nfound;
	char ladder_problem[ACEMQ_ERROR_TEXT]; /* of the last pass; "": none */

	/* ---- the consumer ---- */
	bool consuming;
	TimestampTz consuming_since;
	TimestampTz consume_at;
	int consume_failures;

	/* ---- what status and the log show ---- */
	char trouble[ACEMQ_ERROR_TEXT]; /* the last interruption */
	TimestampTz trouble_at;         /* 0: none */
	TimestampTz trouble_logged_at;
	char shown[ACEMQ_ERROR_TEXT];
	bool shown_known;              /* false: something else may be in shared memory */
	char detour[ACEMQ_ERROR_TEXT]; /* the last message whose target did not take it, and why */
	TimestampTz detour_at;         /* 0: none */
	uint64 detours_unlogged;
	TimestampTz detours_logged_at;
	uint64 malformed_unlogged;
	TimestampTz malformed_logged_at;
};

/* ---- scheduler.c ---- */

/* The connection is gone, or we hang up (no reason: politely). */
extern void scheduler_lost(Scheduler *scheduler, const char *reason);

/* Shown in acemq.status until all has been well for a while, and logged.  `detail` may be NULL. */
extern void scheduler_note_trouble(Scheduler *scheduler, const char *what, const char *detail);

/* The same of a message that is due and goes around the ladder once more; nobody else has to do anything for it. */
extern void scheduler_note_detour(Scheduler *scheduler, const WaitingMessage *waiting, const char *why);

/* ---- scheduler_ladder.c ---- */

extern void scheduler_ladder_reset(Scheduler *scheduler);
/* The next request to the broker, if it is time for one and the last one is answered; true: call again at once. */
extern bool scheduler_keep_ladder(Scheduler *scheduler);
/* Rungs that are not to be used now, bit i: ladder_rungs[i]. */
extern uint32 scheduler_unusable_rungs(Scheduler *scheduler);
extern void scheduler_rung_refuses(Scheduler *scheduler, const LadderRung *rung);
/* As soon as possible: something of it is missing. */
extern void scheduler_declare_again(Scheduler *scheduler);
extern void scheduler_keep_consumer(Scheduler *scheduler);
/* The consumer is no more; the channel may be. */
extern void scheduler_consumer_gone(Scheduler *scheduler, const char *why, const char *detail);

/* ---- scheduler_move.c ---- */

extern void scheduler_take_delivery(Scheduler *scheduler, BrokerDelivery *delivery);
extern void scheduler_publish(Scheduler *scheduler);
/* Back into the queue what was over the budget, one at a time. */
extern void scheduler_requeue(Scheduler *scheduler);
extern bool scheduler_may_requeue(Scheduler *scheduler);
/* It has got where it was to go: tell the broker that it is done. */
extern void scheduler_settle(Scheduler *scheduler, Move *move);
/* It is none of ours any more: forget it without a word to the broker. */
extern void scheduler_forget_move(Scheduler *scheduler, Move *move);

/* ---- scheduler_outcome.c ---- */

/* True: there were some. */
extern bool scheduler_take_events(Scheduler *scheduler);
extern void scheduler_check_confirm_timeout(Scheduler *scheduler);

/* ---- scheduler_targets.c ---- */

extern void targets_init(Scheduler *scheduler);
/* Its exchange has shown on this connection that it is there, and it was not refused there lately. */
extern bool target_is_proven(Scheduler *scheduler, const WaitingMessage *waiting);
/* Why it would only be tried in vain now: its exchange is missing, or its queue does not answer.  NULL: it may be tried. */
extern const char *target_is_away(Scheduler *scheduler, const WaitingMessage *waiting);
extern void target_is_there(Scheduler *scheduler, const WaitingMessage *waiting);
extern void target_took(Scheduler *scheduler, const WaitingMessage *waiting);
/* Nothing may be published there, which may be true of that routing key only. */
extern void target_refuses(Scheduler *scheduler, const WaitingMessage *waiting, const char *why);
extern void target_is_missing(Scheduler *scheduler, const WaitingMessage *waiting, const char *why);
extern void target_is_silent(Scheduler *scheduler, const WaitingMessage *waiting, TimestampTz sent_at);
extern void target_is_tried(Scheduler *scheduler, const WaitingMessage *waiting);
/* A new connection, or a channel died that several shared: everything has to be shown again. */
extern void targets_forget_proofs(Scheduler *scheduler);

#endif /* ACEMQ_SCHEDULER_INTERNAL_H */
