-- acemq.schedule_at, acemq.schedule_in: record a message that is to be delivered later.
--
--   SELECT acemq.schedule_at('2027-01-01 09:00 Europe/Berlin', 'mail', 'greeting', '{"order": 1}');
--   SELECT acemq.schedule_in('2 days', 'mail', 'reminder', '{"order": 1}', message_id => 'reminder-1');
--
-- In the caller's transaction, as outbox_add, with its arguments (all but not_before), its defaults
-- and its errors.  Returns the message id, with which outbox_cancel takes the message back
-- as long as it is not on the wire.
--
--   due     when; a time that is past means at once.  At most 100 years away
--   delay   how long from the call on (the clock's time, not the transaction's).  Months and days
--           are calendar steps in the session's time zone, like timestamptz + interval: '1 day' is
--           the same hour tomorrow, '24 hours' may be another one.  Negative: at once
--   via     'outbox', the default: the message waits in the table and leaves within milliseconds of
--           its time, never before it
--           'ladder': it goes to the broker at once and waits there on the rung queues that all AceMQ
--           libraries share; up to a second early.  Its type is ScheduledMessage unless one
--           is given.  Cannot be had together with expiration, persistent => false or headers
--           that start with x-schedule-
--
-- Errors beside those of outbox_add:
--   22004  due or delay is NULL
--   22008  the time is infinite or more than 100 years away
--   22023  via is neither, or has an option that cannot be had with it
--   42939  via => 'ladder' and a header that starts with x-schedule-
--
-- What is promised which way: docs/scheduling.md.

