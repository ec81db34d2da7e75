/*-------------------------------------------------------------------------
 *
 * metrics.c
 *		acemq._metrics(): the numbers of this database's relay, one a row,
 *		under the names that the AceMQ libraries give theirs.
 *
 * Like status it reads shared memory and no table.  A number that is not known
 * has no row; the states are always there.
 *
 * May depend on: shmem.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shmem.h"

#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(acemq_metrics);

#define MAX_LABELS 3

typedef struct Label
{
	const char *name;
	const char *value;
} Label;

typedef struct NumberMetric
{
	const char *name;
	Size offset; /* of a pg_atomic_uint64 in AcemqSlot */
} NumberMetric;

static const NumberMetric numbers[] = {{"acemq.outbox.added.total", offsetof(AcemqSlot, added)},
                                       {"acemq.outbox.returned.total", offsetof(AcemqSlot, returned)},
                                       {"acemq.outbox.nacked.total", offsetof(AcemqSlot, nacked)},
                                       {"acemq.outbox.resent.total", offsetof(AcemqSlot, resent)},
                                       {"acemq.outbox.overtaken.total", offsetof(AcemqSlot, overtaken)},
                                       {"acemq.outbox.purged.total", offsetof(AcemqSlot, outbox_purged)},
                                       {"acemq.outbox.pending", offsetof(AcemqSlot, pending)},
                                       {"acemq.outbox.retired", offsetof(AcemqSlot, retired)},
                                       {"acemq.outbox.in.flight", offsetof(AcemqSlot, in_flight)},
                                       {"acemq.relay.reconnects.total", offsetof(AcemqSlot, reconnects)},
                                       {"acemq.relay.skipped.turns.total", offsetof(AcemqSlot, skipped_turns)},
                                       {"acemq.schedule.scheduled.total", offsetof(AcemqSlot, ladder_scheduled)},
                                       {"acemq.schedule.delivered.total", offsetof(AcemqSlot, ladder_delivered)},
                                       {"acemq.schedule.hops.total", offsetof(AcemqSlot, ladder_hops)},
                                       {"acemq.schedule.malformed.total", offsetof(AcemqSlot, ladder_malformed)},
                                       {"acemq.idempotency.purged.total", offsetof(AcemqSlot, claims_purged)}};

/* Ages in seconds of times kept in a pg_atomic_uint64; 0 while there is none. */
static const NumberMetric ages[] = {{"acemq.outbox.oldest.age", offsetof(AcemqSlot, oldest)},
                                    {"acemq.outbox.held.age", offsetof(AcemqSlot, held_since)}};

static void
push_text(JsonbParseState **parse, JsonbIteratorToken token, const char *text)
{
	JsonbValue value;

	value.type = jbvString;
	value.val.string.val = (char *) text;
	value.val.string.len = strlen(text);
	pushJsonbValue(parse, token, &value);
}

static Datum
labels_datum(const Label *labels, int count)
{
	JsonbParseState *parse = NULL;
	JsonbValue *object;

	pushJsonbValue(&parse, WJB_BEGIN_OBJECT, NULL);
	for (int i = 0; i < count; i++)
	{
		push_text(&parse, WJB_KEY, labels[i].name);
		push_text(&parse, WJB_VALUE, labels[i].value);
	}
	object = pushJsonbValue(&parse, WJB_END_OBJECT, NULL);
	return JsonbPGetDatum(JsonbValueToJsonb(object));
}

static void
put_labelled(ReturnSetInfo *out, const char *name, const Label *labels, int count, double value)
{
	Datum values[] = {CStringGetTextDatum(name), labels_datum(labels, count), Float8GetDatum(value)};
	bool nulls[lengthof(values)] = {false};

	tuplestore_putvalues(out->setResult, out->setDesc, values, nulls);
}

static void
put(ReturnSetInfo *out, const char *name, double value)
{
	put_labelled(out, name, NULL, 0, value);
}

static pg_atomic_uint64 *
number_at(AcemqSlot *slot, Size offset)
{
	return (pg_atomic_uint64 *) ((char *) slot + offset);
}

/* Commit and settle may be counted in either order, so a gauge can be below zero for a moment. */
static void
put_numbers(ReturnSetInfo *out, AcemqSlot *slot)
{
	for (int i = 0; i < lengthof(numbers); i++)
		put(out, numbers[i].name, Max((int64) pg_atomic_read_u64(number_at(slot, numbers[i].offset)), 0));

	for (int i = 0; i < lengthof(ages); i++)
	{
		TimestampTz since = (TimestampTz) pg_atomic_read_u64(number_at(slot, ages[i].offset));
		int64 age = since == 0 ? 0 : GetCurrentTimestamp() - since;

		put(out, ages[i].name, Max(age, 0) / (double) USECS_PER_SEC);
	}
	put(out, "acemq.outbox.pending.approximate", pg_atomic_read_u32(&slot->pending_approximate) != 0);
	put(out, "acemq.schedule.ladder.problems", pg_atomic_read_u32(&slot->ladder_problems));
	put(out, "acemq.relay.blocked.seconds.total", acemq_slot_blocked_us(slot) / (double) USECS_PER_SEC);
}

