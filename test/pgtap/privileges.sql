-- Closed by default; what each duty may do.
BEGIN;
SELECT no_plan();

CREATE ROLE acemq_test_producer;
CREATE ROLE acemq_test_operator;
CREATE ROLE acemq_test_both;
CREATE ROLE acemq_test_usage;
GRANT USAGE ON SCHEMA acemq TO acemq_test_usage;
SELECT acemq.grant_access('acemq_test_producer', 'producer');
SELECT acemq.grant_access('acemq_test_operator', 'operator');
CREATE ROLE acemq_test_stores;
SELECT acemq.grant_access('acemq_test_stores', 'stores');
CREATE ROLE acemq_test_library;
SELECT acemq.grant_access('acemq_test_library', 'tables');

-- PUBLIC has nothing.  (A type's USAGE lets nobody at data, and none is left with it where it can be taken.)
SELECT is_empty($$SELECT p.oid::regprocedure FROM pg_proc p, LATERAL aclexplode(COALESCE(p.proacl, acldefault('f', p.proowner))) a
                  WHERE p.pronamespace = 'acemq'::regnamespace AND a.grantee = 0$$, 'PUBLIC may execute no function');
SELECT is_empty($$SELECT c.oid::regclass FROM pg_class c, LATERAL aclexplode(c.relacl) a
                  WHERE c.relnamespace = 'acemq'::regnamespace AND a.grantee = 0$$, 'PUBLIC has no right on a table, view or sequence');
SELECT is_empty($$SELECT FROM pg_namespace n, LATERAL aclexplode(n.nspacl) a WHERE n.nspname = 'acemq' AND a.grantee = 0$$,
                'PUBLIC has no right on the schema');
SELECT isnt_empty($$SELECT FROM pg_namespace WHERE nspname = 'acemq' AND nspacl IS NOT NULL$$, 'the schema has an access list');

-- Who may execute what, overloads by name.
CREATE TEMP VIEW may AS
SELECT r.rolname AS role, p.proname::text AS function, bool_and(has_function_privilege(r.rolname, p.oid, 'EXECUTE')) AS yes
FROM pg_proc p, pg_roles r
WHERE p.pronamespace = 'acemq'::regnamespace AND r.rolname LIKE 'acemq_test_%'
GROUP BY 1, 2;
SELECT set_eq($$SELECT function FROM may WHERE yes AND role = 'acemq_test_producer'$$,
              ARRAY['outbox_add', 'schedule_at', 'schedule_in', 'outbox_cancel', 'outbox_sweep', 'partition', 'partitioned_routing_key',
                    'version'], 'a producer');
SELECT set_eq($$SELECT function FROM may WHERE yes AND role = 'acemq_test_stores'$$,
              ARRAY['idempotency_claim', 'idempotency_first_time', 'idempotency_confirm', 'idempotency_forget', 'idempotency_confirmed',
                    'schema_register', 'schema_latest', 'schema_by_id', 'schema_versions', 'claim_check_put', 'claim_check_get',
                    'claim_check_delete', 'claim_check_encode', 'claim_check_decode', 'claim_check_key', 'partition',
                    'partitioned_routing_key', 'version'], 'a user of the stores');
SELECT is_empty($$SELECT function FROM may WHERE yes AND role = 'acemq_test_library'$$, 'a library calls nothing');
SELECT set_eq($$SELECT function FROM may WHERE yes AND role = 'acemq_test_operator'$$,
              ARRAY['_status', '_metrics', 'doctor', 'outbox_cancel', 'outbox_claim', 'outbox_discard', 'outbox_mark_failed', 'outbox_mark_published',
                    'outbox_purge', 'outbox_release', 'outbox_release_all', 'outbox_sweep', 'relay_pause', 'relay_resume', 'version',
                    'worker_restart', 'idempotency_purge', 'schema_import', 'claim_check_purge'], 'an operator');
SELECT is_empty($$SELECT function FROM may WHERE yes AND role = 'acemq_test_usage'$$, 'a role with USAGE only');
SELECT set_eq($$SELECT function FROM may GROUP BY function HAVING NOT bool_or(yes)$$,
              ARRAY['grant_access', 'revoke_access', '_check_schema', '_extension_created', '_identity_insert', '_schema_registry_seq_insert'],
              'every other function belongs to a duty');
SELECT set_eq($$SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'acemq'::regnamespace
                AND has_table_privilege('acemq_test_operator', c.oid, 'SELECT') AND c.relkind <> 'S'$$,
              ARRAY['outbox_pending', 'outbox_retired', 'status', 'metrics'], 'an operator reads the views and no table');
SELECT is_empty($$SELECT c.relname FROM pg_class c, unnest(ARRAY['acemq_test_operator', 'acemq_test_producer', 'acemq_test_stores', 'acemq_test_usage']) r
                WHERE c.relnamespace = 'acemq'::regnamespace AND c.relkind IN ('r', 'v')
                AND has_table_privilege(r, c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')$$, 'nobody writes');
SELECT set_eq($$SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'acemq'::regnamespace AND c.relkind IN ('r', 'v')
                AND has_table_privilege('acemq_test_library', c.oid, 'SELECT') AND has_table_privilege('acemq_test_library', c.oid, 'INSERT')
                AND has_table_privilege('acemq_test_library', c.oid, 'UPDATE') AND has_table_privilege('acemq_test_library', c.oid, 'DELETE')$$,
              ARRAY['idempotency', 'schema_registry', 'schema_registry_seq'], 'but a library, in its three tables');
SELECT is_empty($$SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'acemq'::regnamespace AND c.relkind IN ('r', 'v')
                AND c.relname NOT IN ('idempotency', 'schema_registry', 'schema_registry_seq')
                AND has_table_privilege('acemq_test_library', c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')$$,
                'and in no other');
SELECT is_empty($$SELECT FROM pg_class c, pg_roles r WHERE c.relnamespace = 'acemq'::regnamespace AND c.relkind = 'S'
                AND r.rolname LIKE 'acemq_test_%' AND has_sequence_privilege(r.oid, c.oid, 'USAGE, SELECT, UPDATE')$$, 'nor counts');

-- EXECUTE is enough.
SET LOCAL ROLE acemq_test_producer;
SELECT lives_ok($$SELECT acemq.outbox_add('e', 'k', '{}', message_id => 'p1')$$, 'a producer adds');
SELECT lives_ok($$SELECT acemq.outbox_add('e', 'k', '{}', message_id => 'p2')$$, 'a producer adds another');
SELECT ok(acemq.outbox_cancel('p2'), 'and cancels');
SELECT throws_ok('SELECT * FROM acemq.outbox', '42501', NULL, 'but does not read the table');
SELECT throws_ok('SELECT * FROM acemq.outbox_pending', '42501', NULL, 'nor a view');
SELECT throws_ok('SELECT acemq.relay_pause()', '42501', NULL, 'nor pauses');
SELECT throws_ok($$SELECT acemq.outbox_release('p1')$$, '42501', NULL, 'nor releases');
SELECT throws_ok($$SELECT acemq.grant_access('acemq_test_producer', 'operator')$$, '42501', NULL, 'nor promotes itself');
SELECT throws_ok($$SET acemq.url = 'amqp://u@h'$$, '42501', NULL, 'nor redirects the relay');
SELECT throws_ok($$SHOW acemq.url$$, '42501', NULL, 'nor reads the URL');
RESET ROLE;

SET LOCAL ROLE acemq_test_stores;
SELECT is(acemq.idempotency_claim('k'), 'claimed', 'a user of the stores claims');
SELECT ok(acemq.idempotency_confirm('k'), 'and confirms');
SELECT is((SELECT id FROM acemq.schema_register('s', 'avro', '"string"')), 1, 'and registers');
SELECT is(acemq.claim_check_decode(acemq.claim_check_encode('\x01', 0)), '\x01', 'and checks in and out');
SELECT throws_ok('SELECT * FROM acemq.idempotency', '42501', NULL, 'but does not read the tables');
SELECT throws_ok('SELECT * FROM acemq.claim_check', '42501', NULL, 'of any store');
SELECT throws_ok($$SELECT acemq.outbox_add('e', 'k', '{}')$$, '42501', NULL, 'nor adds');
SELECT throws_ok($$SELECT acemq.schema_import(9, 's', 'avro', '"int"')$$, '42501', NULL, 'nor imports');
RESET ROLE;

-- A library names the tables without the schema.
SET LOCAL ROLE acemq_test_library;
SET LOCAL search_path = acemq;
INSERT INTO idempotency VALUES ('lib', 'CLAIMED', 'lib', pg_catalog.clock_timestamp(), pg_catalog.clock_timestamp() + interval '1 h');
UPDATE schema_registry_seq SET last_id = last_id + 1 WHERE only_row = 1;
INSERT INTO schema_registry SELECT last_id, 'lib', 1, 'avro', '"int"', 'f', pg_catalog.clock_timestamp() FROM schema_registry_seq;
DELETE FROM idempotency WHERE message_id = 'lib';
SET LOCAL search_path TO DEFAULT;
SELECT throws_ok('SELECT * FROM acemq.outbox', '42501', NULL, 'a library does not read the outbox');
RESET ROLE;

UPDATE acemq.outbox SET retired_at = clock_timestamp() WHERE message_id = 'p1';
SET LOCAL ROLE acemq_test_operator;
SELECT lives_ok('SELECT * FROM acemq.status', 'an operator reads the status');
SELECT lives_ok('SELECT * FROM acemq.metrics', 'and the metrics');
SELECT lives_ok('SELECT * FROM acemq.doctor()', 'and asks the doctor');
SELECT is((SELECT message_id FROM acemq.outbox_retired), 'p1', 'and sees what is retired');
SELECT ok(acemq.outbox_release('p1'), 'and releases it');
SELECT is(acemq.outbox_purge('0'), 0::bigint, 'and purges');
SELECT lives_ok('SELECT acemq.relay_pause()', 'and pauses');
SELECT is((SELECT message_id FROM acemq.outbox_claim()), 'p1', 'and claims');
SELECT ok(acemq.outbox_mark_failed((SELECT max(id) FROM acemq.outbox_pending), 'x'), 'and reports');
SELECT throws_ok($$SELECT acemq.outbox_add('e', 'k', '{}')$$, '42501', NULL, 'but does not add');
SELECT throws_ok('SELECT * FROM acemq.outbox', '42501', NULL, 'nor reads the table');
SELECT throws_ok($$SELECT acemq.grant_access('acemq_test_operator', 'producer')$$, '42501', NULL, 'nor promotes itself');
RESET ROLE;
SELECT is(current_setting('search_path'), (SELECT reset_val FROM pg_settings WHERE name = 'search_path'), 'the search path is back');

-- The caller's search_path and temporary objects mean nothing to us.
CREATE SCHEMA evil;
GRANT ALL ON SCHEMA evil TO acemq_test_operator;
SELECT acemq.grant_access('acemq_test_operator', 'stores'), acemq.grant_access('acemq_test_operator', 'producer');
SET LOCAL ROLE acemq_test_operator;
CREATE FUNCTION evil.eq(text, text) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'evil operator'; END$$;
CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.eq);
CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'evil function'; END$$;
CREATE TEMP TABLE outbox (id bigint);
CREATE TEMP TABLE idempotency (id bigint);
CREATE TEMP TABLE schema_registry (id bigint);
CREATE TEMP TABLE schema_registry_seq (id bigint);
CREATE TEMP TABLE claim_check (id bigint);
CREATE TEMP TABLE pg_proc (id bigint);
-- (pgTAP itself would trip over this search_path, so it is set around each call.)
CREATE TEMP VIEW attack AS
SELECT call, format('SET LOCAL search_path = evil, pg_temp, pg_catalog, public; %s; SET LOCAL search_path TO DEFAULT', call) AS statements
FROM unnest(ARRAY[
    $$SELECT acemq.outbox_cancel('p1')$$,
    $$SELECT acemq.outbox_release('p1'), acemq.outbox_release_all('x'), acemq.outbox_discard('p1', 'x')$$,
    $$SELECT acemq.outbox_purge('1 day')$$,
    $$SELECT acemq.relay_resume(), acemq.relay_pause()$$,
    $$SELECT * FROM acemq.outbox_claim()$$,
    $$SELECT acemq.outbox_mark_published(1), acemq.outbox_mark_failed(1, 'x')$$,
    $$SELECT * FROM acemq.doctor()$$,
    $$SELECT acemq.schedule_in('1 h', 'e', 'k', '{}'), acemq.schedule_at('2026-01-01', 'e', 'k', '{}', via => 'ladder')$$,
    $$SELECT acemq.idempotency_claim('e', '1 ms'), pg_sleep(0.002), acemq.idempotency_claim('e'), acemq.idempotency_confirm('e')$$,
    $$SELECT acemq.idempotency_forget('e'), acemq.idempotency_confirmed('e'), acemq.idempotency_purge()$$,
    $$SELECT acemq.schema_register('e', 'avro', '"evil"'), acemq.schema_latest('e'), acemq.schema_import(77, 'e', 'avro', '"x"')$$,
    $$SELECT acemq.schema_by_id(77), acemq.schema_versions('e')$$,
    $$SELECT acemq.claim_check_decode(acemq.claim_check_encode('\x01', 0)), acemq.claim_check_purge('1 h')$$,
    $$SELECT acemq.claim_check_delete(acemq.claim_check_put('\x01')), acemq.partition('k', 3)$$,
    $$SELECT * FROM acemq.outbox_pending$$]) call;
SELECT lives_ok(statements, 'nothing of the caller''s runs: ' || call) FROM attack;
RESET ROLE;
DROP TABLE pg_temp.outbox, pg_temp.pg_proc, pg_temp.idempotency, pg_temp.schema_registry, pg_temp.schema_registry_seq,
           pg_temp.claim_check;

-- Granting and revoking.
SELECT throws_ok($$SELECT acemq.grant_access('acemq_test_both', 'everything')$$, '22023',
                 'unrecognized value for argument "access": "everything"', 'an unknown duty');
SELECT throws_ok($$SELECT acemq.grant_access('acemq_nobody', 'producer')$$, '42704', NULL, 'an unknown role');
SELECT throws_ok($$SELECT acemq.grant_access('public', 'producer')$$, '42704', NULL, 'never to everybody');
SELECT throws_ok($$SELECT acemq.grant_access(NULL, 'producer')$$, '22004', 'argument "role" must not be null', 'role null');
SELECT throws_ok($$SELECT acemq.grant_access('acemq_test_both', NULL)$$, '22004', 'argument "access" must not be null', 'access null');
SELECT acemq.grant_access('acemq_test_both', 'producer'), acemq.grant_access('acemq_test_both', 'operator');
SELECT acemq.revoke_access('acemq_test_both', 'operator');
SELECT set_eq($$SELECT function FROM may WHERE yes AND role = 'acemq_test_both'$$,
              ARRAY['outbox_add', 'schedule_at', 'schedule_in', 'outbox_cancel', 'outbox_sweep', 'partition', 'partitioned_routing_key',
                    'version'], 'revoking leaves what another duty needs');
SELECT ok(has_schema_privilege('acemq_test_both', 'acemq', 'USAGE'), 'and the schema');
SELECT acemq.revoke_access('acemq_test_both', 'producer');
SELECT is_empty($$SELECT function FROM may WHERE yes AND role = 'acemq_test_both'$$, 'the last one takes everything');
SELECT ok(NOT has_schema_privilege('acemq_test_both', 'acemq', 'USAGE'), 'with the schema');
SELECT acemq.grant_access('acemq_test_both', 'tables'), acemq.grant_access('acemq_test_both', 'stores');
SELECT acemq.revoke_access('acemq_test_both', 'stores');
SELECT ok(has_table_privilege('acemq_test_both', 'acemq.idempotency', 'INSERT') AND has_schema_privilege('acemq_test_both', 'acemq', 'USAGE'),
          'a library keeps its tables and the schema when another duty goes');
SELECT acemq.revoke_access('acemq_test_both', 'tables');
SELECT ok(NOT has_table_privilege('acemq_test_both', 'acemq.idempotency', 'SELECT, INSERT, UPDATE, DELETE'), 'and loses them with its own');
SELECT ok(NOT has_schema_privilege('acemq_test_both', 'acemq', 'USAGE'), 'with the schema');
CREATE ROLE "acemq_test_""odd name";
SELECT lives_ok($$SELECT acemq.grant_access('acemq_test_"odd name', 'producer')$$, 'a name that needs quotes');

SELECT * FROM finish();
ROLLBACK;
