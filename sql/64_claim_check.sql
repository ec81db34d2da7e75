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
