/*
 * outbox_claim.c
 *		acemq.outbox_claim(): lease rows to a relay outside the server.
 *
 * Claims are one at a time, since two that do not see each other's leases
 * could not keep the order of a lane; the second one gets nothing and comes
 * again.  A row is locked before anybody's hold on it is judged, as in
 * outbox_cancel().
 *
 * May depend on: shmem.h, as_owner.h, saved_plan.h, sql_args.h, claim_candidates.h,
 * external_relay.h, fetched.h, given_back.h, identity.h, guc.h, envelope.h, header_json.h, ladder_message.h, utf8.h.
 */
#include "postgres.h"

#include "as_owner.h"
#include "claim_candidates.h"
#include "envelope.h"
#include "external_relay.h"
#include "fetched.h"
#include "given_back.h"
#include "guc.h"
#include "header_json.h"
#include "identity.h"
#include "ladder_message.h"
#include "saved_plan.h"
#include "shmem.h"
#include "sql_args.h"
#include "utf8.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "storage/lmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(acemq_outbox_claim);

/* The same test as in the walk: the row may have changed before we had its lock. */
static SavedPlan lock_rows = {
    "SELECT id FROM acemq.outbox WHERE id = ANY ($1) AND retired_at IS NULL AND published_at IS NULL"
    " AND COALESCE(not_before <= $2, true) AND COALESCE(next_attempt_at <= $2, true)"
    " AND COALESCE(leased_until <= $2, true) ORDER BY id FOR UPDATE SKIP LOCKED",
    2,
    {INT8ARRAYOID, TIMESTAMPTZOID}};

static SavedPlan lease_row = {
    "UPDATE acemq.outbox SET leased_until = $2, leased_by = $3 WHERE id = $1"
    " RETURNING message_id, exchange, routing_key, content_type, type, version::bigint, correlation_id, causation_id,"
    " origin, reply_to, created_at, headers, body, priority::integer, expiration, attempts, persistent,"
    " ladder_due_at",
    3,
    {INT8OID, TIMESTAMPTZOID, TEXTOID}};

enum
{
	COL_MESSAGE_ID = 1,
	COL_EXCHANGE,
	COL_ROUTING_KEY,
	COL_CONTENT_TYPE,
	COL_TYPE,
	COL_VERSION,
	COL_CORRELATION_ID,
	COL_CAUSATION_ID,
	COL_ORIGIN,
	COL_REPLY_TO,
	COL_CREATED_AT,
	COL_HEADERS,
	COL_BODY,
	COL_PRIORITY,
	COL_EXPIRATION,
	COL_ATTEMPTS,
	COL_PERSISTENT,
	COL_LADDER_DUE_AT
};

#define RESULT_COLUMNS      12
#define RESULT_EXCHANGE     2
#define RESULT_ROUTING_KEY  3
#define RESULT_CONTENT_TYPE 4
#define RESULT_HEADERS      5

/* Where the other columns of the result come from; 0: not a column of the row. */
static const int result_source[RESULT_COLUMNS] = {
    0,        COL_MESSAGE_ID, COL_EXCHANGE,   COL_ROUTING_KEY, COL_CONTENT_TYPE, 0,
    COL_BODY, COL_PRIORITY,   COL_EXPIRATION, COL_REPLY_TO,    COL_ATTEMPTS,     COL_PERSISTENT};

typedef struct Claim
{
	TimestampTz now;
	TimestampTz leased_until;
	text *relay;
	ClaimCandidate *candidates;
	int count;
	HeldLanes *held; /* by rows that we could not have, or that failed under our hands */
	ReturnSetInfo *result;
} Claim;

/* ---- may we? ---- */

static bool
server_relays(const Identity *identity)
{
	AcemqSlot *slot = acemq_my_slot();

	return slot != NULL && slot->worker_pid != 0 && acemq_relay && !identity->paused &&
	       pg_atomic_read_u32(&slot->state) != ACEMQ_STATE_PAUSED;
}

static void
check_allowed(void)
{
	Identity identity = identity_read();

	if (identity.fenced)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
		                errmsg("this database is a copy of another one, so relaying from it is fenced"),
		                errhint("Call acemq.relay_resume() if this copy may send messages.")));
	if (server_relays(&identity))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
		                errmsg("the relay in the server serves this database"),
		                errhint("Call acemq.relay_pause(), or turn acemq.relay off for this database, before another "
		                        "relay claims messages.")));
}

