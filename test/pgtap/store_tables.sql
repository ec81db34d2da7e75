-- What an owner may do to the tables of the stores must not crash the server, cost a row, or lend anybody the owner's rights.
BEGIN;
SELECT no_plan();

-- Each change is undone by the savepoint; throws_ok() itself would keep it.
CREATE FUNCTION pg_temp.after(change text, call text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE said text;
BEGIN
    BEGIN
        EXECUTE change;
        BEGIN
            EXECUTE call;
            said := 'no error';
        EXCEPTION WHEN OTHERS THEN
            said := SQLSTATE || ' ' || SQLERRM;
        END;
        RAISE EXCEPTION 'undo' USING ERRCODE = 'ZZ000';
    EXCEPTION WHEN SQLSTATE 'ZZ000' THEN
        RETURN said;
    END;
END$$;

SELECT acemq.schema_register('s', 'avro', '"string"');
INSERT INTO acemq.claim_check (key, payload) VALUES ('k', '\x01');
CREATE ROLE acemq_test_other;

SELECT is(pg_temp.after(change, call), '55000 table "acemq.' || name || '" has been changed', change || ': ' || call)
FROM (VALUES ('schema_registry', ARRAY['ALTER id TYPE bigint', 'ALTER id TYPE text', 'ALTER subject TYPE integer USING 1',
                                       'ALTER schema_version TYPE text', 'ALTER fingerprint DROP NOT NULL', 'DROP COLUMN registered_at',
                                       'OWNER TO acemq_test_other'],
              ARRAY['SELECT acemq.schema_by_id(1)', 'SELECT acemq.schema_latest(''s'')', 'SELECT acemq.schema_versions(''s'')',
                    'SELECT acemq.schema_register(''s'', ''avro'', ''"int"'')', 'SELECT acemq.schema_import(7, ''s'', ''avro'', ''"x"'')']),
             ('schema_registry_seq', ARRAY['ALTER last_id TYPE bigint', 'OWNER TO acemq_test_other'],
              ARRAY['SELECT acemq.schema_register(''s'', ''avro'', ''"int"'')', 'SELECT acemq.schema_import(7, ''s'', ''avro'', ''"x"'')']),
             ('claim_check', ARRAY['ALTER payload TYPE integer USING 5', 'ALTER payload DROP NOT NULL', 'OWNER TO acemq_test_other'],
              ARRAY['SELECT acemq.claim_check_get(''k'')', 'SELECT acemq.claim_check_put(''\x01'')', 'SELECT acemq.claim_check_delete(''k'')',
                    'SELECT acemq.claim_check_purge(''0'')', 'SELECT acemq.claim_check_decode(''\xac01016b'')']),
             ('idempotency', ARRAY['ALTER state TYPE text', 'ALTER expires_at TYPE timestamp', 'ALTER claimed_by SET NOT NULL',
                                   'OWNER TO acemq_test_other'],
              ARRAY['SELECT acemq.idempotency_claim(''k'')', 'SELECT acemq.idempotency_confirm(''k'')', 'SELECT acemq.idempotency_forget(''k'')',
                    'SELECT acemq.idempotency_confirmed(''k'')', 'SELECT acemq.idempotency_purge()'])) AS t (name, changes, calls),
     LATERAL (SELECT 'ALTER TABLE acemq.' || name || ' ' || c AS change, call FROM unnest(changes) c, unnest(calls) call) u;
SELECT is(pg_temp.after('DROP INDEX acemq.schema_registry_version; CREATE INDEX schema_registry_version ON acemq.schema_registry (format, subject)',
                        'SELECT acemq.schema_latest(''s'')'),
          '55000 table "acemq.schema_registry" has been changed', 'an index of another kind under that name');

-- Rows of a child table have addresses of their own.
INSERT INTO acemq.idempotency VALUES ('live', 'CONFIRMED', NULL, now(), now() + interval '1 h');
CREATE TABLE child () INHERITS (acemq.idempotency);
INSERT INTO child VALUES ('expired', 'CONFIRMED', NULL, now(), now() - interval '1 h');
SELECT is(acemq.idempotency_purge(), 0::bigint, 'a row of a child table is not ours to purge');
SELECT ok(acemq.idempotency_confirmed('live'), 'and no row of ours goes in its place');
DROP TABLE child;

-- A rule or a trigger may swallow the row: the answer is false, not an endless loop.
SET LOCAL statement_timeout = '10 s';
SELECT is(pg_temp.after('CREATE RULE swallow AS ON INSERT TO acemq.idempotency DO INSTEAD NOTHING',
                        'DO $x$BEGIN ASSERT NOT acemq.idempotency_confirm(''swallowed''); END$x$'), 'no error', 'a rule swallows a confirmation');
SELECT is(pg_temp.after('CREATE RULE swallow AS ON INSERT TO acemq.idempotency DO INSTEAD NOTHING',
                        'DO $x$BEGIN ASSERT acemq.idempotency_claim(''swallowed'') = ''in_progress''; END$x$'), 'no error', 'or a claim');

-- The caller's settings do not change what our statements say.
SET LOCAL standard_conforming_strings = off;
SET LOCAL escape_string_warning = off;
SET LOCAL acemq.claim_check_threshold = 4;
SELECT acemq.outbox_add('e', 'k', '{"long": "enough"}', message_id => 'checked');
SELECT is(acemq.claim_check_purge('0'), 1::bigint, 'a purge removes the payload that nobody refers to');
SELECT is(acemq.claim_check_decode((SELECT body FROM acemq.outbox WHERE message_id = 'checked')), convert_to('{"long": "enough"}', 'UTF8'),
          'and keeps the one of a waiting message');

SELECT * FROM finish();
ROLLBACK;
