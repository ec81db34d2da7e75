/*
 * status.c
 *		acemq._status(): what shared memory says of this database's relay.
 *
 * Reads counters and texts and no table, so it costs the same however many
 * rows are waiting.
 *
 * May depend on: shmem.h, slot_text.h.
 */
#include "postgres.h"

#include "shmem.h"
#include "slot_text.h"

#include "access/htup_details.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(acemq_status);

/* In the order of the columns of acemq._status() in sql/50_status.sql. */
enum
{
	ST_STATE,
	ST_SINCE,
	ST_BROKER,
	ST_PENDING,
	ST_OLDEST_AGE,
	ST_RETIRED,
	ST_IN_FLIGHT,
	ST_PUBLISHED,
	ST_FAILED,
	ST_RETURNED,
	ST_NACKED,
	ST_RECONNECTS,
	ST_OVERTAKEN,
	ST_LAG_P50,
	ST_LAG_P95,
	ST_LAG_P99,
	ST_LAST_ERROR,
	ST_LAST_ERROR_AT,
	ST_PENDING_APPROXIMATE,
	ST_RESENT,
	ST_SKIPPED_TURNS,
	ST_HELD_BY,
	ST_WORKER_PID,
	ST_LADDER_SCHEDULED,
	ST_LADDER_DELIVERED,
	ST_LADDER_HOPS,
	ST_LADDER_MALFORMED,
	ST_SCHEDULER,
	ST_SCHEDULER_SINCE,
	ST_SCHEDULER_PROBLEM,
	ST_COLUMNS
};

typedef struct StatusRow
{
	Datum values[ST_COLUMNS];
	bool nulls[ST_COLUMNS];
} StatusRow;

static void
set_value(StatusRow *row, int column, Datum value)
{
	row->values[column] = value;
	row->nulls[column] = false;
}

static void
set_text(StatusRow *row, int column, const char *text)
{
	if (text[0] != '\0')
		set_value(row, column, CStringGetTextDatum(text));
}

static void
set_time(StatusRow *row, int column, TimestampTz time)
{
	if (time != 0)
		set_value(row, column, TimestampTzGetDatum(time));
}

static void
set_counter(StatusRow *row, int column, pg_atomic_uint64 *counter)
{
	set_value(row, column, Int64GetDatum((int64) pg_atomic_read_u64(counter)));
}

/* Commit and settle may be counted in either order, so a gauge can be below zero for a moment. */
static void
set_gauge(StatusRow *row, int column, pg_atomic_uint64 *gauge)
{
	set_value(row, column, Int64GetDatum(Max((int64) pg_atomic_read_u64(gauge), 0)));
}

static void
set_lag(StatusRow *row, int column, AcemqSlot *slot, double quantile)
{
	double lag = acemq_slot_lag_quantile(slot, quantile);

	if (lag >= 0)
		set_value(row, column, Float8GetDatum(lag));
}

static void
set_oldest_age(StatusRow *row, AcemqSlot *slot)
{
	TimestampTz oldest = (TimestampTz) pg_atomic_read_u64(&slot->oldest);

	if (oldest != 0)
		set_value(row, ST_OLDEST_AGE,
		          DirectFunctionCall2(timestamp_mi, TimestampTzGetDatum(Max(GetCurrentTimestamp(), oldest)),
		                              TimestampTzGetDatum(oldest)));
}

static void
set_counters(StatusRow *row, AcemqSlot *slot)
{
	set_gauge(row, ST_PENDING, &slot->pending);
	set_gauge(row, ST_RETIRED, &slot->retired);
	set_gauge(row, ST_IN_FLIGHT, &slot->in_flight);
	set_counter(row, ST_PUBLISHED, &slot->published);
	set_counter(row, ST_FAILED, &slot->failed);
	set_counter(row, ST_RETURNED, &slot->returned);
	set_counter(row, ST_NACKED, &slot->nacked);
	set_counter(row, ST_RECONNECTS, &slot->reconnects);
	set_counter(row, ST_OVERTAKEN, &slot->overtaken);
	set_counter(row, ST_RESENT, &slot->resent);
	set_counter(row, ST_SKIPPED_TURNS, &slot->skipped_turns);
	set_counter(row, ST_LADDER_SCHEDULED, &slot->ladder_scheduled);
	set_counter(row, ST_LADDER_DELIVERED, &slot->ladder_delivered);
	set_counter(row, ST_LADDER_HOPS, &slot->ladder_hops);
	set_counter(row, ST_LADDER_MALFORMED, &slot->ladder_malformed);
	set_lag(row, ST_LAG_P50, slot, 0.50);
	set_lag(row, ST_LAG_P95, slot, 0.95);
	set_lag(row, ST_LAG_P99, slot, 0.99);
}

static AcemqSchedulerState
scheduler_state(AcemqSlot *slot)
{
	return (AcemqSchedulerState) pg_atomic_read_u32(&slot->scheduler_state);
}

static void
set_slot(StatusRow *row, AcemqSlot *slot)
{
	SlotTexts texts = slot_texts(slot);
	pid_t worker = slot->worker_pid;
	AcemqState state = worker ? (AcemqState) pg_atomic_read_u32(&slot->state) : ACEMQ_STATE_STARTING;

	set_text(row, ST_STATE, acemq_state_name(state));
	set_time(row, ST_SINCE, (TimestampTz) pg_atomic_read_u64(&slot->state_since));
	set_text(row, ST_BROKER, texts.broker);
	set_counters(row, slot);
	set_oldest_age(row, slot);
	set_text(row, ST_LAST_ERROR, texts.last_error);
	set_time(row, ST_LAST_ERROR_AT, texts.last_error_at);
	set_value(row, ST_PENDING_APPROXIMATE, BoolGetDatum(pg_atomic_read_u32(&slot->pending_approximate) != 0));
	set_text(row, ST_HELD_BY, texts.held_by);
	if (worker != 0)
		set_value(row, ST_WORKER_PID, Int32GetDatum(worker));
	set_text(row, ST_SCHEDULER, acemq_scheduler_state_name(worker ? scheduler_state(slot) : ACEMQ_SCHEDULER_OFF));
	set_time(row, ST_SCHEDULER_SINCE, (TimestampTz) pg_atomic_read_u64(&slot->scheduler_since));
	set_text(row, ST_SCHEDULER_PROBLEM, texts.scheduler_problem);
}

Datum
acemq_status(PG_FUNCTION_ARGS)
{
	AcemqSlot *slot = acemq_my_slot();
	TupleDesc desc;
	StatusRow row;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");

	memset(row.nulls, true, sizeof(row.nulls));
	if (slot != NULL)
		set_slot(&row, slot);
	else if (acemq_shared != NULL)
		set_text(&row, ST_STATE, acemq_state_name(ACEMQ_STATE_STARTING));
	else
	{
		set_text(&row, ST_STATE, acemq_state_name(ACEMQ_STATE_NEEDS_RESTART));
		set_text(&row, ST_LAST_ERROR, "the library is not in shared_preload_libraries");
	}
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), row.values, row.nulls)));
}
