/*-------------------------------------------------------------------------
 *
 * scheduler_ladder.c
 *		The ladder at the broker (docs/protocol.md, section 8), and the consumer
 *		of its control queue.
 *
 * All objects are declared again every few seconds: that changes nothing while
 * they are there, and brings back what somebody has deleted.  The control queue
 * comes before the rungs, because a rung drops what expires into nothing.  The
 * same round looks whether the control queue still has a consumer: a broker
 * may forget one without a word.
 *
 * A few requests a turn, each of which waits for its answer, so that the other
 * duties get their turns in between.
 *
 * May depend on: scheduler_internal.h, src/backoff.h, src/guc.h.
 *
 *-------------------------------------------------------------------------
 */
#include "scheduler_internal.h"

#include "utils/timestamp.h"

#include "backoff.h"
#include "guc.h"

#define DECLARE_EVERY_MS     INT64CONST(10000)
#define CONSUME_RETRY_MS     100
#define CONSUME_RETRY_MAX    5000
#define CONSUMED_WELL_MS     10000
#define HUNG_MS              INT64CONST(300000)
#define REFUSED_MS           INT64CONST(60000)
#define FOUND_TOLD           2
#define REPLY_ACCESS_REFUSED 403
#define REPLY_PRECONDITION   406

/* Of a pass; then, for the control queue and each rung, declare and bind. */
#define STEP_EXCHANGE    0
#define STEP_FIRST_QUEUE 1
#define STEP_LOOK        (LADDER_STEPS - 1)

static bool pass_is_due(Scheduler *scheduler);
static void begin_pass(Scheduler *scheduler);
static void end_pass(Scheduler *scheduler);
static void note_found(Scheduler *scheduler, const char *what);
static bool take_step(Scheduler *scheduler);
static int queue_of_step(int step);
static bool is_left_out(Scheduler *scheduler, int step);
static BrokerRequest request(Scheduler *scheduler, int step, BrokerDenial *denial);
static BrokerRequest declare_queue(Scheduler *scheduler, int queue, BrokerDenial *denial);
static BrokerRequest look_at_consumers(Scheduler *scheduler, BrokerDenial *denial);
static void note_done(Scheduler *scheduler, int step);
static void note_denial(Scheduler *scheduler, int step, const BrokerDenial *denial);
static const char *queue_name(int queue);

/* A new connection: nothing is known. */
void
scheduler_ladder_reset(Scheduler *scheduler)
{
	scheduler->next_step = LADDER_STEPS;
	scheduler->declare_at = 0;
	scheduler->asked_at = 0;
	scheduler->declare_again = false;
	scheduler->ladder_seen = false;
	scheduler->ladder_trusted = false;
	scheduler->consuming = false;
	scheduler->consume_at = 0;
}

void
scheduler_declare_again(Scheduler *scheduler)
{
	scheduler->declare_at = 0;
	scheduler->declare_again = scheduler->next_step < LADDER_STEPS;
}

/* ---- topology ---- */

bool
scheduler_keep_ladder(Scheduler *scheduler)
{
	if (scheduler->next_step == LADDER_STEPS)
	{
		if (!pass_is_due(scheduler))
			return false;
		begin_pass(scheduler);
	}
	while (scheduler->next_step < LADDER_STEPS)
		if (!take_step(scheduler))
			return false;
	return pass_is_due(scheduler);
}

static bool
pass_is_due(Scheduler *scheduler)
{
	return scheduler->now >= scheduler->declare_at;
}

static void
begin_pass(Scheduler *scheduler)
{
	resetStringInfo(&scheduler->found);
	scheduler->nfound = 0;
	scheduler->next_step = 0;
	scheduler->declare_again = false;
	scheduler->declare_at = scheduler->now + DECLARE_EVERY_MS * 1000;
	scheduler->rungs_differ_found = 0;
}

static void
end_pass(Scheduler *scheduler)
{
	scheduler->ladder_seen = true;
	scheduler->rungs_differ = scheduler->rungs_differ_found;
	pg_atomic_write_u32(&scheduler->slot->rungs_differ, scheduler->rungs_differ);
	if (scheduler->declare_again)
		scheduler->declare_at = 0;
	if (scheduler->nfound > FOUND_TOLD)
		appendStringInfo(&scheduler->found, "; and %d more", scheduler->nfound - FOUND_TOLD);

	if (strncmp(scheduler->ladder_problem, scheduler->found.data, sizeof(scheduler->ladder_problem) - 1) != 0)
	{
		strlcpy(scheduler->ladder_problem, scheduler->found.data, sizeof(scheduler->ladder_problem));
		if (scheduler->nfound > 0)
			ereport(
			    WARNING,
			    (errmsg("acemq: scheduler: %s", scheduler->ladder_problem),
			     errhint(
			         "Delete a queue that differs once it is empty: it is declared again within seconds.  Where "
			         "access is refused, give the user of acemq.url the permissions, or set acemq.scheduler = off.")));
	}
	pg_atomic_write_u32(&scheduler->slot->ladder_problems, scheduler->nfound);
	pg_atomic_write_u64(&scheduler->slot->ladder_seen_at, (uint64) scheduler->now);
}

