-- The claim-check store: payloads that are too big to travel, by key.
--
-- docs/protocol.md, section 6.

CREATE TABLE acemq.claim_check (
    key        text COLLATE "C" NOT NULL,
    payload    bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT claim_check_pkey PRIMARY KEY (key)
);

CREATE INDEX claim_check_created_at ON acemq.claim_check (created_at);

COMMENT ON TABLE acemq.claim_check IS 'payloads that messages refer to; removed by claim_check_delete() and claim_check_purge() only';
COMMENT ON COLUMN acemq.claim_check.key IS 'a random UUID, which the body of the message carries';
COMMENT ON COLUMN acemq.claim_check.payload IS 'byte by byte what was put in';
COMMENT ON COLUMN acemq.claim_check.created_at IS 'when it was stored; claim_check_purge() goes by it';

-- Working with it.  A body is framed or not:
--
--   AC 01 00 and the payload   inline
--   AC 01 01 and a key         checked: the payload is in the store, under that key
--   anything else              unframed: the body is the payload
--
-- A key has 1 to 128 letters, digits, dots, underscores and dashes, and begins with
-- a letter or a digit.  Those that are issued here are random UUIDs.
--
-- outbox_add() checks bodies in by itself where acemq.claim_check_threshold is set.
--
-- What is put is there if the transaction commits, and gone with a rollback, also to a savepoint.
-- get, delete and decode look at what is committed when they are called, at every
-- isolation level, and at what this transaction has put.  The table is accessed
-- as its owner: EXECUTE and USAGE on the schema are all a caller needs.
--
-- A NULL where a value is needed is an error, 22004, that names the argument.

-- acemq.claim_check_put: store a payload, and get a new key for it.
--
--   payload   any bytes, none included
--
--   25006   the transaction is read-only, or the server a standby
CREATE FUNCTION acemq.claim_check_put(payload bytea) RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'acemq_claim_check_put';
COMMENT ON FUNCTION acemq.claim_check_put(bytea) IS
    'stores a payload in this transaction and returns the key, a random UUID';

-- acemq.claim_check_get: the payload under a key.
--
-- NULL if it is not held.
--
--   22023   key cannot be one
CREATE FUNCTION acemq.claim_check_get(key text) RETURNS bytea
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'acemq_claim_check_get';
COMMENT ON FUNCTION acemq.claim_check_get(text) IS
    'the payload under a key; null if it is not held';

-- acemq.claim_check_delete: drop the payload under a key.
--
-- True if there was one.  Asks nobody whether a message still refers to it.  Waits while
-- another transaction that deletes the same one is open.
--
--   22023   key cannot be one
--   25006   the transaction is read-only, or the server a standby
CREATE FUNCTION acemq.claim_check_delete(key text) RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'acemq_claim_check_delete';
COMMENT ON FUNCTION acemq.claim_check_delete(text) IS
    'drops the payload under a key, whether or not a message refers to it; false if there is none';

-- acemq.claim_check_encode: a payload as a framed body.
--
--   payload     any bytes
--   threshold   bytes, at least 0: a payload of this size or more is stored and its key goes into
--               the body, a smaller one goes into it itself.  0 stores every payload;
--               NULL means the default
--
--   22023   threshold is negative
--   25006   the payload is to be stored, and the transaction is read-only
CREATE FUNCTION acemq.claim_check_encode(payload bytea, threshold integer DEFAULT 65536) RETURNS bytea
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'acemq_claim_check_encode';
COMMENT ON FUNCTION acemq.claim_check_encode(bytea, integer) IS
    'a payload as a framed body; one of that many bytes or more is stored in this transaction and only its key travels';

-- acemq.claim_check_decode: the payload of a body, framed or not.
--
-- Nothing is removed from the store.
--
--   AQ002   the payload is not held, or what should be its key cannot be one
CREATE FUNCTION acemq.claim_check_decode(body bytea) RETURNS bytea
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'acemq_claim_check_decode';
COMMENT ON FUNCTION acemq.claim_check_decode(bytea) IS
    'the payload of a body that claim_check_encode() or an AceMQ library has made, or of one without a frame';

-- acemq.claim_check_key: the key that a body carries.
--
-- NULL for a body that is inline or unframed, and for NULL.  Looks at nothing but the body.
--
--   AQ002   what should be a key cannot be one
CREATE FUNCTION acemq.claim_check_key(body bytea) RETURNS text
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'acemq_claim_check_key';
COMMENT ON FUNCTION acemq.claim_check_key(bytea) IS
    'the key that a checked body carries; null for any other';

-- acemq.claim_check_purge: remove old payloads.
--
--   older_than   stored at least so long ago; '0' removes all that no message here refers to
--
-- Keeps what a waiting or retired message of the outbox refers to by a checked body, and passes over
-- what somebody is deleting.  Returns how many it removed.
--
-- It knows nothing of messages that have left the outbox, published ones that
-- acemq.outbox_retention keeps among them, nor of a message that a transaction
-- still open adds under a key issued before.  So older_than has to be longer than
-- the longest transaction, and than every way in which a message can come back:
-- queues, retries, dead letters, replay.
--
--   22023   older_than is negative, infinite or over 100 years
CREATE FUNCTION acemq.claim_check_purge(older_than interval) RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'acemq_claim_check_purge';
COMMENT ON FUNCTION acemq.claim_check_purge(interval) IS
    'removes payloads older than that, but none that a waiting or retired message refers to; returns how many';
