/*
 * shmem.h
 *		The seam between ordinary backends and our own processes: one slot per
 *		served database in shared memory.
 *
 * Nothing process-local may ever be stored here: no heap pointer, no file
 * descriptor.  (A latch or PGPROC pointer is into shared memory and never
 * moves.)  Everything is rebuilt from the tables after a crash of the server.
 *
 * Who writes what: the launcher assigns and frees slots, the worker writes
 * state, counters and texts, backends append late ranges and bump `added`.
 *
 * May depend on: acemq.h.
 */
#ifndef ACEMQ_SHMEM_H
#define ACEMQ_SHMEM_H

#include "acemq.h"

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/spin.h"

/* Order and names are those of acemq.status.state. */
typedef enum AcemqState
{
	ACEMQ_STATE_STARTING,     /* worker process is starting, or none runs */
	ACEMQ_STATE_RELAYING,     /* connected, rows in memory */
	ACEMQ_STATE_IDLE,         /* connected, nothing to do */
	ACEMQ_STATE_DISCONNECTED, /* no connection to the broker (or no URL) */
	ACEMQ_STATE_BLOCKED,      /* broker sent connection.blocked */
	ACEMQ_STATE_PAUSED,       /* relay_pause() or acemq.relay = off */
	ACEMQ_STATE_FENCED,       /* copy of another database: until relay_resume() */
	ACEMQ_STATE_NEEDS_RESTART /* library and SQL version do not fit */
} AcemqState;

extern const char *acemq_state_name(AcemqState state);

/* Why the last try to connect did not succeed. */
typedef enum AcemqConnectProblem
{
	ACEMQ_CONNECT_FINE,          /* it did, or there was none yet */
	ACEMQ_CONNECT_UNREACHABLE,   /* name, TCP, TLS, handshake, timeout */
	ACEMQ_CONNECT_LOGIN_REFUSED, /* wrong credentials or virtual host */
	ACEMQ_CONNECT_MISCONFIGURED  /* password file or TLS file cannot be used */
} AcemqConnectProblem;

/* Settings as the worker has them; a session may have others. */
#define ACEMQ_WORKER_READ_SETTINGS 1 /* the bits below are known */
#define ACEMQ_WORKER_HAS_URL       2
#define ACEMQ_WORKER_RELAY_ON      4

/* What the worker of a database found out there; the launcher acts on it when the worker has ended. */
typedef enum AcemqFinding
{
	ACEMQ_FOUND_NOTHING_YET, /* has not looked */
	ACEMQ_FOUND_BUSY,        /* the extension is being created, altered or dropped */
	ACEMQ_FOUND_ABSENT,      /* no extension here */
	ACEMQ_FOUND_OVER_LIMIT,  /* extension is here, but acemq.max_databases others are served already */
	ACEMQ_FOUND_SERVED       /* extension is here; stays while the slot keeps its database */
} AcemqFinding;

/* Workers that may be looking for the extension at a time: slots beyond acemq.max_databases. */
#define ACEMQ_PROBES 2

/* The consumer of the ladder's control queue. */
typedef enum AcemqSchedulerState
{
	ACEMQ_SCHEDULER_OFF,           /* acemq.scheduler = off, no URL, or a fenced copy */
	ACEMQ_SCHEDULER_DISCONNECTED,  /* no connection */
	ACEMQ_SCHEDULER_NOT_CONSUMING, /* connected, but the control queue cannot be consumed now */
	ACEMQ_SCHEDULER_CONSUMING,
	ACEMQ_SCHEDULER_BLOCKED /* the broker takes no publishes */
} AcemqSchedulerState;

/* Ids from lo to hi inclusive, added by a transaction that committed after the worker had read past lo. */
typedef struct AcemqRange
{
	uint64 lo;
	uint64 hi;
} AcemqRange;

#define ACEMQ_LATE_RANGES  512
#define ACEMQ_FREED_RANGES 64

/* Lag histogram: bucket i holds lags in [2^(i/4), 2^((i+1)/4)) * 10 us; two halves, one filled while the other is kept. */
#define ACEMQ_LAG_BUCKETS 128

/*
 * What became of the messages to one exchange and routing key.  The first so
 * many pairs since the server's start have counters of their own; the rest
 * share the last entry.
 */
