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
              ARRAY['outbox_add', 'outbox_cancel', 'outbox_sweep', 'version'], 'a producer');
SELECT set_eq($$SELECT function FROM may WHERE yes AND role = 'acemq_test_operator'$$,
              ARRAY['_status', 'doctor', 'outbox_cancel', 'outbox_claim', 'outbox_discard', 'outbox_mark_failed', 'outbox_mark_published',
                    'outbox_purge', 'outbox_release', 'outbox_release_all', 'outbox_sweep', 'relay_pause', 'relay_resume', 'version',
                    'worker_restart'], 'an operator');
SELECT is_empty($$SELECT function FROM may WHERE yes AND role = 'acemq_test_usage'$$, 'a role with USAGE only');
SELECT set_eq($$SELECT function FROM may GROUP BY function HAVING NOT bool_or(yes)$$,
              ARRAY['grant_access', 'revoke_access', '_check_schema', '_extension_created', '_identity_insert'],
              'every other function belongs to a duty');
SELECT set_eq($$SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'acemq'::regnamespace
                AND has_table_privilege('acemq_test_operator', c.oid, 'SELECT') AND c.relkind <> 'S'$$,
              ARRAY['outbox_pending', 'outbox_retired', 'status'], 'an operator reads the views and no table');
SELECT is_empty($$SELECT c.relname FROM pg_class c, unnest(ARRAY['acemq_test_operator', 'acemq_test_producer', 'acemq_test_usage']) r
                WHERE c.relnamespace = 'acemq'::regnamespace AND c.relkind IN ('r', 'v')
                AND has_table_privilege(r, c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')$$, 'nobody writes');
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

UPDATE acemq.outbox SET retired_at = clock_timestamp() WHERE message_id = 'p1';
SET LOCAL ROLE acemq_test_operator;
SELECT lives_ok('SELECT * FROM acemq.status', 'an operator reads the status');
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
SET LOCAL ROLE acemq_test_operator;
CREATE FUNCTION evil.eq(text, text) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'evil operator'; END$$;
CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.eq);
CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'evil function'; END$$;
CREATE TEMP TABLE outbox (id bigint);
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
    $$SELECT * FROM acemq.outbox_pending$$]) call;
SELECT lives_ok(statements, 'nothing of the caller''s runs: ' || call) FROM attack;
RESET ROLE;
DROP TABLE pg_temp.outbox, pg_temp.pg_proc;

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
              ARRAY['outbox_add', 'outbox_cancel', 'outbox_sweep', 'version'], 'revoking leaves what another duty needs');
SELECT ok(has_schema_privilege('acemq_test_both', 'acemq', 'USAGE'), 'and the schema');
SELECT acemq.revoke_access('acemq_test_both', 'producer');
SELECT is_empty($$SELECT function FROM may WHERE yes AND role = 'acemq_test_both'$$, 'the last one takes everything');
SELECT ok(NOT has_schema_privilege('acemq_test_both', 'acemq', 'USAGE'), 'with the schema');
CREATE ROLE "acemq_test_""odd name";
SELECT lives_ok($$SELECT acemq.grant_access('acemq_test_"odd name', 'producer')$$, 'a name that needs quotes');

SELECT * FROM finish();
ROLLBACK;