/* More of them have the same cause, as a rule. */
static void
note_found(Scheduler *scheduler, const char *what)
{
	if (scheduler->nfound < FOUND_TOLD)
		appendStringInfo(&scheduler->found, "%s%s", scheduler->nfound > 0 ? "; " : "", what);
	scheduler->nfound++;
}

static bool
next_step(Scheduler *scheduler)
{
	if (++scheduler->next_step == LADDER_STEPS)
		end_pass(scheduler);
	return true;
}

/* False: not answered yet, not now, or the connection is lost. */
static bool
take_step(Scheduler *scheduler)
{
	BrokerDenial denial;
	int step = scheduler->next_step;
	TimestampTz asked_at;
	BrokerRequest answer;

	if (scheduler->asked_at == 0 && is_left_out(scheduler, step))
		return next_step(scheduler);
	/* The last denial has closed it. */
	if (!link_open_channel(scheduler->link, BROKER_CHANNEL_TOPOLOGY))
		return false;
	if (scheduler->asked_at == 0)
		scheduler->asked_at = GetCurrentTimestamp();
	answer = request(scheduler, step, &denial);
	if (answer == BROKER_PENDING)
		return false;
	asked_at = scheduler->asked_at;
	scheduler->asked_at = 0;
	switch (answer)
	{
		case BROKER_DONE:
			note_done(scheduler, step);
			break;
		case BROKER_DENIED:
			note_denial(scheduler, step, &denial);
			break;
		case BROKER_REQUEST_LOST:
			/* A queue that hangs must not cost the connection again and again. */
			if (GetCurrentTimestamp() - asked_at >= acemq_io_timeout * INT64CONST(900))
			{
				scheduler->hung_queue = queue_of_step(step);
				scheduler->hung_until = GetCurrentTimestamp() + HUNG_MS * 1000;
			}
			return false;
		case BROKER_REQUEST_BLOCKED:
		case BROKER_PENDING:
			return false;
	}
	return next_step(scheduler);
}

/* 0 is the control queue, the others are the rungs; -1: the exchange. */
static int
queue_of_step(int step)
{
	if (step == STEP_EXCHANGE)
		return -1;
	return step == STEP_LOOK ? 0 : (step - STEP_FIRST_QUEUE) / 2;
}

static bool
is_left_out(Scheduler *scheduler, int step)
{
	int queue = queue_of_step(step);

	if (queue < 0 || queue != scheduler->hung_queue || scheduler->now >= scheduler->hung_until)
		return false;
	if (step == STEP_LOOK || (step - STEP_FIRST_QUEUE) % 2 == 1)
		return true; /* has been told of already */
	if (queue > 0)
		scheduler->rungs_differ_found |= 1u << (queue - 1);
	note_found(scheduler, psprintf("queue %s does not answer", queue_name(queue)));
	return true;
}

uint32
scheduler_unusable_rungs(Scheduler *scheduler)
{
	uint32 unusable = scheduler->rungs_differ;

	for (int i = 0; i < LADDER_RUNGS; i++)
		if (scheduler->rung_refused_until[i] > scheduler->now)
			unusable |= 1u << i;
	return unusable;
}

void
scheduler_rung_refuses(Scheduler *scheduler, const LadderRung *rung)
{
	scheduler->rung_refused_until[rung - ladder_rungs] = scheduler->now + REFUSED_MS * 1000;
}

static BrokerRequest
request(Scheduler *scheduler, int step, BrokerDenial *denial)
{
	int queue = (step - STEP_FIRST_QUEUE) / 2;

	if (step == STEP_EXCHANGE)
		return link_declare_exchange(scheduler->link, BROKER_CHANNEL_TOPOLOGY, LADDER_EXCHANGE, "direct", denial);
	if (step == STEP_LOOK)
		return look_at_consumers(scheduler, denial);
	if ((step - STEP_FIRST_QUEUE) % 2 == 0)
		return declare_queue(scheduler, queue, denial);
	return link_bind_queue(scheduler->link, BROKER_CHANNEL_TOPOLOGY, queue_name(queue), LADDER_EXCHANGE,
	                       queue_name(queue), denial);
}

/* 0 is the control queue, the others are the rungs. */
static const char *
queue_name(int queue)
{
	return queue == 0 ? LADDER_DUE_QUEUE : ladder_rungs[queue - 1].queue;
}

/* Exactly these arguments: with others every library of the family would be refused. */
static BrokerRequest
declare_queue(Scheduler *scheduler, int queue, BrokerDenial *denial)
{
	WireTable arguments = {0};

	if (queue > 0)
	{
		wire_table_add_int(&arguments, "x-message-ttl", WIRE_INT64, ladder_rungs[queue - 1].wait_ms);
		wire_table_add_string(&arguments, "x-dead-letter-exchange", LADDER_EXCHANGE);
		wire_table_add_string(&arguments, "x-dead-letter-routing-key", LADDER_DUE_QUEUE);
	}
	return link_declare_queue(scheduler->link, BROKER_CHANNEL_TOPOLOGY, queue_name(queue),
	                          queue > 0 ? &arguments : NULL, denial);
}

