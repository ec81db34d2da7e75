/*-------------------------------------------------------------------------
 *
 * durability.c
 *		Up to where commits are safe.
 *
 * A commit with synchronous_commit = off is visible before its WAL is on disk,
 * and one that is cancelled while it waits for a synchronous standby is
 * visible before the standby has it.  The relay therefore flushes past what
 * it has read, and holds rows until the standby's confirmed position has
 * passed them.  It reads that position; it never waits in the server's queue
 * for it, where a missing standby would hold up a shutdown.
 *
 * May depend on: src/acemq.h.
 *
 *-------------------------------------------------------------------------
 */
#include "durability.h"

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/lwlock.h"

/*
 * The insert position is where the next record will start.  When the previous
 * record ended exactly at a page boundary that is behind the header of a page
 * which does not exist yet, and a flush request for it would be refused; the
 * end of the previous record is then the start of that page.
 */
XLogRecPtr
durability_horizon(void)
{
	XLogRecPtr upto = GetXLogInsertRecPtr();
	uint64 in_page = upto % XLOG_BLCKSZ;

	if (in_page == SizeOfXLogShortPHD)
		upto -= in_page;
	else if (in_page == SizeOfXLogLongPHD && XLogSegmentOffset(upto, wal_segment_size) == SizeOfXLogLongPHD)
		upto -= in_page;
	return upto;
}

void
durability_flush(XLogRecPtr upto)
{
	if (GetFlushRecPtr(NULL) < upto)
		XLogFlush(upto);
}

XLogRecPtr
durability_confirmed(void)
{
	XLogRecPtr confirmed;

	if (max_wal_senders == 0 || WalSndCtl == NULL || SyncRepStandbyNames == NULL || SyncRepStandbyNames[0] == '\0')
		return PG_UINT64_MAX;

	LWLockAcquire(SyncRepLock, LW_SHARED);
	confirmed = WalSndCtl->lsn[SYNC_REP_WAIT_FLUSH];
	LWLockRelease(SyncRepLock);
	return confirmed;
}