/*
 * A lock that nobody else takes: (pg_class, outbox, 1) names no object of the
 * system's, and dropping the table locks it in another way.
 */
static bool
alone(void)
{
	Oid outbox = get_relname_relid("outbox", get_namespace_oid(ACEMQ_SCHEMA, false));

	return ConditionalLockDatabaseObject(RelationRelationId, outbox, 1, AccessExclusiveLock);
}

/* ---- locking ---- */

static int
compare_ids(const void *a, const void *b)
{
	int64 x = DatumGetInt64(*(const Datum *) a);
	int64 y = DatumGetInt64(*(const Datum *) b);

	return (x > y) - (x < y);
}

static Datum
candidate_array(const Claim *claim)
{
	Datum *ids = palloc(sizeof(Datum) * Max(claim->count, 1));

	for (int i = 0; i < claim->count; i++)
		ids[i] = Int64GetDatum(claim->candidates[i].id);
	return PointerGetDatum(
	    construct_array(ids, claim->count, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/*
 * Keep the candidates whose lock we have and that the relay in the server does
 * not hold in memory.  One that is lost holds its lane: what stands behind it has to wait.
 */
static void
lock_candidates(Claim *claim)
{
	Datum values[] = {candidate_array(claim), TimestampTzGetDatum(claim->now)};
	FetchedIds fetched;
	Datum *locked;
	uint64 nlocked;
	int kept = 0;

	saved_plan_run_fresh(&lock_rows, values, NULL, false);
	nlocked = SPI_processed;
	locked = palloc(sizeof(Datum) * Max(nlocked, 1));
	for (uint64 i = 0; i < nlocked; i++)
	{
		locked[i] = Int64GetDatum(spi_int64(i, 1));
		given_back_on_abort(spi_int64(i, 1));
	}
	SPI_freetuptable(SPI_tuptable);

	fetched = fetched_now();
	for (int i = 0; i < claim->count; i++)
	{
		ClaimCandidate candidate = claim->candidates[i];
		Datum id = Int64GetDatum(candidate.id);

		if (held_lanes_contain(claim->held, &candidate.lane))
			continue;
		if (bsearch(&id, locked, nlocked, sizeof(Datum), compare_ids) == NULL ||
		    fetched_contains(&fetched, candidate.id))
			held_lanes_add(claim->held, &candidate.lane);
		else
			claim->candidates[kept++] = candidate;
	}
	claim->count = kept;
}

/* ---- handing out ---- */

static const char *
utf8_column(int column, const char *name)
{
	char *value = spi_text(0, column);

	return value ? utf8_cstring(value, name) : NULL;
}

/* Of a row for the ladder: the rung that it takes now; NULL: it goes to its target. */
static const LadderRung *
rung_of_row(TimestampTz now)
{
	bool isnull;
	Datum due_at = spi_value(0, COL_LADDER_DUE_AT, &isnull);

	return isnull ? NULL : ladder_rung_for(ladder_left_ms(DatumGetTimestampTz(due_at), now));
}

static void
add_ladder_headers(WireTable *table)
{
	bool isnull;
	LadderTarget target = {.exchange = utf8_column(COL_EXCHANGE, "exchange"),
	                       .routing_key = utf8_column(COL_ROUTING_KEY, "routing_key"),
	                       .content_type = utf8_column(COL_CONTENT_TYPE, "content_type"),
	                       .due_at = DatumGetTimestampTz(spi_value(0, COL_LADDER_DUE_AT, &isnull))};

	ladder_headers_add(table, &target);
}

/* All headers that go on the wire, in the form the caller can read. */
static Jsonb *
wire_headers(const LadderRung *rung)
{
	Envelope envelope = {0};
	WireTable table = {0};
	bool isnull;
	Datum headers = spi_value(0, COL_HEADERS, &isnull);

	envelope.headers = isnull ? NULL : DatumGetJsonbP(headers);
	envelope.message_id = utf8_column(COL_MESSAGE_ID, "message_id");
	envelope.routing_key = utf8_column(COL_ROUTING_KEY, "routing_key");
	envelope.type = utf8_column(COL_TYPE, "type");
	envelope.version = (int32) spi_int64(0, COL_VERSION);
	envelope.correlation_id = utf8_column(COL_CORRELATION_ID, "correlation_id");
	envelope.causation_id = utf8_column(COL_CAUSATION_ID, "causation_id");
	envelope.origin = utf8_column(COL_ORIGIN, "origin");
	envelope.reply_to = utf8_column(COL_REPLY_TO, "reply_to");
	envelope.first_seen = DatumGetTimestampTz(spi_value(0, COL_CREATED_AT, &isnull));
	envelope_headers(&envelope, &table);
	if (rung != NULL)
		add_ladder_headers(&table);
	return header_table_to_json(&table);
}

static void
emit_row(Claim *claim, int64 id, const LadderRung *rung, Jsonb *headers)
{
	Datum values[RESULT_COLUMNS];
	bool nulls[RESULT_COLUMNS] = {false};

	for (int i = 0; i < RESULT_COLUMNS; i++)
		if (result_source[i] != 0)
			values[i] = spi_value(0, result_source[i], &nulls[i]);
	values[0] = Int64GetDatum(id);
	values[RESULT_HEADERS] = JsonbPGetDatum(headers);
	if (rung != NULL)
	{
		values[RESULT_EXCHANGE] = CStringGetTextDatum(LADDER_EXCHANGE);
		values[RESULT_ROUTING_KEY] = CStringGetTextDatum(rung->queue);
		values[RESULT_CONTENT_TYPE] = CStringGetTextDatum(LADDER_CONTENT_TYPE);
	}
	tuplestore_putvalues(claim->result->setResult, claim->result->setDesc, values, nulls);
}

/* NULL, and the reason, if they cannot be written. */
static Jsonb *
try_wire_headers(const LadderRung *rung, char **problem)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	Jsonb *volatile headers = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		headers = wire_headers(rung);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		if (error->sqlerrcode == ERRCODE_QUERY_CANCELED || error->sqlerrcode == ERRCODE_OUT_OF_MEMORY)
			ReThrowError(error);
		*problem = error->message;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return headers;
}

/*
 * A row whose headers cannot be written was put in past outbox_add(): that is
 * its own failed attempt, not the end of the claim.
 */
static void
lease_and_emit(Claim *claim, const ClaimCandidate *candidate)
{
	Datum values[] = {Int64GetDatum(candidate->id), TimestampTzGetDatum(claim->leased_until),
	                  PointerGetDatum(claim->relay)};
	SPITupleTable *row;
	const LadderRung *rung;
	char *problem = NULL;
	Jsonb *headers;
	bool isnull;

	saved_plan_run_fresh(&lease_row, values, NULL, false);
	if (SPI_processed == 0)
		return;
	row = SPI_tuptable;
	rung = rung_of_row(claim->now);
	headers = try_wire_headers(rung, &problem);
	if (headers != NULL)
		emit_row(claim, candidate->id, rung, headers);
	else
	{
		external_relay_fail(candidate->id, DatumGetInt32(spi_value(0, COL_ATTEMPTS, &isnull)), problem);
		held_lanes_add(claim->held, &candidate->lane);
	}
	SPI_freetuptable(row);
}

static void
run_claim(Claim *claim, int batch)
{
	check_allowed();
	if (!alone())
		return;
	claim->candidates = palloc(sizeof(ClaimCandidate) * batch);
	claim->held = held_lanes_create();
	claim->count = claim_candidates_find(claim->now, claim->relay, batch, claim->candidates);
	lock_candidates(claim);
	for (int i = 0; i < claim->count; i++)
		if (!held_lanes_contain(claim->held, &claim->candidates[i].lane))
			lease_and_emit(claim, &claim->candidates[i]);
}

Datum
acemq_outbox_claim(PG_FUNCTION_ARGS)
{
	Claim claim = {0};
	int64 lease_ms = arg_interval_ms(fcinfo, 1, "lease", 1);
	int batch;
	AsOwner save;

	arg_not_null(fcinfo, 0, "batch");
	batch = PG_GETARG_INT32(0);
	if (batch < 1 || batch > EXTERNAL_RELAY_MAX_BATCH)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("argument \"batch\" is out of range"),
		                errdetail("It must be between 1 and %d.", EXTERNAL_RELAY_MAX_BATCH)));
	claim.relay = external_relay_arg(fcinfo, 2);
	claim.now = GetCurrentTimestamp();
	claim.leased_until = TimestampTzPlusMilliseconds(claim.now, lease_ms);

	InitMaterializedSRF(fcinfo, 0);
	claim.result = (ReturnSetInfo *) fcinfo->resultinfo;
	as_owner_begin(&save);
	SPI_connect();
	run_claim(&claim, batch);
	SPI_finish();
	as_owner_end(&save);
	return (Datum) 0;
}
