/*
 * claim_candidates.c
 *		Which rows a relay outside the server may lease now.
 *
 * The pending rows are walked in the order in which they should go out: by id,
 * and a row with not_before as if it had been added when it became due.  A row
 * that backs off or is leased to another relay holds its lane, and a row with
 * an ordering key that is leased or taken now holds it too, since one row of a
 * key is on the wire at a time.  Rows of held lanes are read past.
 *
 * May depend on: saved_plan.h, ladder.h, compat.h.
 */
#include "claim_candidates.h"

#include "compat.h"
#include "ladder.h"
#include "saved_plan.h"

#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#define FETCH_ROWS 500

/* A lane's name is marked with its kind, so that a queue is not taken for an exchange of that name. */
#define STREAM(time)                                                                                                   \
	"SELECT id, " time ", "                                                                                            \
	"CASE WHEN ordering_key IS NOT NULL THEN 'k' || ordering_key"                                                      \
	" WHEN ladder_due_at IS NOT NULL THEN 'e" LADDER_EXCHANGE "'"                                                      \
	" WHEN exchange <> '' THEN 'e' || exchange ELSE 'q' || routing_key END, "                                          \
	"ordering_key IS NOT NULL, "                                                                                       \
	"COALESCE(leased_until > $1, false), "                                                                             \
	"COALESCE(next_attempt_at > $1, false) OR COALESCE(leased_until > $1 AND leased_by IS DISTINCT FROM $2, false) "   \
	"FROM acemq.outbox WHERE retired_at IS NULL AND published_at IS NULL AND "

static SavedPlan rows_by_id = {STREAM("created_at") "not_before IS NULL ORDER BY id", 2, {TIMESTAMPTZOID, TEXTOID}};

static SavedPlan rows_by_due_time = {
    STREAM("not_before") "not_before <= $1 ORDER BY not_before, id", 2, {TIMESTAMPTZOID, TEXTOID}};

typedef struct WalkRow
{
	int64 id;
	TimestampTz time;
	ClaimLane lane;
	bool strict; /* has an ordering key */
	bool leased; /* by anybody */
	bool holds;  /* backs off, or is leased to another relay */
} WalkRow;

typedef struct Stream
{
	Portal portal;
	WalkRow rows[FETCH_ROWS];
	int count;
	int next;
	bool at_end;
} Stream;

/* ---- held lanes ---- */

struct HeldLanes
{
	HTAB *table;
};

HeldLanes *
held_lanes_create(void)
{
	HeldLanes *lanes = palloc(sizeof(HeldLanes));
	HASHCTL info = {.keysize = sizeof(ClaimLane), .entrysize = sizeof(ClaimLane), .hcxt = CurrentMemoryContext};

	lanes->table = hash_create("acemq held lanes", 256, &info, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	return lanes;
}

void
held_lanes_add(HeldLanes *lanes, const ClaimLane *lane)
{
	(void) hash_search(lanes->table, lane, HASH_ENTER, NULL);
}

bool
held_lanes_contain(HeldLanes *lanes, const ClaimLane *lane)
{
	return hash_search(lanes->table, lane, HASH_FIND, NULL) != NULL;
}

/* ---- the two streams ---- */

static ClaimLane
lane_of_name(Datum name)
{
	text *bytes = DatumGetTextPP(name);
	const unsigned char *data = (const unsigned char *) VARDATA_ANY(bytes);
	int len = VARSIZE_ANY_EXHDR(bytes);
	ClaimLane lane;

	lane.hash[0] = hash_bytes_extended(data, len, 0);
	lane.hash[1] = hash_bytes_extended(data, len, lane.hash[0] | 1);
	return lane;
}

/* With a snapshot of its own, whatever the isolation level; the portal keeps it. */
static void
stream_open(Stream *stream, SavedPlan *statement, TimestampTz now, text *relay)
{
	Datum values[] = {TimestampTzGetDatum(now), PointerGetDatum(relay)};

	PushActiveSnapshot(GetLatestSnapshot());
	stream->portal = SPI_cursor_open(NULL, saved_plan(statement), values, NULL, true);
	PopActiveSnapshot();
	stream->count = stream->next = 0;
	stream->at_end = false;
}

static void
stream_fill(Stream *stream)
{
	CHECK_FOR_INTERRUPTS();
	SPI_cursor_fetch(stream->portal, true, FETCH_ROWS);
	stream->count = (int) SPI_processed;
	stream->next = 0;
	stream->at_end = (stream->count == 0);
	for (int i = 0; i < stream->count; i++)
	{
		WalkRow *row = &stream->rows[i];
		bool isnull;

		row->id = spi_int64(i, 1);
		row->time = DatumGetTimestampTz(spi_value(i, 2, &isnull));
		row->lane = lane_of_name(spi_value(i, 3, &isnull));
		row->strict = spi_bool(i, 4);
		row->leased = spi_bool(i, 5);
		row->holds = spi_bool(i, 6);
	}
	SPI_freetuptable(SPI_tuptable);
}

/* The row at the head of the stream, NULL at its end. */
static const WalkRow *
stream_head(Stream *stream)
{
	if (stream->next == stream->count && !stream->at_end)
		stream_fill(stream);
	return stream->at_end ? NULL : &stream->rows[stream->next];
}

/* Takes from either stream; each keeps its own order whatever the clock did. */
static const WalkRow *
next_row(Stream *by_id, Stream *by_due_time)
{
	const WalkRow *plain = stream_head(by_id);
	const WalkRow *due = stream_head(by_due_time);

	if (due != NULL && (plain == NULL || due->time < plain->time))
	{
		by_due_time->next++;
		return due;
	}
	if (plain != NULL)
		by_id->next++;
	return plain;
}

/*
 * Both streams are read in the order of an index, and mostly not to the end:
 * the planner must not think of sorting a table it believes to be small.  Ends
 * with as_owner_end().
 */
static void
read_in_order(void)
{
	static const char *const off[] = {"enable_sort", "enable_seqscan", "enable_bitmapscan"};

	for (int i = 0; i < lengthof(off); i++)
		(void) set_config_option(off[i], "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

int
claim_candidates_find(TimestampTz now, text *relay, int limit, ClaimCandidate *candidates)
{
	Stream *by_id = palloc(sizeof(Stream));
	Stream *by_due_time = palloc(sizeof(Stream));
	HeldLanes *held = held_lanes_create();
	const WalkRow *row;
	int count = 0;

	read_in_order();
	stream_open(by_id, &rows_by_id, now, relay);
	stream_open(by_due_time, &rows_by_due_time, now, relay);
	while (count < limit && (row = next_row(by_id, by_due_time)) != NULL)
	{
		bool free = !row->leased && !row->holds && !held_lanes_contain(held, &row->lane);

		if (free)
			candidates[count++] = (ClaimCandidate){row->id, row->lane};
		if (row->holds || row->strict)
			held_lanes_add(held, &row->lane);
	}
	SPI_cursor_close(by_id->portal);
	SPI_cursor_close(by_due_time->portal);
	return count;
}
