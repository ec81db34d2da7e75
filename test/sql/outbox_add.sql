-- outbox_add(): what it stores and what it refuses.  Needs no broker and no preloaded
-- library: every transaction here is rolled back, so nothing can be sent.
\set VERBOSITY terse
-- Without preloading the first call of a session warns.
SET client_min_messages = error;

-- A function with side effects that is called once per row, whatever its arguments.
SELECT p.proargtypes[2]::regtype AS payload, l.lanname, p.provolatile, p.proparallel, p.proisstrict, p.prosecdef,
       p.pronargs, p.pronargdefaults, p.prorettype::regtype
FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
WHERE p.pronamespace = 'acemq'::regnamespace AND p.proname = 'outbox_add'
ORDER BY 1;
SELECT a.position, a.name, count(*) AS overloads
FROM pg_proc, unnest(proargnames) WITH ORDINALITY AS a(name, position)
WHERE pronamespace = 'acemq'::regnamespace AND proname = 'outbox_add'
GROUP BY 1, 2 ORDER BY 1;
SELECT count(*) AS without_comment FROM pg_proc
WHERE pronamespace = 'acemq'::regnamespace AND proname = 'outbox_add' AND obj_description(oid, 'pg_proc') IS NULL;

-- Defaults.
BEGIN;
SET LOCAL acemq.origin = 'test@here';
SELECT acemq.outbox_add('orders', 'order.placed', '{"id": 7}')
       ~ '^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$' AS uuid_v4;
SELECT attempts, version, persistent, caller_id, exchange, routing_key, content_type, convert_from(body, 'UTF8') AS body,
       headers, type, origin, correlation_id, causation_id, reply_to, ordering_key, expiration, priority,
       not_before, next_attempt_at, retired_at, published_at, leased_until, leased_by, last_error
FROM acemq.outbox \gx
SELECT created_at BETWEEN now() AND clock_timestamp() AS created_at_the_call FROM acemq.outbox;
ROLLBACK;

-- Every option.
BEGIN;
SELECT acemq.outbox_add('orders', 'order.placed', '{"id": 7}', type => 'order', headers => '{"tenant": "a", "n": 1e3}',
       message_id => 'm-1', correlation_id => 'c-1', causation_id => 'm-0', version => 3,
       content_type => 'application/vnd.order+json', priority => 9, expiration => '1 min 500 us', reply_to => 'answers',
       persistent => false, ordering_key => 'customer-12', not_before => '2026-01-02 03:04:05+00');
SELECT version, persistent, caller_id, message_id, content_type, headers, type, correlation_id, causation_id, reply_to,
       ordering_key, expiration, priority, not_before AT TIME ZONE 'UTC' AS not_before
FROM acemq.outbox \gx
ROLLBACK;