CREATE FUNCTION acemq.schedule_at(
    due timestamptz, exchange text, routing_key text, payload text,
    type text DEFAULT NULL, headers jsonb DEFAULT NULL, message_id text DEFAULT NULL,
    correlation_id text DEFAULT NULL, causation_id text DEFAULT NULL, version integer DEFAULT 1,
    content_type text DEFAULT NULL, priority integer DEFAULT NULL, expiration interval DEFAULT NULL,
    reply_to text DEFAULT NULL, persistent boolean DEFAULT true, ordering_key text DEFAULT NULL,
    via text DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'acemq_schedule_at_text'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION acemq.schedule_at(timestamptz, text, text, text, text, jsonb, text, text, text, integer, text, integer, interval, text, boolean, text, text)
    IS 'record a message to be delivered at that time and return its id (text payload, well-formed JSON unless content_type says otherwise)';

CREATE FUNCTION acemq.schedule_at(
    due timestamptz, exchange text, routing_key text, payload json,
    type text DEFAULT NULL, headers jsonb DEFAULT NULL, message_id text DEFAULT NULL,
    correlation_id text DEFAULT NULL, causation_id text DEFAULT NULL, version integer DEFAULT 1,
    content_type text DEFAULT NULL, priority integer DEFAULT NULL, expiration interval DEFAULT NULL,
    reply_to text DEFAULT NULL, persistent boolean DEFAULT true, ordering_key text DEFAULT NULL,
    via text DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'acemq_schedule_at_json'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION acemq.schedule_at(timestamptz, text, text, json, text, jsonb, text, text, text, integer, text, integer, interval, text, boolean, text, text)
    IS 'record a message to be delivered at that time and return its id (json payload, its bytes kept)';

CREATE FUNCTION acemq.schedule_at(
    due timestamptz, exchange text, routing_key text, payload jsonb,
    type text DEFAULT NULL, headers jsonb DEFAULT NULL, message_id text DEFAULT NULL,
    correlation_id text DEFAULT NULL, causation_id text DEFAULT NULL, version integer DEFAULT 1,
    content_type text DEFAULT NULL, priority integer DEFAULT NULL, expiration interval DEFAULT NULL,
    reply_to text DEFAULT NULL, persistent boolean DEFAULT true, ordering_key text DEFAULT NULL,
    via text DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'acemq_schedule_at_jsonb'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION acemq.schedule_at(timestamptz, text, text, jsonb, text, jsonb, text, text, text, integer, text, integer, interval, text, boolean, text, text)
    IS 'record a message to be delivered at that time and return its id (jsonb payload, as PostgreSQL renders it)';

CREATE FUNCTION acemq.schedule_at(
    due timestamptz, exchange text, routing_key text, payload bytea,
    type text DEFAULT NULL, headers jsonb DEFAULT NULL, message_id text DEFAULT NULL,
    correlation_id text DEFAULT NULL, causation_id text DEFAULT NULL, version integer DEFAULT 1,
    content_type text DEFAULT NULL, priority integer DEFAULT NULL, expiration interval DEFAULT NULL,
    reply_to text DEFAULT NULL, persistent boolean DEFAULT true, ordering_key text DEFAULT NULL,
    via text DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'acemq_schedule_at_bytea'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION acemq.schedule_at(timestamptz, text, text, bytea, text, jsonb, text, text, text, integer, text, integer, interval, text, boolean, text, text)
    IS 'record a message to be delivered at that time and return its id (bytea payload, as it is)';

CREATE FUNCTION acemq.schedule_in(
    delay interval, exchange text, routing_key text, payload text,
    type text DEFAULT NULL, headers jsonb DEFAULT NULL, message_id text DEFAULT NULL,
    correlation_id text DEFAULT NULL, causation_id text DEFAULT NULL, version integer DEFAULT 1,
    content_type text DEFAULT NULL, priority integer DEFAULT NULL, expiration interval DEFAULT NULL,
    reply_to text DEFAULT NULL, persistent boolean DEFAULT true, ordering_key text DEFAULT NULL,
    via text DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'acemq_schedule_in_text'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION acemq.schedule_in(interval, text, text, text, text, jsonb, text, text, text, integer, text, integer, interval, text, boolean, text, text)
    IS 'record a message to be delivered after that time and return its id (text payload, well-formed JSON unless content_type says otherwise)';

CREATE FUNCTION acemq.schedule_in(
    delay interval, exchange text, routing_key text, payload json,
    type text DEFAULT NULL, headers jsonb DEFAULT NULL, message_id text DEFAULT NULL,
    correlation_id text DEFAULT NULL, causation_id text DEFAULT NULL, version integer DEFAULT 1,
    content_type text DEFAULT NULL, priority integer DEFAULT NULL, expiration interval DEFAULT NULL,
    reply_to text DEFAULT NULL, persistent boolean DEFAULT true, ordering_key text DEFAULT NULL,
    via text DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'acemq_schedule_in_json'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION acemq.schedule_in(interval, text, text, json, text, jsonb, text, text, text, integer, text, integer, interval, text, boolean, text, text)
    IS 'record a message to be delivered after that time and return its id (json payload, its bytes kept)';

CREATE FUNCTION acemq.schedule_in(
    delay interval, exchange text, routing_key text, payload jsonb,
    type text DEFAULT NULL, headers jsonb DEFAULT NULL, message_id text DEFAULT NULL,
    correlation_id text DEFAULT NULL, causation_id text DEFAULT NULL, version integer DEFAULT 1,
    content_type text DEFAULT NULL, priority integer DEFAULT NULL, expiration interval DEFAULT NULL,
    reply_to text DEFAULT NULL, persistent boolean DEFAULT true, ordering_key text DEFAULT NULL,
    via text DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'acemq_schedule_in_jsonb'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION acemq.schedule_in(interval, text, text, jsonb, text, jsonb, text, text, text, integer, text, integer, interval, text, boolean, text, text)
    IS 'record a message to be delivered after that time and return its id (jsonb payload, as PostgreSQL renders it)';

CREATE FUNCTION acemq.schedule_in(
    delay interval, exchange text, routing_key text, payload bytea,
    type text DEFAULT NULL, headers jsonb DEFAULT NULL, message_id text DEFAULT NULL,
    correlation_id text DEFAULT NULL, causation_id text DEFAULT NULL, version integer DEFAULT 1,
    content_type text DEFAULT NULL, priority integer DEFAULT NULL, expiration interval DEFAULT NULL,
    reply_to text DEFAULT NULL, persistent boolean DEFAULT true, ordering_key text DEFAULT NULL,
    via text DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'acemq_schedule_in_bytea'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION acemq.schedule_in(interval, text, text, bytea, text, jsonb, text, text, text, integer, text, integer, interval, text, boolean, text, text)
    IS 'record a message to be delivered after that time and return its id (bytea payload, as it is)';
