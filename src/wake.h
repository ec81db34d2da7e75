/*
 * wake.h
 *		What a backend remembers of the rows its transaction adds, and what it
 *		tells the worker at commit: that there is work, and which ids the
 *		worker's forward scan may have missed.
 *
 * May depend on: shmem.h.
 */
#ifndef ACEMQ_WAKE_H
#define ACEMQ_WAKE_H

#include "acemq.h"

/*
 * Note that the current (sub)transaction added the row `id`.  Registers the
 * transaction callbacks the first time a backend calls it (once per backend,
 * not per transaction).  Rows of rolled-back subtransactions are forgotten.
 * At commit: late ids are reported, `pending` and `added` grow, the worker is woken.
 */
extern void wake_note_added(int64 id);

/* Same for the other direction: pending / retired change by these amounts if the transaction commits. */
extern void wake_note_change(int64 pending, int64 retired);

/*
 * The row `id` has failed or was leased, so its lane may be held for it; if the
 * transaction commits there is no reason any more, or another one: the row is
 * gone, is retired, or is to be tried at another time.  The worker has passed
 * over it and would not miss it by itself.
 */
extern void wake_note_freed(int64 id);

/*
 * At once, and whatever becomes of this transaction: the worker may have
 * passed over that row because it was locked, and shall look at it again.  Never raises an
 * error, so it can be called while a transaction ends.
 */
extern void wake_report_late(int64 id);

/* Wake worker (or launcher) if this transaction commits, without a count. */
extern void wake_worker_at_commit(void);
extern void wake_launcher_at_commit(void);

#endif /* ACEMQ_WAKE_H */
