-- The idempotency store: who works on a key, and whether its work is done.
--
-- A row's life: claimed by an owner until expires_at (the lease) -> confirmed
-- until expires_at (the retention) -> removed.  An expired row, claimed or
-- confirmed, may be taken over.  docs/protocol.md, section 4; the table is the
-- one of the AceMQ libraries for Ruby and Java, which may use it themselves.

CREATE TABLE acemq.idempotency (
    message_id  varchar(255) COLLATE "C" NOT NULL,
    state       varchar(16) COLLATE "C" NOT NULL,
    claimed_by  varchar(64) COLLATE "C",
    recorded_at timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL,
    CONSTRAINT idempotency_pkey PRIMARY KEY (message_id)
);

CREATE INDEX idempotency_expiry ON acemq.idempotency (expires_at);

COMMENT ON TABLE acemq.idempotency IS 'keys that somebody works on (CLAIMED) and keys whose work is done (CONFIRMED)';
COMMENT ON COLUMN acemq.idempotency.message_id IS 'the key; compared by bytes';
COMMENT ON COLUMN acemq.idempotency.state IS 'CLAIMED or CONFIRMED';
COMMENT ON COLUMN acemq.idempotency.claimed_by IS 'the owner of the claim; null once confirmed';
COMMENT ON COLUMN acemq.idempotency.recorded_at IS 'when it was claimed, or confirmed';
COMMENT ON COLUMN acemq.idempotency.expires_at IS 'the end of the lease while CLAIMED, of the retention once CONFIRMED';

CREATE TYPE acemq.claim AS ENUM ('claimed', 'duplicate', 'in_progress');
COMMENT ON TYPE acemq.claim IS 'what idempotency_claim() answers: do the work, it is done, somebody is at it';

-- All functions look at what is committed when they are called, and at what their own
-- transaction has done, at every isolation level.  They run with the rights of the
-- extension's owner where they touch the table, so EXECUTE and USAGE on the schema are
-- all a caller needs.  Times are clock times, not those of the transaction's begin.
--
--   key       at most 255 characters, compared byte by byte
--   owner     who claims, at most 64 characters; NULL: acemq.owner, and if that is
--             empty a UUID that the session keeps until it ends
--
--   22004     key is NULL
--   22023     key or owner is empty; lease or retention is below 1 ms, infinite or over 100 years
--   22001     key is longer than 255 characters (use a hash of it), or owner than 64
--   25006     the transaction is read-only, or the server a standby (not idempotency_confirmed)
--   55000     somebody has changed the table's columns or primary key
--   40001     see each function; only at REPEATABLE READ and SERIALIZABLE

-- acemq.idempotency_claim: may I do the work of this key?
--
--   lease     how long the claim holds; NULL: acemq.idempotency_lease
--
--   claimed       yes: this owner holds the key until the lease has run out.  There was
--                 no row, or an expired one, be it a claim or a confirmation
--   duplicate     no: the work is done, and confirmed within the retention
--   in_progress   not now: another owner (or this one, in an earlier call) is at it, or a
--                 transaction that is still open is about to claim, confirm, forget or
--                 purge the key.  Try again later
--
-- Never waits for another transaction, not even for one that has inserted the key
-- directly and stays open (rules, forced row security and unique indexes that an
-- owner puts on the table aside; a lock on the whole table is waited for).  A claim is
-- there for others once its transaction commits, and gone if it rolls back.
--
-- 40001: at SERIALIZABLE, as any write there if it closes a cycle of reads and writes.
-- REPEATABLE READ by itself gives none.
CREATE FUNCTION acemq.idempotency_claim(key text, lease interval DEFAULT NULL, owner text DEFAULT NULL) RETURNS acemq.claim
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'acemq_idempotency_claim';
COMMENT ON FUNCTION acemq.idempotency_claim(text, interval, text) IS
    'claims a key: claimed (do the work), duplicate (it is done) or in_progress (somebody is at it); never waits';

-- acemq.idempotency_first_time: the same as a yes or no; true for claimed.
CREATE FUNCTION acemq.idempotency_first_time(key text, lease interval DEFAULT NULL, owner text DEFAULT NULL) RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'acemq_idempotency_first_time';
COMMENT ON FUNCTION acemq.idempotency_first_time(text, interval, text) IS
    'claims a key; true if it was claimed, false if its work is done or somebody is at it';

-- acemq.idempotency_confirm: the work of this key is done.
--
--   retention   how long later claims are duplicates; NULL: acemq.idempotency_retention
--
-- Records it whoever holds the key: also after the lease has run out, over another
-- owner's claim, for a key that was purged, and again for one that is confirmed.  True if
-- this owner's claim was still in the row, which need not mean that it had not expired;
-- false says that somebody else may have done the work as well.
--
-- Waits for an open transaction that has written the key, as an UPDATE does
-- (lock_timeout: 55P03; two that confirm keys crosswise: 40P01).
--
-- 40001: at SERIALIZABLE, as any write there.
CREATE FUNCTION acemq.idempotency_confirm(key text, retention interval DEFAULT NULL, owner text DEFAULT NULL) RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'acemq_idempotency_confirm';
COMMENT ON FUNCTION acemq.idempotency_confirm(text, interval, text) IS
    'records that the work of a key is done; true if this owner still held the claim';

-- acemq.idempotency_forget: give a claim back, so that somebody else can do the work.
--
-- Only this owner's claim, expired or not, and never a confirmation.  True if there
-- was one.  Waits for an open transaction that is changing the row, as a DELETE does.
--
-- 40001: at REPEATABLE READ and SERIALIZABLE if that one then commits.
CREATE FUNCTION acemq.idempotency_forget(key text, owner text DEFAULT NULL) RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'acemq_idempotency_forget';
COMMENT ON FUNCTION acemq.idempotency_forget(text, text) IS
    'gives a claim of this owner back; false if there is none; never removes a confirmation';

-- acemq.idempotency_confirmed: is the work of this key done?
--
-- False also for a confirmation that has expired.  Claims nothing, so whoever acts on a
-- false may not be the only one.  Works in a read-only transaction and on a standby,
-- where it says what has been replayed.
CREATE FUNCTION acemq.idempotency_confirmed(key text) RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'acemq_idempotency_confirmed';
COMMENT ON FUNCTION acemq.idempotency_confirmed(text) IS
    'whether the work of a key is confirmed and its retention has not run out';

-- acemq.idempotency_purge: remove expired claims and confirmations.
--
-- The worker does this by itself; this is for servers without one, and for doing it at
-- once.  Passes over rows that somebody has locked.  Returns how many it removed.
--
-- 40001: at REPEATABLE READ and SERIALIZABLE if a row is taken over at that very moment.
CREATE FUNCTION acemq.idempotency_purge() RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'acemq_idempotency_purge';
COMMENT ON FUNCTION acemq.idempotency_purge() IS
    'removes claims whose lease and confirmations whose retention has run out; returns how many';
