-- Working with the outbox: taking a message back, waiting until it is sent, and
-- what an operator does with retired, published and paused ones.
--
-- All of these run with the rights of the extension's owner where they touch a
-- table, so EXECUTE and USAGE on the schema are all a caller needs; which duty
-- has which EXECUTE is in grant_access().  None is SECURITY DEFINER: the C
-- functions switch for the table access only, with a search_path of their own.
--
-- A NULL where a value is needed is an error, 22004, that names the argument.

-- acemq.outbox_cancel: take a message back.
--
--   message_id   as outbox_add() returned it
--
-- True: the message was not published and never will be, unless this
-- transaction rolls back.  False: there is no such message, or the relay has
-- fetched it, or it has been published.  A message that failed and is not on its way
-- right now can be cancelled, a retired one too.
--
-- Messages with an id of the caller's, with not_before, and retired ones are
-- found by an index; for any other the waiting ones are read.  Waits while
-- another transaction that cancels the same message is open.
CREATE FUNCTION acemq.outbox_cancel(message_id text) RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'acemq_outbox_cancel';
COMMENT ON FUNCTION acemq.outbox_cancel(text) IS
    'takes a message back; false if it is unknown or the relay has fetched it';

-- acemq.outbox_sweep: wake the relay and wait until everything is sent.
--
--   timeout   how long to wait at most; 0 looks once
--
-- Waits for what was committed and due when it was called, as seen with
-- snapshots taken then and later, also in a REPEATABLE READ transaction.  Rows of the
-- calling transaction do not count, nor do those that are not due yet.  Returns how
-- many there were.  A lost connection is waited out.
--
--   22023   timeout is negative, infinite or over 100 years
-- It asks the worker to try to connect now if it is not connected, and a change of what
-- keeps it from relaying, committed or reloaded just before the call, has 3 s to arrive there.
--
--   AQ003   no relay runs: library not preloaded, standby, paused, fenced, no URL, no worker for 5 s
--   AQ004   the broker refuses the login, or not everything was sent in time
--   AQ005   a message it waits for has failed; the error says why
CREATE FUNCTION acemq.outbox_sweep(timeout interval DEFAULT '10 s') RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'acemq_outbox_sweep';
COMMENT ON FUNCTION acemq.outbox_sweep(interval) IS
    'wakes the relay and waits until everything committed and due is sent; returns how many messages that were';

-- acemq.outbox_release: a message that failed, now that its cause is mended.
--
-- A retired one goes back into its lane, in the order of its old id, that is before
-- everything of the lane that was added later.  One that waits for its next attempt is
-- tried now.  Either starts again with no attempts.  True if there was one.
--
-- One that waits is found by an index if it has an id of the caller's or
-- not_before; for any other the waiting ones are read.
CREATE FUNCTION acemq.outbox_release(message_id text) RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'acemq_outbox_release';
COMMENT ON FUNCTION acemq.outbox_release(text) IS
    'puts a retired message back into its lane, or tries one that backs off now, with no attempts; false if it is neither';

-- acemq.outbox_release_all: the same for all messages that are retired or back off.
--
--   exchange   only those for this exchange; NULL: all
--
-- Returns how many there were.
CREATE FUNCTION acemq.outbox_release_all(exchange text DEFAULT NULL) RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'acemq_outbox_release_all';
COMMENT ON FUNCTION acemq.outbox_release_all(text) IS
    'puts all retired messages, or those of one exchange, back into their lanes and ends the back-off of the others; returns how many';

-- acemq.outbox_discard: drop a retired message for good.
--
--   reason   why, for the server's log, where the message is recorded at level LOG
--
-- Only retired messages are dropped; a waiting one is cancelled instead.
--
--   22023   reason is empty
CREATE FUNCTION acemq.outbox_discard(message_id text, reason text) RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'acemq_outbox_discard';
COMMENT ON FUNCTION acemq.outbox_discard(text, text) IS
    'drops a retired message and logs it with the reason; false if no such message is retired';

-- acemq.outbox_purge: remove published messages that acemq.outbox_retention keeps.
--
--   older_than   published at least so long ago; '0' removes all published ones
--
-- Never touches one that waits or is retired.  Passes over rows that somebody
-- has locked.  Returns how many it removed.
--
--   22023   older_than is negative, infinite or over 100 years
CREATE FUNCTION acemq.outbox_purge(older_than interval) RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'acemq_outbox_purge';
COMMENT ON FUNCTION acemq.outbox_purge(interval) IS
    'removes published messages older than that, never waiting or retired ones; returns how many';

-- acemq.relay_pause, acemq.relay_resume: stop and start relaying here.
--
-- Takes effect when the transaction commits, and survives a restart.  What is on its
-- way to the broker when relaying is paused is still confirmed.  Resuming
-- also says that this database may send messages if it is a copy of another one; a
-- NOTICE says so if the worker does not relay all the same, because acemq.relay is off.
CREATE FUNCTION acemq.relay_pause() RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'acemq_relay_pause';
COMMENT ON FUNCTION acemq.relay_pause() IS
    'stops relaying in this database, also over a restart, until relay_resume()';

CREATE FUNCTION acemq.relay_resume() RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'acemq_relay_resume';
COMMENT ON FUNCTION acemq.relay_resume() IS
    'starts relaying in this database again; for a restored copy: allows it to send';

-- acemq.grant_access, acemq.revoke_access: the rights of a duty.
--
--   role     an existing role; its members have the duty too
--   access   producer: outbox_add, schedule_at, schedule_in, outbox_cancel, outbox_sweep,
--            partition, partitioned_routing_key, version
--            stores: the functions of the idempotency store, the schema registry and the
--            claim-check store, without the purges and schema_import; partition,
--            partitioned_routing_key, version
--            operator: the views, doctor, cancel and sweep, what is done with retired and
--            published messages, the purges and schema_import, pause, resume and restart, and
--            the functions for a relay outside the server (which show bodies)
--            tables: SELECT, INSERT, UPDATE and DELETE on the tables of the idempotency
--            store and the schema registry, for an AceMQ library that uses them itself
--
-- USAGE on the schema goes with either.  Nobody but the owner may call these two
-- unless the owner grants it.  A function that a later version adds to
-- a duty needs another call.
--
-- DROP ROLE fails for a role that was granted something here: call revoke_access() for
-- each of its duties first, in every database.
--
--   22023   access is another word
--   42704   there is no such role
CREATE FUNCTION acemq.grant_access(role name, access text) RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'acemq_grant_access';
COMMENT ON FUNCTION acemq.grant_access(name, text) IS
    'grants a role the rights of a duty (producer, stores, operator, tables); revoke_access() takes it back, which has to come before DROP ROLE';

CREATE FUNCTION acemq.revoke_access(role name, access text) RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'acemq_revoke_access';
COMMENT ON FUNCTION acemq.revoke_access(name, text) IS
    'takes it back, except what another duty of the role needs';

-- A dump restored into its own database brings a row that is there already.
CREATE FUNCTION acemq._identity_insert() RETURNS trigger
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'acemq_identity_insert';
COMMENT ON FUNCTION acemq._identity_insert() IS 'internal: takes a row of acemq.identity that is there already for the same one';

CREATE TRIGGER identity_insert BEFORE INSERT ON acemq.identity
    FOR EACH ROW EXECUTE FUNCTION acemq._identity_insert();