-- NULL means the default, and an empty optional text is none; what equals its default is not stored.
BEGIN;
SELECT acemq.outbox_add('', 'q', '1', NULL, NULL, 'm-1', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
SELECT acemq.outbox_add('', 'q', '1', type => '', message_id => 'm-2', correlation_id => '', causation_id => '',
                        content_type => '', reply_to => '');
SELECT acemq.outbox_add('', 'q', '1', type => 'q', message_id => 'm-3', correlation_id => 'm-3');
SELECT acemq.outbox_add('e', '', '1', type => 'message', message_id => 'm-4');
SELECT message_id, version, persistent, content_type, type, correlation_id, causation_id, reply_to
FROM acemq.outbox ORDER BY id;
ROLLBACK;

-- The bytes of each payload type.
BEGIN;
SELECT count(acemq.outbox_add('e', 'text', '{ "b":1,  "a":2, "n":1.10, "a":3, "u":"Grüße \u00e9 \u0000"}'));
SELECT count(acemq.outbox_add('e', 'text, not JSON', 'Grüße', content_type => 'text/plain; charset=utf-8'));
SELECT count(acemq.outbox_add('e', 'text, empty', ''::text, content_type => 'text/plain'));
SELECT count(acemq.outbox_add('e', 'json', '{ "b":1,  "a":2, "n":1.10, "a":3}'::json));
SELECT count(acemq.outbox_add('e', 'jsonb', '{ "b":1,  "a":2, "n":1.10, "a":3}'::jsonb));
SELECT count(acemq.outbox_add('e', 'bytea', '\x00ff80c3'::bytea));
SELECT count(acemq.outbox_add('e', 'bytea, typed', '\x7b'::bytea, content_type => 'application/json'));
SELECT count(acemq.outbox_add('e', 'bytea, empty', ''::bytea));
SELECT count(acemq.outbox_add('e', 'big', jsonb_build_object('t', repeat('0123456789', 30000))));
SELECT routing_key, content_type, octet_length(body) AS bytes, encode(substr(body, 1, 70), 'escape') AS body
FROM acemq.outbox ORDER BY id;
ROLLBACK;

-- Once per row, also where the arguments are constants and the result is not used.
BEGIN;
SELECT count(*) FROM (SELECT acemq.outbox_add('e', 'k', '1') FROM generate_series(1, 100) OFFSET 0) s;
SELECT count(*), count(DISTINCT message_id) AS ids FROM acemq.outbox;
ROLLBACK;

-- The same id again: the id comes back, nothing is added, also within one statement.
BEGIN;
SELECT acemq.outbox_add('e', 'k', '1', message_id => 'again');
SELECT acemq.outbox_add('e', 'k', '2', message_id => 'again', ordering_key => 'o') FROM generate_series(1, 3);
SELECT convert_from(body, 'UTF8') AS body FROM acemq.outbox;
DELETE FROM acemq.outbox;
SELECT acemq.outbox_add('e', 'k', '3', message_id => 'again');
SELECT convert_from(body, 'UTF8') AS body FROM acemq.outbox;
ROLLBACK;

-- Each kind of row is in the partial indexes it belongs to, whichever way it was written.
BEGIN;
SELECT count(acemq.outbox_add('e', 'k', '1'));
SELECT count(acemq.outbox_add('e', 'k', '1', ordering_key => 'o'));
SELECT count(acemq.outbox_add('e', 'k', '1', not_before => now() + interval '1 day'));
SELECT count(acemq.outbox_add('e', 'k', '1', ordering_key => 'o', not_before => now() + interval '1 day'));
SELECT count(acemq.outbox_add('e', 'k', '1', ordering_key => 'o', not_before => now(), message_id => 'given'));
SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
SET LOCAL enable_sort = off;
SELECT count(*) AS due FROM acemq.outbox
WHERE not_before IS NOT NULL AND retired_at IS NULL AND published_at IS NULL AND not_before > '-infinity';
SELECT count(*) AS lane FROM acemq.outbox
WHERE ordering_key = 'o' AND ordering_key IS NOT NULL AND retired_at IS NULL AND published_at IS NULL;
SELECT count(*) AS given FROM acemq.outbox WHERE message_id = 'given' AND caller_id;
SELECT count(*) AS by_key FROM acemq.outbox WHERE id > 0;
ROLLBACK;

-- What is refused, with its SQLSTATE; every refusal has a hint.
CREATE FUNCTION pg_temp.refusal(arguments text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    hint text;
BEGIN
    EXECUTE 'SELECT acemq.outbox_add(' || arguments || ')';
    RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
    RETURN sqlstate || ' ' || sqlerrm || CASE WHEN hint = '' THEN ' (no hint)' ELSE '' END;
END $$;
BEGIN;
SELECT left(a, 78) AS arguments, pg_temp.refusal(a) FROM (VALUES
    ($$NULL, 'k', '1'$$), ($$'e', NULL, '1'$$), ($$'e', 'k', NULL::text$$), ($$'e', 'k', NULL::json$$),
    ($$'e', 'k', NULL::jsonb$$), ($$'e', 'k', NULL::bytea$$), ($$'', '', '1'$$), ($$'', 'k', '1'$$), ($$'e', '', '1'$$),
    ($$repeat('e', 255), 'k', '1'$$), ($$repeat('e', 256), 'k', '1'$$),
    ($$'e', repeat('é', 127), '1'$$), ($$'e', repeat('é', 128), '1'$$),
    ($$'e', 'k', '1', message_id => ''$$), ($$'e', 'k', '1', message_id => repeat('é', 128)$$),
    ($$'e', 'k', '1', message_id => repeat('m', 255)$$),
    ($$'e', 'k', '1', content_type => 'text/' || repeat('x', 251)$$),
    ($$'e', 'k', '1', reply_to => repeat('r', 256)$$), ($$'e', 'k', '1', ordering_key => repeat('o', 256)$$),
    ($$'e', 'k', '1', type => repeat('t', 300), correlation_id => repeat('c', 300), causation_id => repeat('d', 300)$$),
    ($$'e', 'k', '1', version => 0$$), ($$'e', 'k', '1', priority => -1$$), ($$'e', 'k', '1', priority => 256$$),
    ($$'e', 'k', '1', priority => 0$$), ($$'e', 'k', '1', priority => 255$$),
    ($$'e', 'k', '1', expiration => '-1 us'$$), ($$'e', 'k', '1', expiration => '0'$$),
    ($$'e', 'k', '1', expiration => '4294967.295 s'$$), ($$'e', 'k', '1', expiration => '4294967.2951 s'$$),
    ($$'e', 'k', '1', expiration => '1 mon 19 days 17 h'$$), ($$'e', 'k', '1', expiration => '2 mons'$$),
    ($$'e', 'k', '1', expiration => '1 day -25 h'$$), ($$'e', 'k', '1', expiration => '170000000 years'$$),
    ($$'e', 'k', '1', not_before => 'infinity'$$), ($$'e', 'k', '1', not_before => '-infinity'$$),
    ($$'e', 'k', '1', not_before => now() + interval '101 years'$$), ($$'e', 'k', '1', not_before => now() + interval '99 years'$$),
    ($$'e', 'k', '1', not_before => now() - interval '101 years'$$),
    ($$'e', 'k', ''$$), ($$'e', 'k', 'plain'$$), ($$'e', 'k', '{"a":1'$$),
    ($$'e', 'k', 'x', content_type => ' application/json; charset=utf-8'$$),
    ($$'e', 'k', 'x', content_type => 'Application/Problem+JSON'$$),
    ($$'e', 'k', 'x', content_type => 'text/JSON'$$), ($$'e', 'k', 'x', content_type => 'application/jsonl'$$)) v(a);
SELECT left(a, 78) AS headers, pg_temp.refusal($$'e', 'k', '1', headers => $$ || a) FROM (VALUES
    ($$'[1]'$$), ($$'"s"'$$), ($$'null'$$), ($$'{}'$$),
    ($$'{"x-acemq-id": "1"}'$$), ($$'{"x-acemq-": 1}'$$), ($$'{"X-AceMQ-id": 1}'$$), ($$'{"a": {"x-acemq-id": 1}}'$$),
    ($$'{"": 1}'$$), ($$'{"a": {"": 1}}'$$),
    ($$jsonb_build_object(repeat('é', 64), 1)$$), ($$jsonb_build_object(repeat('é', 64) || 'x', 1)$$),
    ($$jsonb_build_object('a', array[jsonb_build_object(repeat('n', 129), 1)])$$),
    ($$'{"n": 9223372036854775807, "m": -9223372036854775808}'$$), ($$'{"n": 9223372036854775808}'$$),
    ($$'{"n": [-9223372036854775809]}'$$), ($$'{"n": 1e400}'$$), ($$'{"n": 1.5e400}'$$), ($$'{"n": 1e18, "m": 1.0}'$$),
    ($$'{"n": 1e-400}'$$), ($$'{"n": 0.0, "m": 0e-500}'$$), ($$('{"n": 1' || repeat('0', 308) || '.5}')::jsonb$$),
    ($$('{"n": 1' || repeat('0', 309) || '.5}')::jsonb$$), ($$'{"s": "\u0000"}'$$),
    ($$(repeat('{"a":', 33) || '1' || repeat('}', 33))::jsonb$$), ($$(repeat('{"a":', 34) || '1' || repeat('}', 34))::jsonb$$),
    ($$('{"a":' || repeat('[', 33) || repeat(']', 33) || '}')::jsonb$$),
    ($$jsonb_build_object('big', repeat('x', 64000))$$), ($$jsonb_build_object('big', repeat('x', 66000))$$)) v(a);
ROLLBACK;

-- Header limits count the envelope, to the byte: 64 kB without what else is there.
BEGIN;
SET LOCAL acemq.origin = 'o';
SELECT n - 65536 AS against_the_limit, pg_temp.refusal(format(
    $$'e', 'kk', '1', message_id => 'mm', headers => jsonb_build_object('abc', repeat('x', %s))$$, n - 169)) AS answer
FROM generate_series(65535, 65538) n;
ROLLBACK;

-- Bodies.
BEGIN;
SET LOCAL acemq.max_body_size = '1kB';
SELECT a, pg_temp.refusal($$'e', 'k', $$ || a) FROM (VALUES
    ($$decode(repeat('00', 1024), 'hex')$$), ($$decode(repeat('00', 1025), 'hex')$$),
    ($$repeat('x', 1024), content_type => 'text/plain'$$), ($$repeat('x', 1025), content_type => 'text/plain'$$),
    ($$to_json(repeat('x', 1022))$$), ($$to_json(repeat('x', 1023))$$),
    ($$to_jsonb(repeat('x', 1022))$$), ($$to_jsonb(repeat('x', 1023))$$)) v(a);
ROLLBACK;

-- The whole message of one error.
\set VERBOSITY default
SELECT acemq.outbox_add('e', repeat('é', 200), '1');
SELECT acemq.outbox_add('e', 'k', 'not json');
SELECT acemq.outbox_add('e', 'k', '1', headers => '{"x-acemq-attempt": 1}');
\set VERBOSITY terse

-- Savepoints and exception blocks.
BEGIN;
SAVEPOINT a;
SELECT count(acemq.outbox_add('e', 'gone', '1'));
ROLLBACK TO a;
SELECT count(acemq.outbox_add('e', 'stays', '1'));
DO $$
BEGIN
    FOR i IN 1..100 LOOP
        BEGIN
            PERFORM acemq.outbox_add('e', 'block', to_jsonb(i));
            IF i % 2 = 0 THEN
                RAISE division_by_zero;
            END IF;
        EXCEPTION WHEN division_by_zero THEN NULL;
        END;
    END LOOP;
END $$;
SELECT routing_key, count(*) FROM acemq.outbox GROUP BY 1 ORDER BY 1;
ROLLBACK;

-- Read-only transactions.
BEGIN READ ONLY;
SELECT acemq.outbox_add('e', 'k', '1');
ROLLBACK;

-- What the owner of the table adds to it happens, for rows of every kind, from the next call on.
BEGIN;
CREATE TABLE seen (what text);
CREATE FUNCTION note_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.seen VALUES (current_user || ' ' || current_setting('search_path') || ' ' || new.routing_key);
    RETURN new;
END $$;
SELECT count(acemq.outbox_add('e', 'before', '1'));
CREATE TRIGGER note AFTER INSERT ON acemq.outbox FOR EACH ROW EXECUTE FUNCTION note_row();
SELECT count(acemq.outbox_add('e', 'plain', '1'));
SELECT count(acemq.outbox_add('e', 'ordered', '1', ordering_key => 'o'));
SELECT count(acemq.outbox_add('e', 'own id', '1', message_id => 'given'));
DROP TRIGGER note ON acemq.outbox;
SELECT count(acemq.outbox_add('e', 'after', '1'));
SELECT replace(what, session_user, '(owner)') AS what FROM seen;
ALTER TABLE acemq.outbox ADD tenant text DEFAULT 'none';
SELECT count(acemq.outbox_add('e', 'new column', '1'));
SELECT routing_key, tenant FROM acemq.outbox ORDER BY id;
ALTER TABLE acemq.outbox ADD CHECK (routing_key <> 'forbidden');
SAVEPOINT a;
SELECT acemq.outbox_add('e', 'forbidden', '1');
ROLLBACK TO a;
ALTER TABLE acemq.outbox DROP tenant;
CREATE INDEX by_routing_key ON acemq.outbox (lower(routing_key));
SELECT count(acemq.outbox_add('e', 'INDEXED', '1'));
SET LOCAL enable_seqscan = off;
SELECT routing_key FROM acemq.outbox WHERE lower(routing_key) = 'indexed';
ROLLBACK;
BEGIN;
CREATE INDEX by_exchange ON acemq.outbox (exchange, created_at);
CREATE UNIQUE INDEX some_keys ON acemq.outbox (routing_key) WHERE exchange = 'once';
SELECT count(acemq.outbox_add('once', 'k', '1'));
SAVEPOINT a;
SELECT acemq.outbox_add('once', 'k', '2');
ROLLBACK TO a;
DROP INDEX acemq.some_keys;
SELECT count(acemq.outbox_add('once', 'k', '3'));
SET LOCAL enable_seqscan = off;
SELECT count(*) FROM acemq.outbox WHERE exchange = 'once';
CREATE RULE nothing AS ON INSERT TO acemq.outbox DO INSTEAD NOTHING;
SAVEPOINT a;
SELECT acemq.outbox_add('e', 'k', '1');
ROLLBACK TO a;
DROP RULE nothing ON acemq.outbox;
ROLLBACK;
BEGIN;
SELECT count(acemq.outbox_add('e', 'k', '1'));
TRUNCATE acemq.outbox RESTART IDENTITY;
SELECT count(acemq.outbox_add('e', 'k', '2'));
SELECT id, convert_from(body, 'UTF8') AS body FROM acemq.outbox;
ROLLBACK;
BEGIN;
ALTER TABLE acemq.outbox RENAME TO elsewhere;
SELECT acemq.outbox_add('e', 'k', '1');
ROLLBACK;

-- The caller needs no right on the table, and the caller's names and operators are not taken for ours.
CREATE ROLE regress_acemq_producer;
BEGIN;
GRANT USAGE ON SCHEMA acemq TO regress_acemq_producer;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA acemq TO regress_acemq_producer;
SET LOCAL ROLE regress_acemq_producer;
CREATE TEMP TABLE outbox (message_id text);
CREATE FUNCTION pg_temp.no_eq(text, text) RETURNS boolean LANGUAGE sql AS $$ SELECT 1 / 0 = 1 $$;
CREATE OPERATOR pg_temp.= (FUNCTION = pg_temp.no_eq, LEFTARG = text, RIGHTARG = text);
SET LOCAL search_path = pg_temp, pg_catalog, acemq;
SELECT count(acemq.outbox_add('e', 'plain', '1'));
SELECT acemq.outbox_add('e', 'own id', '1', message_id => 'given');
SELECT acemq.outbox_add('e', 'own id', '1', message_id => 'given');
SELECT current_user, current_setting('search_path');
SAVEPOINT a;
SELECT count(*) FROM acemq.outbox;
ROLLBACK TO a;
RESET ROLE;
SELECT routing_key FROM acemq.outbox ORDER BY id;
ROLLBACK;
DROP ROLE regress_acemq_producer;

SELECT count(*) AS left_behind FROM acemq.outbox;

-- direct reply-to stands for a consumer on the publishing channel, which the relay does not have
SELECT acemq.outbox_add('ex', 'k', '{}', reply_to => 'amq.rabbitmq.reply-to');
