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
COMMENT ON COLUMN acemq.schema_registry.id IS 'what a message carries; never given out twice';
COMMENT ON COLUMN acemq.schema_registry.subject IS 'what the definition is of; compared by bytes';
COMMENT ON COLUMN acemq.schema_registry.schema_version IS 'counted from 1 within the subject';
COMMENT ON COLUMN acemq.schema_registry.format IS 'free text, for example avro, protobuf, json-schema; never interpreted';
COMMENT ON COLUMN acemq.schema_registry.definition IS 'exactly as it was registered';
COMMENT ON COLUMN acemq.schema_registry.fingerprint IS 'SHA-256 of the definition''s bytes in UTF-8, lower-case hexadecimal';
COMMENT ON COLUMN acemq.schema_registry.registered_at IS 'when it was registered, or what schema_import() was told';

-- The last id that was given out.  Whoever registers holds the row until the end of
-- the transaction, so that ids follow the order of commits.
CREATE TABLE acemq.schema_registry_seq (
    only_row integer NOT NULL,
    last_id  integer NOT NULL,
    CONSTRAINT schema_registry_seq_pkey PRIMARY KEY (only_row),
    CONSTRAINT schema_registry_seq_one_row CHECK (only_row = 1)
);

COMMENT ON TABLE acemq.schema_registry_seq IS 'the counter of schema_registry.id: one row, never set back';
COMMENT ON COLUMN acemq.schema_registry_seq.only_row IS 'always 1';
COMMENT ON COLUMN acemq.schema_registry_seq.last_id IS 'the last id that was given out';

INSERT INTO acemq.schema_registry_seq (only_row, last_id) VALUES (1, 0);

-- A dump brings the row that CREATE EXTENSION has just made: the higher count of
-- the two stays.  Also where a replica applies it, hence ALWAYS.
CREATE FUNCTION acemq._schema_registry_seq_insert() RETURNS trigger
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'acemq_schema_registry_seq_insert';
COMMENT ON FUNCTION acemq._schema_registry_seq_insert() IS
    'internal: takes a row of acemq.schema_registry_seq that is there already for the higher count';

CREATE TRIGGER schema_registry_seq_insert BEFORE INSERT ON acemq.schema_registry_seq
    FOR EACH ROW EXECUTE FUNCTION acemq._schema_registry_seq_insert();
ALTER TABLE acemq.schema_registry_seq ENABLE ALWAYS TRIGGER schema_registry_seq_insert;

-- All of these run with the rights of the extension's owner where they write, so
-- EXECUTE and USAGE on the schema are all a caller needs.  Each sees what is
-- committed when it is called, at every isolation level: schemas do not change.

-- acemq.schema_register: the id of a definition, the same for ever.
--
--   subject      what the definition is of, 1 to 255 characters; compared byte by byte
--   format       1 to 32 characters, free text such as avro, protobuf, json-schema
--   definition   not empty; two definitions are the same if their bytes are
--
-- A definition that the subject has already: that row, whatever the format
-- passed.  This writes nothing, waits for nobody, and works in a read-only transaction.
-- Another: a new row with the next id and the subject's next version.  That waits
-- until transactions that have registered something end, and keeps later ones
-- waiting until this one does.  A rollback, also to a savepoint, gives id and version back.
--
--   22004, 22023, 22001   an argument is null, empty, too long
--   22021, 22P05          the definition has no form in UTF-8
--   25006                 a new definition in a read-only transaction
--   40001                 a new one in a REPEATABLE READ or SERIALIZABLE transaction that had to wait; or
--                         somebody who writes the table past the counter was faster several times
--   55000                 acemq.schema_registry_seq has lost its row
--   2200H                 the highest id is 2147483647
CREATE FUNCTION acemq.schema_register(subject text, format text, definition text) RETURNS acemq.schema_registry
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'acemq_schema_register';
COMMENT ON FUNCTION acemq.schema_register(text, text, text) IS
    'the row of this definition of the subject; made, with the next id, if there is none';

-- acemq.schema_latest: the definition with the subject's highest version.
--
--   AQ001   the subject has none
CREATE FUNCTION acemq.schema_latest(subject text) RETURNS acemq.schema_registry
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'acemq_schema_latest';
COMMENT ON FUNCTION acemq.schema_latest(text) IS 'the highest version of the subject; AQ001 if there is none';

-- acemq.schema_by_id: the definition with that id.
--
--   AQ001   there is none
CREATE FUNCTION acemq.schema_by_id(id integer) RETURNS acemq.schema_registry
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'acemq_schema_by_id';
COMMENT ON FUNCTION acemq.schema_by_id(integer) IS 'the schema with that id; AQ001 if there is none';

-- acemq.schema_versions: all definitions of a subject, in the order of their
-- versions; no rows if it has none.
CREATE FUNCTION acemq.schema_versions(subject text) RETURNS SETOF acemq.schema_registry
    LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 10
    AS 'MODULE_PATHNAME', 'acemq_schema_versions';
COMMENT ON FUNCTION acemq.schema_versions(text) IS 'all versions of the subject, in ascending order';

-- acemq.schema_import: a schema with the id it has elsewhere, for recovery.
--
--   id              1 or more
--   version         1 or more; NULL: the subject's next one
--   registered_at   NULL: now; finite, at most 100 years away
--
-- The same id, subject and definition again, and the same version if one is
-- given: the row that is there, unchanged.  The counter is raised to the id, so
-- that the next one registered is above it.  Waits as schema_register() does.
--
--   23505   the id is another definition's, the definition has another id, or the version is taken
--   22004, 22023, 22001, 22008   an argument is null, empty or below 1, too long, out of range; also the
--                                other errors of schema_register()
CREATE FUNCTION acemq.schema_import(id integer, subject text, format text, definition text,
                                    version integer DEFAULT NULL, registered_at timestamptz DEFAULT NULL)
    RETURNS acemq.schema_registry
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'acemq_schema_import';
COMMENT ON FUNCTION acemq.schema_import(integer, text, text, text, integer, timestamptz) IS
    'adds a schema under a given id, or returns it if it is there; 23505 if something else is in its place';
