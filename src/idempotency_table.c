/*-------------------------------------------------------------------------
 *
 * idempotency_table.c
 *		The table acemq.idempotency, and what is known of a key right now.
 *
 * A claim has to know more than a snapshot shows: whether somebody who has not
 * committed yet is at work on the key, and it must not wait to find out.  So
 * the key is looked up with a dirty snapshot, the one by which the server itself finds
 * duplicates in a unique index.  It tells for each version of the row whose
 * open transaction has written it or is about to replace it.
 *
 * A dirty look has one gap: while a row is replaced it may find neither the old
 * version nor the new one.  Hence LOOK_NOTHING means no more than that an insert
 * is worth trying; the unique index has the last word.
 *
 * May depend on: store_table.h, compat.h.
 *
 *-------------------------------------------------------------------------
 */
#include "idempotency_table.h"

#include "compat.h"
#include "store_table.h"

#include "access/genam.h"
#include "access/relscan.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_am.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"

bool
idempotency_index_is_of_key(Relation index)
{
	return index->rd_rel->relam == BTREE_AM_OID && index->rd_index->indnkeyatts == 1 &&
	       index->rd_index->indkey.values[0] == IDEMPOTENCY_KEY + 1;
}

void
idempotency_open(IdempotencyTable *table, LOCKMODE lockmode)
{
	table->rel = store_table_open(&store_idempotency, lockmode);
	table->lockmode = lockmode;
	table->primary_key = compat_primary_key(table->rel);
	if (!OidIsValid(table->primary_key))
		store_table_refuse(&store_idempotency);
	table->row = table_slot_create(table->rel, NULL);
}

void
idempotency_close(IdempotencyTable *table)
{
	ExecDropSingleTupleTableSlot(table->row);
	table_close(table->rel, NoLock);
}

/* ---- the columns of a row ---- */

static bool
text_is(Datum value, const char *bytes, int len)
{
	text *t = DatumGetTextPP(value);

	return VARSIZE_ANY_EXHDR(t) == len && memcmp(VARDATA_ANY(t), bytes, len) == 0;
}

static bool
state_is(TupleTableSlot *row, const char *state)
{
	bool isnull;
	Datum value = slot_getattr(row, IDEMPOTENCY_STATE + 1, &isnull);

	return text_is(value, state, strlen(state));
}

static bool
is_expired(TupleTableSlot *row, TimestampTz now)
{
	bool isnull;

	return DatumGetTimestampTz(slot_getattr(row, IDEMPOTENCY_EXPIRES_AT + 1, &isnull)) <= now;
}

bool
idempotency_row_is_claim_of(IdempotencyTable *table, const text *owner)
{
	bool isnull;
	Datum value = slot_getattr(table->row, IDEMPOTENCY_CLAIMED_BY + 1, &isnull);

	return !isnull && state_is(table->row, IDEMPOTENCY_CLAIMED) &&
	       text_is(value, VARDATA_ANY(owner), VARSIZE_ANY_EXHDR(owner));
}

/* ---- looking ---- */

typedef struct KeyScan
{
	Relation index;
	IndexScanDesc scan;
} KeyScan;

static void
begin_scan(KeyScan *by_key, IdempotencyTable *table, text *key, Snapshot snapshot)
{
	ScanKeyData condition;

	by_key->index = index_open(table->primary_key, table->lockmode);
	if (!idempotency_index_is_of_key(by_key->index))
		store_table_refuse(&store_idempotency);
	ScanKeyInit(&condition, 1, BTEqualStrategyNumber, F_TEXTEQ, PointerGetDatum(key));
	condition.sk_collation = by_key->index->rd_indcollation[0];
	by_key->scan = compat_index_beginscan(table->rel, by_key->index, snapshot, 1);
	index_rescan(by_key->scan, &condition, 1, NULL, 0);
}

static void
end_scan(KeyScan *by_key)
{
	index_endscan(by_key->scan);
	index_close(by_key->index, NoLock);
}

static void
note_busy(IdempotencyBusy *busy, TransactionId xid, uint32 speculative_token, TupleTableSlot *row)
{
	if (busy == NULL)
		return;
	busy->xid = xid;
	busy->speculative_token = speculative_token;
	busy->tid = row->tts_tid;
}

/*
 * Of a version of the row.  What was committed as confirmed stays so if whoever
 * changes it rolls back, and hardly becomes anything else if not.
 */
static IdempotencyLook
judge_version(TupleTableSlot *row, const SnapshotData *dirty, TimestampTz now, IdempotencyBusy *busy)
{
	bool expired;

	if (TransactionIdIsValid(dirty->xmin))
	{
		note_busy(busy, dirty->xmin, dirty->speculativeToken, row);
		return LOOK_BUSY;
	}
	expired = is_expired(row, now);
	if (!expired && state_is(row, IDEMPOTENCY_CONFIRMED))
		return LOOK_CONFIRMED;
	if (TransactionIdIsValid(dirty->xmax))
	{
		note_busy(busy, dirty->xmax, 0, row);
		return LOOK_BUSY;
	}
	return expired ? LOOK_EXPIRED : LOOK_CLAIMED;
}

/* A version that is busy may have an older or a newer one beside it that says more. */
IdempotencyLook
idempotency_look(IdempotencyTable *table, text *key, TimestampTz now, IdempotencyBusy *busy)
{
	IdempotencyLook result = LOOK_NOTHING;
	SnapshotData dirty;
	KeyScan by_key;

	InitDirtySnapshot(dirty);
	begin_scan(&by_key, table, key, &dirty);
	while ((result == LOOK_NOTHING || result == LOOK_BUSY) &&
	       index_getnext_slot(by_key.scan, ForwardScanDirection, table->row))
		result = judge_version(table->row, &dirty, now, busy);
	end_scan(&by_key);
	return result;
}

/*
 * Not with a dirty snapshot: whoever asks does not go on to change the row, so
 * that nothing would close the gap.
 */
bool
idempotency_is_confirmed(IdempotencyTable *table, text *key, TimestampTz now)
{
	Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
	KeyScan by_key;
	bool confirmed = false;

	begin_scan(&by_key, table, key, snapshot);
	while (!confirmed && index_getnext_slot(by_key.scan, ForwardScanDirection, table->row))
		confirmed = state_is(table->row, IDEMPOTENCY_CONFIRMED) && !is_expired(table->row, now);
	end_scan(&by_key);
	UnregisterSnapshot(snapshot);
	return confirmed;
}