static void
put_lag_quantiles(ReturnSetInfo *out, AcemqSlot *slot)
{
	static const struct
	{
		const char *name;
		double quantile;
	} quantiles[] = {{"acemq.outbox.lag.p50", 0.50}, {"acemq.outbox.lag.p95", 0.95}, {"acemq.outbox.lag.p99", 0.99}};

	for (int i = 0; i < lengthof(quantiles); i++)
	{
		double lag = acemq_slot_lag_quantile(slot, quantiles[i].quantile);

		if (lag >= 0)
			put(out, quantiles[i].name, lag);
	}
}

/* The names came from this database, so its encoding has all of their characters. */
static char *
server_name(const char *utf8)
{
	return pg_any_to_server(utf8, strlen(utf8), PG_UTF8);
}

static void
put_target(ReturnSetInfo *out, AcemqTarget *target, const char *exchange, const char *routing_key)
{
	Label labels[MAX_LABELS] = {{"exchange", exchange}, {"routing.key", routing_key}, {"outcome", "published"}};
	uint64 published = pg_atomic_read_u64(&target->published);

	put_labelled(out, "acemq.outbox.total", labels, MAX_LABELS, published);
	put_labelled(out, "acemq.outbox.lag.count", labels, MAX_LABELS, published);
	put_labelled(out, "acemq.outbox.lag.sum", labels, MAX_LABELS,
	             pg_atomic_read_u64(&target->lag_us) / (double) USECS_PER_SEC);
	labels[2].value = "failed";
	put_labelled(out, "acemq.outbox.total", labels, MAX_LABELS, pg_atomic_read_u64(&target->failed));
}

static void
put_targets(ReturnSetInfo *out, AcemqSlot *slot)
{
	uint32 count = pg_atomic_read_u32(&slot->ntargets);

	pg_read_barrier(); /* see target_of() */
	for (uint32 i = 0; i < count; i++)
		put_target(out, &slot->targets[i], server_name(slot->targets[i].exchange),
		           server_name(slot->targets[i].routing_key));
	if (count == ACEMQ_TARGETS)
		put_target(out, &slot->targets[ACEMQ_TARGET_OTHER], "(other)", "(other)");
}

/* One row per state: 1 for the one that it is in, 0 for the others. */
static void
put_states(ReturnSetInfo *out, AcemqState relay, AcemqSchedulerState scheduler)
{
	for (int state = ACEMQ_STATE_STARTING; state <= ACEMQ_STATE_NEEDS_RESTART; state++)
	{
		Label label = {"state", acemq_state_name((AcemqState) state)};

		put_labelled(out, "acemq.relay.in.state", &label, 1, state == (int) relay);
	}
	for (int state = ACEMQ_SCHEDULER_OFF; state <= ACEMQ_SCHEDULER_BLOCKED; state++)
	{
		Label label = {"state", acemq_scheduler_state_name((AcemqSchedulerState) state)};

		put_labelled(out, "acemq.scheduler.in.state", &label, 1, state == (int) scheduler);
	}
}

/* The same state as acemq.status shows. */
static void
put_processes(ReturnSetInfo *out, AcemqSlot *slot)
{
	AcemqState relay = acemq_shared != NULL ? ACEMQ_STATE_STARTING : ACEMQ_STATE_NEEDS_RESTART;
	AcemqSchedulerState scheduler = ACEMQ_SCHEDULER_OFF;

	if (slot != NULL && slot->worker_pid != 0)
	{
		relay = (AcemqState) pg_atomic_read_u32(&slot->state);
		scheduler = (AcemqSchedulerState) pg_atomic_read_u32(&slot->scheduler_state);
	}
	put_states(out, relay, scheduler);
	if (slot != NULL)
		put(out, "acemq.relay.connected",
		    relay == ACEMQ_STATE_RELAYING || relay == ACEMQ_STATE_IDLE || relay == ACEMQ_STATE_BLOCKED);
}

Datum
acemq_metrics(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *out = (ReturnSetInfo *) fcinfo->resultinfo;
	AcemqSlot *slot = acemq_my_slot();

	InitMaterializedSRF(fcinfo, 0);
	put_processes(out, slot);
	if (slot != NULL)
	{
		put_numbers(out, slot);
		put_lag_quantiles(out, slot);
		put_targets(out, slot);
	}
	return (Datum) 0;
}
