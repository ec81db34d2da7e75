-- acemq.outbox_add: record a message in the caller's transaction.
--
--   SELECT acemq.outbox_add('orders', 'order.placed', '{"id": 7}', ordering_key => 'customer-12');
--
-- Returns the message id.  The relay sends the message after the transaction has
-- committed, and never if it has not.
--
--   exchange        '' is the default exchange; at most 255 bytes in UTF-8
--   routing_key     at most 255 bytes; not empty together with the exchange
--   payload         text, json, jsonb or bytea, at most acemq.max_body_size.  text (so
--                   also an untyped literal) has to be well-formed JSON unless
--                   content_type says otherwise, and its bytes are kept, as are those of json
--                   and bytea; jsonb goes out as PostgreSQL renders it.  Of
--                   acemq.claim_check_threshold bytes or more, it is put into the claim-check
--                   store, however big it is, and a frame with its key goes out; a bytea that has
--                   a frame already goes out as it is
--   type            x-acemq-type; default: the routing key, or `message` if that is empty
--   headers         a JSON object; names of at most 128 bytes, none that starts with
--                   x-acemq-; with the envelope at most acemq.max_headers_size.  Strings
--                   become S, whole numbers l, other numbers d, booleans t, objects F,
--                   arrays A; null is left out
--   message_id      default: a random UUID; at most 255 bytes.  While a message with the same
--                   given id is in the table, nothing is added and the id comes back
--   correlation_id  default: the message id
--   causation_id    id of the message that caused this one
--   version         version of the payload's schema, at least 1
--   content_type    default: application/json, for bytea application/octet-stream; at most 255 bytes
--   priority        0 to 255; on the wire only if given
--   expiration      0 to 4294967295 milliseconds, rounded up to whole ones; on the wire only if given
--   reply_to        property and header acemq-reply-to (one of that name in headers is dropped); at most 255 bytes
--   persistent      false: the broker may keep it in memory only
--   ordering_key    messages with the same key go out strictly one after the other; at most 255 bytes
--   not_before      not sent before this time, at most 100 years away
--
-- NULL for an argument with a default means the default, and so does an empty
-- type, correlation_id, causation_id, content_type or reply_to.  An empty
-- ordering_key is a key like any other.
--
-- Wrong input is an error of the calling statement:
--   22004  exchange, routing_key or payload is NULL
--   22001  text over its length
--   22003  a number in headers beyond 64 bits or beyond double precision
--   22008  expiration or not_before out of range
--   22021, 22P05  text that has no form in UTF-8
--   22023  another value that cannot be: priority, version, empty names, headers not an object
--   22P02  payload is not well-formed JSON
--   25006  the transaction is read-only, or the server a standby
--   42602, 42622, 42939  a header name is empty, too long, reserved
--   54000  payload (if it is not checked in) or headers over the limit, headers nested more than 32 levels deep
--
-- The caller needs EXECUTE and USAGE on the schema, no right on the table: the
-- functions write the row themselves, so they are not SECURITY DEFINER.  VOLATILE and not STRICT, so
-- that no call is folded, repeated or skipped in silence.

CREATE FUNCTION acemq.outbox_add(
    exchange text, routing_key text, payload text,
    type text DEFAULT NULL, headers jsonb DEFAULT NULL, message_id text DEFAULT NULL,
    correlation_id text DEFAULT NULL, causation_id text DEFAULT NULL, version integer DEFAULT 1,
    content_type text DEFAULT NULL, priority integer DEFAULT NULL, expiration interval DEFAULT NULL,
    reply_to text DEFAULT NULL, persistent boolean DEFAULT true, ordering_key text DEFAULT NULL,
    not_before timestamptz DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'acemq_outbox_add_text'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION acemq.outbox_add(text, text, text, text, jsonb, text, text, text, integer, text, integer, interval, text, boolean, text, timestamptz)
    IS 'record a message in this transaction and return its id (text payload, well-formed JSON unless content_type says otherwise)';

CREATE FUNCTION acemq.outbox_add(
    exchange text, routing_key text, payload json,
    type text DEFAULT NULL, headers jsonb DEFAULT NULL, message_id text DEFAULT NULL,
    correlation_id text DEFAULT NULL, causation_id text DEFAULT NULL, version integer DEFAULT 1,
    content_type text DEFAULT NULL, priority integer DEFAULT NULL, expiration interval DEFAULT NULL,
    reply_to text DEFAULT NULL, persistent boolean DEFAULT true, ordering_key text DEFAULT NULL,
    not_before timestamptz DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'acemq_outbox_add_json'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION acemq.outbox_add(text, text, json, text, jsonb, text, text, text, integer, text, integer, interval, text, boolean, text, timestamptz)
    IS 'record a message in this transaction and return its id (json payload, its bytes kept)';

CREATE FUNCTION acemq.outbox_add(
    exchange text, routing_key text, payload jsonb,
    type text DEFAULT NULL, headers jsonb DEFAULT NULL, message_id text DEFAULT NULL,
    correlation_id text DEFAULT NULL, causation_id text DEFAULT NULL, version integer DEFAULT 1,
    content_type text DEFAULT NULL, priority integer DEFAULT NULL, expiration interval DEFAULT NULL,
    reply_to text DEFAULT NULL, persistent boolean DEFAULT true, ordering_key text DEFAULT NULL,
    not_before timestamptz DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'acemq_outbox_add_jsonb'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION acemq.outbox_add(text, text, jsonb, text, jsonb, text, text, text, integer, text, integer, interval, text, boolean, text, timestamptz)
    IS 'record a message in this transaction and return its id (jsonb payload, as PostgreSQL renders it)';

CREATE FUNCTION acemq.outbox_add(
    exchange text, routing_key text, payload bytea,
    type text DEFAULT NULL, headers jsonb DEFAULT NULL, message_id text DEFAULT NULL,
    correlation_id text DEFAULT NULL, causation_id text DEFAULT NULL, version integer DEFAULT 1,
    content_type text DEFAULT NULL, priority integer DEFAULT NULL, expiration interval DEFAULT NULL,
    reply_to text DEFAULT NULL, persistent boolean DEFAULT true, ordering_key text DEFAULT NULL,
    not_before timestamptz DEFAULT NULL)
RETURNS text
AS 'MODULE_PATHNAME', 'acemq_outbox_add_bytea'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION acemq.outbox_add(text, text, bytea, text, jsonb, text, text, text, integer, text, integer, interval, text, boolean, text, timestamptz)
    IS 'record a message in this transaction and return its id (bytea payload, as it is)';