static BrokerRequest
look_at_consumers(Scheduler *scheduler, BrokerDenial *denial)
{
	uint32 consumers = 0;
	uint32 messages = 0;
	BrokerRequest answer =
	    link_inspect_queue(scheduler->link, BROKER_CHANNEL_TOPOLOGY, LADDER_DUE_QUEUE, &consumers, &messages, denial);

	if (answer == BROKER_DONE && consumers == 0 && scheduler->consuming &&
	    scheduler->consuming_since < scheduler->asked_at)
		scheduler_consumer_gone(scheduler, "the control queue has lost its consumer", NULL);
	return answer;
}

static void
note_done(Scheduler *scheduler, int step)
{
	if (step == STEP_EXCHANGE)
		scheduler->ladder_trusted = true;
}

static void
note_denial(Scheduler *scheduler, int step, const BrokerDenial *denial)
{
	int queue = (step - STEP_FIRST_QUEUE) / 2;
	bool binding = step != STEP_EXCHANGE && step != STEP_LOOK && (step - STEP_FIRST_QUEUE) % 2 == 1;
	const char *name = step == STEP_EXCHANGE ? LADDER_EXCHANGE
	                   : step == STEP_LOOK   ? LADDER_DUE_QUEUE
	                                         : queue_name(queue);
	const char *verdict = "could not be declared";

	if (denial->code == REPLY_PRECONDITION)
		verdict = "is not as it should be";
	else if (denial->code == REPLY_ACCESS_REFUSED)
		verdict = binding ? "may not be bound" : "may not be declared";
	else if (binding)
		verdict = "could not be bound";
	else if (step == STEP_LOOK)
		verdict = "could not be looked at";

	if (denial->code == REPLY_PRECONDITION && queue > 0 && step != STEP_LOOK)
		scheduler->rungs_differ_found |= 1u << (queue - 1);
	note_found(scheduler,
	           psprintf("%s %s %s: %s", step == STEP_EXCHANGE ? "exchange" : "queue", name, verdict, denial->text));
}

/* ---- the consumer ---- */

void
scheduler_keep_consumer(Scheduler *scheduler)
{
	BrokerConsumer consumer = {0};
	BrokerDenial denial;

	/* A queue that was deleted has to be there again first. */
	if (scheduler->consuming || !scheduler->ladder_seen || scheduler->now < scheduler->consume_at)
		return;
	/*
	 * All that moving takes, now: while thousands of messages expire at once the
	 * broker takes its time to open a channel, and the relay would wait with us.
	 */
	for (int channel = BROKER_CHANNEL_MAIN; channel <= BROKER_CHANNEL_CONSUME; channel++)
		if (!link_open_channel(scheduler->link, channel))
			return;

	consumer.queue = LADDER_DUE_QUEUE;
	consumer.tag = SCHEDULER_TAG;
	consumer.prefetch = SCHEDULER_PREFETCH;
	consumer.max_body = scheduler->max_body;
	consumer.body_budget = Max(SCHEDULER_BUDGET, scheduler->max_body + SCHEDULER_BESIDE_MAX);
	switch (link_consume(scheduler->link, BROKER_CHANNEL_CONSUME, &consumer, &denial))
	{
		case BROKER_DONE:
			scheduler->consuming = true;
			scheduler->consuming_since = scheduler->now;
			ereport(LOG, (errmsg("acemq: scheduler: consuming queue %s", LADDER_DUE_QUEUE)));
			break;
		case BROKER_DENIED:
			scheduler_consumer_gone(scheduler, "queue " LADDER_DUE_QUEUE " cannot be consumed", denial.text);
			break;
		case BROKER_REQUEST_BLOCKED:
		case BROKER_REQUEST_LOST:
		case BROKER_PENDING:
			break;
	}
}

/* At once the first time, then less and less often. */
void
scheduler_consumer_gone(Scheduler *scheduler, const char *why, const char *detail)
{
	if (scheduler->consuming && scheduler->now - scheduler->consuming_since >= CONSUMED_WELL_MS * INT64CONST(1000))
		scheduler->consume_failures = 0;
	scheduler->consuming = false;
	scheduler->ladder_seen = false;
	scheduler->consume_at = scheduler->now;
	if (scheduler->consume_failures > 0)
		scheduler->consume_at +=
		    backoff_delay_ms(scheduler->consume_failures, CONSUME_RETRY_MS, CONSUME_RETRY_MAX) * 1000;
	scheduler->consume_failures = Min(scheduler->consume_failures + 1, 30);
	scheduler_note_trouble(scheduler, why, detail);

	/* What is missing comes back with the next round, which has to wait for its time too. */
	scheduler_declare_again(scheduler);
	scheduler->declare_at = scheduler->consume_at;
}
