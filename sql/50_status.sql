-- What is going on: the waiting and the retired messages, the relay's state, and
-- the doctor.  No secret and no body is shown.  For operators.

CREATE VIEW acemq.outbox_pending AS
SELECT o.id, o.message_id, o.exchange, o.routing_key, o.ordering_key,
       COALESCE(o.type, NULLIF(o.routing_key, ''), 'message') AS type,
       o.created_at, o.not_before, o.attempts, o.next_attempt_at, o.last_error,
       pg_catalog.octet_length(o.body) AS body_size, o.leased_until, o.leased_by, o.ladder_due_at
FROM acemq.outbox o
WHERE o.retired_at IS NULL AND o.published_at IS NULL;

COMMENT ON VIEW acemq.outbox_pending IS 'messages that wait to be sent';
COMMENT ON COLUMN acemq.outbox_pending.next_attempt_at IS 'after a failed attempt: not tried again before this time';
COMMENT ON COLUMN acemq.outbox_pending.body_size IS 'bytes';
COMMENT ON COLUMN acemq.outbox_pending.ladder_due_at IS 'goes onto the ladder, which delivers it to exchange and routing_key at this time';

CREATE VIEW acemq.outbox_retired AS
SELECT o.id, o.message_id, o.exchange, o.routing_key, o.ordering_key,
       COALESCE(o.type, NULLIF(o.routing_key, ''), 'message') AS type,
       o.created_at, o.not_before, o.attempts, o.next_attempt_at, o.last_error,
       pg_catalog.octet_length(o.body) AS body_size, o.retired_at, o.ladder_due_at
FROM acemq.outbox o
WHERE o.retired_at IS NOT NULL;

COMMENT ON VIEW acemq.outbox_retired IS 'messages that failed acemq.max_attempts times and wait for outbox_release or outbox_discard';
COMMENT ON COLUMN acemq.outbox_retired.body_size IS 'bytes';
COMMENT ON COLUMN acemq.outbox_retired.ladder_due_at IS 'goes onto the ladder, which delivers it to exchange and routing_key at this time';

-- One row from shared memory.  Counters begin at zero with the server; numbers are NULL
-- while no worker has a place in shared memory for this database.
CREATE FUNCTION acemq._status(
    OUT state text, OUT since timestamptz, OUT broker text, OUT pending bigint, OUT oldest_age interval,
    OUT retired bigint, OUT in_flight bigint, OUT published bigint, OUT failed bigint, OUT returned bigint,
    OUT nacked bigint, OUT reconnects bigint, OUT overtaken bigint, OUT lag_p50 double precision,
    OUT lag_p95 double precision, OUT lag_p99 double precision, OUT last_error text, OUT last_error_at timestamptz,
    OUT pending_approximate boolean, OUT resent bigint, OUT skipped_turns bigint, OUT held_by text,
    OUT worker_pid integer, OUT ladder_scheduled bigint, OUT ladder_delivered bigint, OUT ladder_hops bigint,
    OUT ladder_malformed bigint, OUT scheduler text, OUT scheduler_since timestamptz, OUT scheduler_problem text)
    LANGUAGE c VOLATILE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', 'acemq_status';
COMMENT ON FUNCTION acemq._status() IS 'internal: the row of acemq.status';

CREATE VIEW acemq.status AS SELECT s.* FROM acemq._status() s;

