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