#define ACEMQ_TARGETS      256
#define ACEMQ_TARGET_OTHER ACEMQ_TARGETS
#define ACEMQ_TARGET_INDEX 1024 /* a power of two, several times ACEMQ_TARGETS */

typedef struct AcemqTarget
{
	/* written once, before AcemqSlot.ntargets says that the entry is there; UTF-8, cut to fit */
	uint64 hash;
	char exchange[256];
	char routing_key[256];

	pg_atomic_uint64 published;
	pg_atomic_uint64 failed;
	pg_atomic_uint64 lag_us; /* sum over the published ones */
} AcemqTarget;

typedef struct AcemqSlot
{
	/* ---- identity; changed under AcemqShared.lock ---- */
	Oid database;        /* InvalidOid: slot is free */
	pid_t worker_pid;    /* 0: no worker attached */
	Latch *worker_latch; /* NULL: none; read without a lock, see acemq_wake_worker() */
	TimestampTz worker_started_at;
	bool launched;         /* launcher asked for a worker and has not seen it end */
	bool ended_on_request; /* that worker went because it was told to, not for an error */
	AcemqFinding finding;

	/* worker, go: see acemq_ask_to_leave(); cleared when the next one attaches, which looks at everything again */
	pg_atomic_uint32 leave;

	/* ---- from backends to the worker ---- */
	pg_atomic_uint32 prepared;  /* a transaction that added rows was prepared: whoever commits it cannot report them */
	pg_atomic_uint32 wake;      /* set before the latch, cleared before the table is read */
	pg_atomic_uint32 retry_now; /* set before wake: try to connect soon, somebody may have mended what was wrong */

	/*
	 * Highest id the worker's forward scan may already have passed, or
	 * PG_UINT64_MAX while a scan is under way.  The worker raises it before
	 * it takes its snapshot, so a commit either is visible to that snapshot
	 * or finds its own ids at or below the cursor and reports them as late.
	 */
	pg_atomic_uint64 scan_cursor;
	slock_t late_mutex; /* guards the four below */
	int nlate;
	AcemqRange late[ACEMQ_LATE_RANGES];
	/* Of rows that a lane may be held for, and that are gone now or no longer to be waited for. */
	int nfreed;
	AcemqRange freed[ACEMQ_FREED_RANGES];

	/* ---- from the worker to outbox_cancel ---- */

	/*
	 * Ids that the worker holds in memory (0: unused entry), and a counter
	 * that is odd while the worker is reading rows.  See wake.h and
	 * bgworker/README.md, "Cancel".
	 */
	pg_atomic_uint32 fetch_epoch;
	ConditionVariable fetch_done;
	pg_atomic_uint64 fetched[ACEMQ_MAX_ROWS_IN_MEMORY];

	/* ---- what status() shows ---- */
	ConditionVariable progress;           /* broadcast after every settle, failed attempt and change of state */
	pg_atomic_uint32 state;               /* AcemqState */
	pg_atomic_uint64 state_since;         /* TimestampTz */
	pg_atomic_uint64 pending;             /* int64: rows, committed or prepared, neither sent nor retired */
	pg_atomic_uint32 pending_approximate; /* 1 until counted: after a start, or where rows came uncounted */
	pg_atomic_uint64 retired;
	pg_atomic_uint64 oldest; /* TimestampTz of the oldest unsent row the worker knows, 0: none */
	pg_atomic_uint64 in_flight;
	pg_atomic_uint64 added; /* rows committed by backends since the server's start */
	pg_atomic_uint64 published;
	pg_atomic_uint64 failed; /* failed attempts = returned + nacked + refused */
	pg_atomic_uint64 returned;
	pg_atomic_uint64 nacked;
	pg_atomic_uint64 reconnects;
	pg_atomic_uint64 overtaken; /* rows that were confirmed while an earlier row of their lane had failed */
	pg_atomic_uint64 resent;    /* rows put on the wire again after a loss: possible duplicates */
	pg_atomic_uint64
	    login_refused; /* logins the broker refused when all of the list had their turn: see outbox_sweep */
	pg_atomic_uint32 connect_problem; /* AcemqConnectProblem */
	pg_atomic_uint32 worker_settings; /* ACEMQ_WORKER_... */
	pg_atomic_uint32 worker_url_hash; /* acemq_url_hash() in the worker */
	pg_atomic_uint64 skipped_turns;   /* turns skipped because a lock was not to be had at once */
	pg_atomic_uint64 held_since; /* TimestampTz of the oldest message in the lane that held_by names, 0: none is held */
	pg_atomic_uint64 claims_purged; /* expired rows of the idempotency store that the worker removed */
	pg_atomic_uint64 outbox_purged; /* published rows that the worker removed after acemq.outbox_retention */

	/* the ladder; see src/ladder.h */
	pg_atomic_uint64 ladder_scheduled; /* messages of this database that went onto it, or out at once */
	pg_atomic_uint64 ladder_delivered; /* arrived at their target, whoever scheduled them */
	pg_atomic_uint64 ladder_hops;      /* publishes onto a rung */
	pg_atomic_uint64 ladder_malformed; /* dropped */
	pg_atomic_uint32 scheduler_state;  /* AcemqSchedulerState */
	pg_atomic_uint64 scheduler_since;  /* TimestampTz */
	pg_atomic_uint64 ladder_seen_at;   /* TimestampTz: all its objects were declared last; 0: not yet by this worker */
	pg_atomic_uint32 rungs_differ;     /* bit i: the queue of ladder_rungs[i] is another one */
	pg_atomic_uint32 ladder_problems;  /* how many of them are not as they should be: scheduler_problem says which */

	pg_atomic_uint32 lag_half;  /* which half is being filled */
	pg_atomic_uint64 lag_since; /* TimestampTz the current half began */
	pg_atomic_uint32 lag[2][ACEMQ_LAG_BUCKETS];

	/* ---- counters by exchange and routing key: targets.c ---- */
	pg_atomic_uint32 ntargets;
	uint16 target_index[ACEMQ_TARGET_INDEX]; /* by hash: entry + 1, 0: free; the worker's alone */
	AcemqTarget targets[ACEMQ_TARGETS + 1];

	/* ---- texts, and what has to be read together; guarded by text_lock ---- */
	LWLock text_lock;
	char broker[256];                  /* scheme://host:port/vhost, product and version; never a user or password */
	char last_error[ACEMQ_ERROR_TEXT]; /* of a message or a channel */
	TimestampTz last_error_at;
	char connection_error[ACEMQ_ERROR_TEXT]; /* why there was no connection, or no publishing, the last time */
	TimestampTz connection_error_at;
	char scheduler_problem
	    [ACEMQ_ERROR_TEXT]; /* why it does not consume, or what of the ladder does not match; "": nothing */
	char held_by[256];      /* the longest held lane and why, for doctor() */
	int64 blocked_us;       /* time in ACEMQ_STATE_BLOCKED, the present one not included */
	TimestampTz blocked_at; /* when the present one began; 0: not blocked */
} AcemqSlot;

