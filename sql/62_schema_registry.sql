-- The schema registry: definitions of payloads under ids that never change.
--
-- docs/protocol.md, section 5; the tables are those of the AceMQ library for
-- Ruby, which may use them itself.

CREATE TABLE acemq.schema_registry (
    id             integer NOT NULL,
    subject        varchar(255) COLLATE "C" NOT NULL,
    schema_version integer NOT NULL,
    format         varchar(32) COLLATE "C" NOT NULL,
    definition     text COLLATE "C" NOT NULL,
    fingerprint    varchar(64) COLLATE "C" NOT NULL,
    registered_at  timestamptz NOT NULL,
    CONSTRAINT schema_registry_pkey PRIMARY KEY (id)
);

CREATE UNIQUE INDEX schema_registry_fingerprint ON acemq.schema_registry (subject, fingerprint);
CREATE UNIQUE INDEX schema_registry_version ON acemq.schema_registry (subject, schema_version);

COMMENT ON TABLE acemq.schema_registry IS 'definitions by id; a row never changes';
COMMENT ON COLUMN acemq.schema_registry.schema_version IS 'counted from 1 within the subject';
COMMENT ON COLUMN acemq.schema_registry.format IS 'free text, for example avro, protobuf, json-schema; never interpreted';
COMMENT ON COLUMN acemq.schema_registry.fingerprint IS 'SHA-256 of the definition''s bytes in UTF-8, lower-case hexadecimal';

-- The last id that was given out.  Whoever registers holds the row until the end of
-- the transaction, so that ids follow the order of commits.
CREATE TABLE acemq.schema_registry_seq (
    only_row integer NOT NULL,
    last_id  integer NOT NULL,
    CONSTRAINT schema_registry_seq_pkey PRIMARY KEY (only_row),
    CONSTRAINT schema_registry_seq_one_row CHECK (only_row = 1)
);

COMMENT ON TABLE acemq.schema_registry_seq IS 'the counter of schema_registry.id: one row, never set back';

INSERT INTO acemq.schema_registry_seq (only_row, last_id) VALUES (1, 0);
