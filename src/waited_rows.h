/*
 * waited_rows.h
 *		The rows an outbox_sweep() waits for, and what has become of them.
 *
 * Ten million waiting rows must not cost ten million entries: ids are kept as
 * runs, because rows that wait are mostly neighbours.  They leave roughly from
 * the front, so looking again means finding the first one that is still there,
 * and the table is read about once in all.
 *
 * May depend on: acemq.h.
 */
#ifndef ACEMQ_WAITED_ROWS_H
#define ACEMQ_WAITED_ROWS_H

#include "acemq.h"

typedef struct WaitedRows WaitedRows;

typedef enum WaitedOutcome
{
	WAITED_STILL, /* at least one is still waiting */
	WAITED_GONE,  /* all have been sent, or taken back */
	WAITED_FAILED /* one has failed since we began: see the two texts */
} WaitedOutcome;

/*
 * Everything committed and due now, seen with a fresh snapshot.  Rows of the
 * current transaction, rows not due yet and retired rows do not belong to it.
 * Allocated in the current memory context.
 */
extern WaitedRows *waited_rows_collect(void);

extern int64 waited_rows_count(const WaitedRows *waited);
/* How many of them wait now; counting ends just above `max`. */
extern int64 waited_rows_count_left(const WaitedRows *waited, int64 max);

/* Look at the first one still there; with `all` look at every one for a failed attempt. */
extern WaitedOutcome waited_rows_look(WaitedRows *waited, bool all);

/* After WAITED_FAILED. */
extern const char *waited_rows_failed_message(const WaitedRows *waited);
extern const char *waited_rows_failed_reason(const WaitedRows *waited);

#endif /* ACEMQ_WAITED_ROWS_H */