COMMENT ON VIEW acemq.status IS 'the relay of this database, one row, read from shared memory';
COMMENT ON COLUMN acemq.status.state IS 'starting, relaying, idle, disconnected, blocked, paused, fenced or needs restart';
COMMENT ON COLUMN acemq.status.since IS 'when this state began';
COMMENT ON COLUMN acemq.status.broker IS 'where the worker is, or was last, connected, and to what';
COMMENT ON COLUMN acemq.status.pending IS 'committed messages that are neither sent nor retired, those not due yet included';
COMMENT ON COLUMN acemq.status.pending_approximate IS 'the rows have not been counted since the server started';
COMMENT ON COLUMN acemq.status.oldest_age IS 'of the oldest unsent message the worker knows, counted from the add; those not due yet are left out';
COMMENT ON COLUMN acemq.status.retired IS 'messages that wait for outbox_release() or outbox_discard()';
COMMENT ON COLUMN acemq.status.in_flight IS 'messages sent whose outcome is not known yet';
COMMENT ON COLUMN acemq.status.published IS 'messages that the broker confirmed';
COMMENT ON COLUMN acemq.status.failed IS 'failed attempts';
COMMENT ON COLUMN acemq.status.returned IS 'failed attempts because no queue was bound';
COMMENT ON COLUMN acemq.status.nacked IS 'failed attempts because the broker refused the message';
COMMENT ON COLUMN acemq.status.reconnects IS 'connections made, the first one included';
COMMENT ON COLUMN acemq.status.overtaken IS 'rows that were confirmed while an earlier row of their lane had failed';
COMMENT ON COLUMN acemq.status.resent IS 'messages put on the wire again after a loss: possible duplicates';
COMMENT ON COLUMN acemq.status.lag_p50 IS 'seconds from the add (or the due time) to the confirm, of the last minutes';
COMMENT ON COLUMN acemq.status.lag_p95 IS 'seconds from the add (or the due time) to the confirm, of the last minutes';
COMMENT ON COLUMN acemq.status.lag_p99 IS 'seconds from the add (or the due time) to the confirm, of the last minutes';
COMMENT ON COLUMN acemq.status.skipped_turns IS 'turns of the worker skipped because a lock was not to be had at once';
COMMENT ON COLUMN acemq.status.last_error IS 'the last failure of a message or of the connection, whichever is newer';
COMMENT ON COLUMN acemq.status.last_error_at IS 'when that was';
COMMENT ON COLUMN acemq.status.held_by IS 'the lane that is held longest, the message that holds it, and until when; outbox_pending shows its error and all the others';
COMMENT ON COLUMN acemq.status.worker_pid IS 'process id of the worker; null: there is none';
COMMENT ON COLUMN acemq.status.ladder_scheduled IS 'messages that schedule_at() and schedule_in() of this database sent onto the ladder';
COMMENT ON COLUMN acemq.status.ladder_delivered IS 'messages of the ladder that this worker delivered, whoever scheduled them';
COMMENT ON COLUMN acemq.status.ladder_hops IS 'times this worker put a message onto a rung of the ladder';
COMMENT ON COLUMN acemq.status.ladder_malformed IS 'messages in the ladder''s control queue that could not be read and were dropped';
COMMENT ON COLUMN acemq.status.scheduler IS 'consumer of the ladder''s control queue: off, disconnected, not consuming, consuming or blocked';
COMMENT ON COLUMN acemq.status.scheduler_since IS 'when that began';
COMMENT ON COLUMN acemq.status.scheduler_problem IS 'why it does not consume, what of the ladder is not as it should be, or where a message goes that its target does not take; stays for about a minute after an interruption';

-- acemq.metrics: the same and more, as numbers for a monitoring system: one row per name
-- and labels.  Counters (their names end in total, count or sum) begin at zero with the
-- server.  Seconds are seconds.  Costs the same with no row waiting or ten million.
--
--   acemq.outbox.total       exchange, routing.key, outcome: messages confirmed by the broker (published),
--                            and failed attempts (failed).  As in the AceMQ libraries
--   acemq.outbox.lag.count   exchange, routing.key, outcome = published: how many, and the sum of their seconds
--   acemq.outbox.lag.sum     from the add (or the due time) to the confirm.  As in the AceMQ libraries
--   acemq.outbox.lag.p50     the same seconds, of all messages of the last minutes; p95 and p99 too; no row if there was none
--   acemq.outbox.*           added, returned, nacked, resent, overtaken and purged .total; pending, pending.approximate
--                            (1: not counted yet), retired, in.flight, oldest.age, held.age (of the oldest
--                            message in the lane that is held longest; 0: none is held)
--   acemq.relay.in.state     state (as in acemq.status): 1 for the state it is in, 0 for the others
--   acemq.scheduler.in.state the same of the consumer of the ladder
--   acemq.relay.*            connected, reconnects.total, blocked.seconds.total, skipped.turns.total
--   acemq.schedule.*         the ladder: scheduled, delivered, hops and malformed .total; ladder.problems
--   acemq.idempotency.purged.total   expired claims that the worker removed
--
-- The first 256 pairs of exchange and routing key have rows of their own; what comes after
-- them is counted under (other).  While no worker has a place in shared memory for this database
-- (or without a preloaded library) only the states are there.
CREATE FUNCTION acemq._metrics()
RETURNS TABLE (name text, labels jsonb, value double precision)
    LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 50
    AS 'MODULE_PATHNAME', 'acemq_metrics';
COMMENT ON FUNCTION acemq._metrics() IS 'internal: the rows of acemq.metrics';

CREATE VIEW acemq.metrics AS SELECT m.* FROM acemq._metrics() m;

COMMENT ON VIEW acemq.metrics IS 'the numbers of this database''s relay for a monitoring system, read from shared memory';
COMMENT ON COLUMN acemq.metrics.name IS 'what is counted or measured; for Prometheus each dot becomes an underscore';
COMMENT ON COLUMN acemq.metrics.labels IS 'which of several, as an object of texts; an empty exchange is the default exchange';
COMMENT ON COLUMN acemq.metrics.value IS 'counters begin at zero with the server; durations and ages are seconds';

-- acemq.doctor: is all well here, in words.
--
-- Reads shared memory, settings, catalogs and, if the owner may, the configuration file for lines
-- of ours that were refused (name and reason, never the value); never the network: what it says of the broker is
-- what the worker last saw, and when.  One row per check; hint says what to do about one
-- that is not ok.  Without a preloaded library, checks of the processes are left out.
CREATE FUNCTION acemq.doctor()
RETURNS TABLE ("check" text, ok boolean, detail text, hint text)
    LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 20
    AS 'MODULE_PATHNAME', 'acemq_doctor';
COMMENT ON FUNCTION acemq.doctor() IS 'checks of library, worker, broker, backlog and tables, with a hint for what is not ok';
