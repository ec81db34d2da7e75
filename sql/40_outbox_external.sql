-- For a relay outside the server: claim, publish, report.  It holds a lease, not
-- a lock: nothing is open while bytes travel, and when it vanishes its rows are
-- free again after the lease.
--
-- All times are the server's.  The in-server relay respects leases that have
-- not run out, whenever it runs.

-- acemq.outbox_claim: lease messages that may go out now.
--
--   batch   1 to 10,000
--   lease   how long they are ours; longer than the relay needs to publish a batch
--           and have it confirmed
--   relay   who holds the lease, at most any text; NULL: a name of this session,
--           so give one where a pooler may hand the next call to another session
--
-- Rows come in the order in which they should be published, and a lane is
-- passed over while an earlier row of it backs off, is locked or leased to another relay;
-- of an ordering_key at most one row is out at a time.  Claims are one at a time: while
-- another transaction that claimed is open the result is empty, so commit before publishing.
--
--   headers      all that go on the wire, the reserved ones included.  In AMQP terms
--                x-acemq-version and -attempt are I, other whole numbers l, other numbers d
--   expiration   milliseconds; the property is its decimal text; NULL: absent
--   attempts     failed attempts so far
--   persistent   delivery mode 2, else 1
--
-- A message scheduled with via => 'ladder' comes as it goes onto the rung that fits at this moment:
-- exchange acemq.schedule, the rung's name as the routing key, the x-schedule- headers.
--
-- Publish mandatory, wait for the confirm, then report each row.
--
--   22023   batch or lease out of range, relay empty
--   55000   the relay in the server serves this database, or it is fenced
CREATE FUNCTION acemq.outbox_claim(
    batch integer DEFAULT 100, lease interval DEFAULT '60 s', relay text DEFAULT NULL)
RETURNS TABLE (
    id bigint, message_id text, exchange text, routing_key text, content_type text, headers jsonb, body bytea,
    priority integer, expiration bigint, reply_to text, attempts integer, persistent boolean)
    LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 100
    AS 'MODULE_PATHNAME', 'acemq_outbox_claim';
COMMENT ON FUNCTION acemq.outbox_claim(integer, interval, text) IS
    'leases messages that may go out now to a relay outside the server';

-- acemq.outbox_mark_published: the broker has confirmed it, and did not return it.
--
--   relay   as in the claim
--
-- False if the lease is no longer held by that relay: another one has the row,
-- or it is gone.  The row is deleted, or kept for acemq.outbox_retention.
CREATE FUNCTION acemq.outbox_mark_published(id bigint, relay text DEFAULT NULL) RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'acemq_outbox_mark_published';
COMMENT ON FUNCTION acemq.outbox_mark_published(bigint, text) IS
    'reports that a claimed message is confirmed; false if the lease is not held';

-- acemq.outbox_mark_failed: the broker returned it, refused it, or closed the channel because of it.
--
--   reason   kept as last_error, cut at 1,023 bytes
--
-- Costs an attempt: the row is tried again after acemq.retry_delay, doubled each
-- time up to acemq.retry_delay_max, and retired after acemq.max_attempts.  Do
-- not report a lost connection: let the lease run out.  False as above.
CREATE FUNCTION acemq.outbox_mark_failed(id bigint, reason text, relay text DEFAULT NULL) RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'acemq_outbox_mark_failed';
COMMENT ON FUNCTION acemq.outbox_mark_failed(bigint, text, text) IS
    'reports a failed attempt of a claimed message; false if the lease is not held';
