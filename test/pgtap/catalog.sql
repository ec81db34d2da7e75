-- What the objects of the extension are like.
BEGIN;
SELECT no_plan();

CREATE TEMP VIEW members AS
SELECT d.classid, d.objid, pg_describe_object(d.classid, d.objid, 0) AS name
FROM pg_depend d JOIN pg_extension e ON d.refobjid = e.oid AND d.refclassid = 'pg_extension'::regclass
WHERE e.extname = 'acemq' AND d.deptype = 'e';

SELECT is_empty($$SELECT name FROM members m WHERE obj_description(objid, classid::regclass::text) IS NULL
                  AND classid IN ('pg_class'::regclass, 'pg_proc'::regclass, 'pg_type'::regclass)
                  AND NOT (classid = 'pg_class'::regclass AND (SELECT relkind FROM pg_class c WHERE c.oid = objid) = 'S')
                  AND NOT (classid = 'pg_type'::regclass AND (SELECT typtype = 'c' OR typcategory = 'A' FROM pg_type t WHERE t.oid = objid))$$,
                'every table, view, function and type has a comment');
SELECT is_empty($$SELECT c.oid::regclass FROM pg_class c WHERE relnamespace = 'acemq'::regnamespace AND relpersistence <> 'p'$$,
                'nothing is unlogged');
SELECT is_empty(
    $$SELECT i.indexrelid::regclass, a.attname FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
      JOIN pg_attribute a ON a.attrelid = i.indexrelid
      WHERE c.relnamespace = 'acemq'::regnamespace AND a.attcollation <> 0
      AND a.attcollation <> (SELECT oid FROM pg_collation WHERE collname = 'C' AND collnamespace = 'pg_catalog'::regnamespace)$$,
    'no index depends on a collation of the system''s');
SELECT is_empty($$SELECT p.oid::regprocedure FROM pg_proc p WHERE pronamespace = 'acemq'::regnamespace AND prosecdef$$,
                'no function is SECURITY DEFINER');
SELECT is_empty($$SELECT p.oid::regprocedure FROM pg_proc p WHERE pronamespace = 'acemq'::regnamespace
                  AND provolatile <> 'v' AND proname NOT IN ('version', 'partition', 'partitioned_routing_key', 'claim_check_key')$$,
                'what changes or looks is VOLATILE');
SELECT is_empty($$SELECT p.oid::regprocedure FROM pg_proc p WHERE pronamespace = 'acemq'::regnamespace
                  AND proparallel <> 'u' AND proname NOT IN ('version', '_status', 'worker_restart', 'partition', 'partitioned_routing_key', 'claim_check_key')$$,
                'and parallel unsafe');
SELECT is_empty($$SELECT p.oid::regprocedure FROM pg_proc p WHERE pronamespace = 'acemq'::regnamespace AND proisstrict
                  AND NOT (provolatile = 'i' AND proparallel = 's')$$,
                'none but the pure ones turns a NULL argument into a silent NULL');
SELECT set_eq($$SELECT unnest(extconfig)::regclass::text FROM pg_extension WHERE extname = 'acemq'$$,
              ARRAY['acemq.outbox', 'acemq.outbox_id_seq', 'acemq.identity', 'acemq.idempotency', 'acemq.schema_registry',
                    'acemq.schema_registry_seq', 'acemq.claim_check'], 'pg_dump takes the data along');
SELECT is_empty($$SELECT c.oid::regclass FROM pg_class c WHERE relnamespace = 'acemq'::regnamespace AND relkind = 'r'
                  AND NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'acemq' AND c.oid = ANY (extconfig))$$,
                'of every table');
SELECT is((SELECT count(*) FROM pg_replication_slots), 0::bigint, 'no replication slot is used');
SELECT is_empty($$SELECT oid::regclass FROM pg_class c WHERE relnamespace = 'acemq'::regnamespace AND relkind = 'r'
                  AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND indisprimary)$$,
                'every table has a primary key, so it can be published');

-- Columns that are promised.
SELECT is_empty($$SELECT v, c FROM unnest(ARRAY['outbox_pending', 'outbox_retired']) v,
                  unnest(ARRAY['id', 'message_id', 'exchange', 'routing_key', 'ordering_key', 'type', 'created_at', 'not_before',
                               'attempts', 'next_attempt_at', 'last_error', 'body_size']) c
                  WHERE NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = ('acemq.' || v)::regclass AND attname = c)$$,
                'views of the outbox');
SELECT is_empty($$SELECT c FROM unnest(ARRAY['state', 'since', 'broker', 'pending', 'oldest_age', 'retired', 'in_flight', 'published',
                      'failed', 'returned', 'nacked', 'reconnects', 'overtaken', 'lag_p50', 'lag_p95', 'lag_p99', 'last_error', 'last_error_at',
                      'ladder_scheduled', 'ladder_delivered', 'ladder_hops', 'ladder_malformed']) c
                  WHERE NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'acemq.status'::regclass AND attname = c)$$, 'status');
-- Tables that AceMQ libraries may use themselves.
SELECT is((SELECT string_agg(format('%s %s%s', attname, format_type(atttypid, atttypmod), CASE WHEN attnotnull THEN ' not null' ELSE '' END), ', ' ORDER BY attnum)
           FROM pg_attribute WHERE attrelid = 'acemq.idempotency'::regclass AND attnum > 0),
          'message_id character varying(255) not null, state character varying(16) not null, claimed_by character varying(64), '
          'recorded_at timestamp with time zone not null, expires_at timestamp with time zone not null', 'idempotency');
SELECT is((SELECT string_agg(format('%s %s%s', attname, format_type(atttypid, atttypmod), CASE WHEN attnotnull THEN ' not null' ELSE '' END), ', ' ORDER BY attnum)
           FROM pg_attribute WHERE attrelid = 'acemq.schema_registry'::regclass AND attnum > 0),
          'id integer not null, subject character varying(255) not null, schema_version integer not null, format character varying(32) not null, '
          'definition text not null, fingerprint character varying(64) not null, registered_at timestamp with time zone not null', 'schema_registry');
SELECT is((SELECT string_agg(format('%s %s%s', attname, format_type(atttypid, atttypmod), CASE WHEN attnotnull THEN ' not null' ELSE '' END), ', ' ORDER BY attnum)
           FROM pg_attribute WHERE attrelid = 'acemq.schema_registry_seq'::regclass AND attnum > 0),
          'only_row integer not null, last_id integer not null', 'schema_registry_seq');
SELECT results_eq('SELECT * FROM acemq.schema_registry_seq', 'VALUES (1, 0)', 'which begins with its one row');

SELECT is((SELECT count(*) FROM acemq.status), 1::bigint, 'status has one row');
SELECT ok((SELECT state IN ('starting', 'relaying', 'idle', 'disconnected', 'blocked', 'paused', 'fenced', 'needs restart') FROM acemq.status),
          'in a known state');
SELECT ok((SELECT bool_and("check" IS NOT NULL AND ok IS NOT NULL AND detail IS NOT NULL AND ok = (hint IS NULL)) FROM acemq.doctor()),
          'the doctor has a hint for what is wrong, and only then');
SELECT ok((SELECT count(*) > 10 AND count(*) = count(DISTINCT "check") FROM acemq.doctor()), 'and names each check once');

SELECT * FROM finish();
ROLLBACK;