/* A database whose worker has to stay away while somebody drops, renames, moves or copies it. */
#define ACEMQ_HOLDS 64
typedef struct AcemqHold
{
	Oid database;   /* InvalidOid: free */
	pid_t holder;   /* backend that asked */
	int nest_level; /* of its (sub)transaction */
} AcemqHold;

/* Databases that asked for a worker since the launcher last looked; more than fit: all are tried again. */
#define ACEMQ_REQUESTS 32

typedef struct AcemqShared
{
	LWLock *lock; /* guards identity of slots, holds, launcher fields */
	pid_t launcher_pid;
	Latch *launcher_latch;         /* NULL: none; read without a lock, see acemq_wake_launcher() */
	pg_atomic_uint32 rescan;       /* launcher: look at all databases again */
	bool slots_exhausted;          /* last start of a worker failed for lack of a background worker slot */
	ConditionVariable worker_gone; /* broadcast when a slot's `launched` goes false */
	AcemqHold holds[ACEMQ_HOLDS];
	slock_t request_mutex; /* guards the two below */
	int nrequests;         /* beyond ACEMQ_REQUESTS: not all are listed */
	Oid requests[ACEMQ_REQUESTS];
	int nslots; /* acemq.max_databases + ACEMQ_PROBES */
	AcemqSlot slots[FLEXIBLE_ARRAY_MEMBER];
} AcemqShared;

