/*
 * given_back.c
 *		Rows that a transaction has locked, and gives back if it aborts.
 *
 * May depend on: wake.h, shmem.h.
 */
#include "given_back.h"

#include "shmem.h"
#include "wake.h"

#include "access/xact.h"
#include "utils/memutils.h"

typedef struct LockedRow
{
	struct LockedRow *next;
	int nest_level;
	int64 id;
} LockedRow;

/* Innermost level first.  In TopTransactionContext, which outlives the callbacks. */
static LockedRow *locked_rows = NULL;

/* A prepared transaction keeps its locks; the worker's sweep finds what it leaves behind. */
static void
at_transaction_end(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_ABORT)
		for (LockedRow *row = locked_rows; row != NULL; row = row->next)
			wake_report_late(row->id);
	if (event == XACT_EVENT_ABORT || event == XACT_EVENT_COMMIT || event == XACT_EVENT_PREPARE)
		locked_rows = NULL;
}

static void
at_subtransaction_end(SubXactEvent event, SubTransactionId subid, SubTransactionId parent_subid, void *arg)
{
	int nest_level = GetCurrentTransactionNestLevel();
	LockedRow *row = locked_rows;

	if (event == SUBXACT_EVENT_COMMIT_SUB)
	{
		for (; row != NULL && row->nest_level >= nest_level; row = row->next)
			row->nest_level = nest_level - 1;
	}
	else if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		for (; row != NULL && row->nest_level >= nest_level; row = row->next)
			wake_report_late(row->id);
		locked_rows = row;
	}
}

void
given_back_on_abort(int64 id)
{
	static bool registered = false;
	LockedRow *row;

	/* Without shared memory there is no worker to tell. */
	if (acemq_shared == NULL)
		return;
	if (!registered)
	{
		RegisterXactCallback(at_transaction_end, NULL);
		RegisterSubXactCallback(at_subtransaction_end, NULL);
		registered = true;
	}
	row = MemoryContextAlloc(TopTransactionContext, sizeof(LockedRow));
	row->next = locked_rows;
	row->nest_level = GetCurrentTransactionNestLevel();
	row->id = id;
	locked_rows = row;
}