extern AcemqShared *acemq_shared; /* NULL: library not preloaded */

extern void acemq_shmem_init(void); /* from _PG_init while preloading: installs the shmem hooks */

/* Everything but locks and identity back to its first state.  Launcher only, for a slot that gets another database. */
extern void acemq_slot_reset(AcemqSlot *slot);

/* The slot of a database, or NULL (not preloaded, or not served).  Takes no lock; check slot->database again if it matters. */
extern AcemqSlot *acemq_slot_of(Oid database);
extern AcemqSlot *acemq_my_slot(void); /* of MyDatabaseId, cached */

/* Set the wake flag and the worker's (launcher's) latch.  Safe in a commit callback: never raises an error. */
extern void acemq_wake_worker(AcemqSlot *slot);
/*
 * The worker says goodbye to the broker and exits with 0.  One that has not
 * gone after ACEMQ_LEAVE_MS, because it is waiting for the broker, gets SIGTERM
 * from the launcher or the session with the hold.  Never raises an error.
 */
extern void acemq_ask_to_leave(AcemqSlot *slot);
#define ACEMQ_LEAVE_MS 200
/* Look at pg_database again, and start a worker here at once if there is none, whatever was found before. */
extern void acemq_wake_launcher(void);
/* The same for another database; InvalidOid: only look at pg_database again. */
extern void acemq_wake_launcher_for(Oid database);
/* Only the latch: something in shared memory has changed. */
extern void acemq_nudge_launcher(void);

/*
 * Keep the worker of a database away until the hold is released.  False when
 * ACEMQ_HOLDS are in force: go ahead without, the server's own wait for other
 * sessions is then all there is.
 */
extern bool acemq_hold_place(Oid database, int nest_level);
/* End this backend's holds of that nest level and deeper ones; 0: all of them. */
extern void acemq_hold_release(int nest_level);
/* The subtransaction of that level has committed: its holds belong to its parent. */
extern void acemq_hold_reparent(int nest_level);
/* Call with AcemqShared.lock held. */
extern bool acemq_is_held(Oid database);
/* A process that ends releases its holds itself; this is for one that could not.  Launcher only. */
extern void acemq_hold_drop_dead(void);

/* From settings of this process.  A hash tells whether two processes have the same URL without showing it. */
extern void acemq_slot_note_settings(AcemqSlot *slot);
extern uint32 acemq_url_hash(void);

/* Texts are cut to fit at a character boundary.  Called by the worker only. */
extern void acemq_slot_set_state(AcemqSlot *slot, AcemqState state);
extern void acemq_slot_set_error(AcemqSlot *slot, const char *text);
extern void acemq_slot_set_connection_error(AcemqSlot *slot, const char *text);
extern void acemq_slot_set_broker(AcemqSlot *slot, const char *text);
extern void acemq_slot_set_held_by(AcemqSlot *slot, const char *text);
extern void acemq_slot_set_scheduler_problem(AcemqSlot *slot, const char *text);
extern void acemq_slot_set_scheduler_state(AcemqSlot *slot, AcemqSchedulerState state);
extern const char *acemq_scheduler_state_name(AcemqSchedulerState state);

/* Lag in microseconds: from the add (or the due time of a row with not_before) to the confirm. */
extern void acemq_slot_note_lag(AcemqSlot *slot, int64 lag_us, TimestampTz now);
/* Quantile q (0..1) of both halves in seconds, or -1 when there is none. */
extern double acemq_slot_lag_quantile(AcemqSlot *slot, double q);

/* Microseconds in ACEMQ_STATE_BLOCKED since the server's start, up to now; never less than before. */
extern int64 acemq_slot_blocked_us(AcemqSlot *slot);

/* Count an outcome for an exchange and a routing key.  Called by the worker only. */
extern void acemq_slot_note_published(AcemqSlot *slot, const char *exchange, const char *routing_key, int64 lag_us);
extern void acemq_slot_note_failed(AcemqSlot *slot, const char *exchange, const char *routing_key);
extern void acemq_slot_forget_targets(AcemqSlot *slot);

#endif /* ACEMQ_SHMEM_H */
