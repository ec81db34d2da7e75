-- The claim-check store, its frames, and outbox_add with acemq.claim_check_threshold.
BEGIN;
SELECT no_plan();

CREATE FUNCTION pg_temp.bytes(count int) RETURNS bytea LANGUAGE sql AS
    $$SELECT substr(string_agg(sha256(i::text::bytea), ''), 1, count) FROM generate_series(0, count / 32) i$$;
CREATE FUNCTION pg_temp.held() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM acemq.claim_check';
CREATE FUNCTION pg_temp.checked(key text) RETURNS bytea LANGUAGE sql AS $$SELECT '\xac0101'::bytea || key::bytea$$;

-- put, get, delete.
SELECT acemq.claim_check_put('\x00ff') AS key \gset
SELECT ok(:'key' ~ '^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$', 'a key is a UUID');
SELECT is(acemq.claim_check_get(:'key'), '\x00ff'::bytea, 'the payload comes back');
SELECT isnt(acemq.claim_check_put('\x00ff'), :'key'::text, 'the same payload again has another key');
SELECT is(acemq.claim_check_get(acemq.claim_check_put('')), ''::bytea, 'no bytes are a payload too, and read in the same statement');
SELECT is(acemq.claim_check_get(acemq.claim_check_put(pg_temp.bytes(3000000))), pg_temp.bytes(3000000), 'a large one');
SELECT is(md5(acemq.claim_check_get(acemq.claim_check_put(convert_to(repeat('a', 3000000), 'UTF8')))), md5(repeat('a', 3000000)),
          'one that is compressed');
CREATE TEMP TABLE toasted (payload bytea);
INSERT INTO toasted VALUES (pg_temp.bytes(100000)), (convert_to(repeat('a', 1000000), 'UTF8')), ('\x01');
SELECT ok(acemq.claim_check_get(acemq.claim_check_put(payload)) = payload, 'one out of a table, ' || length(payload) || ' bytes') FROM toasted;
SELECT ok(acemq.claim_check_decode(acemq.claim_check_encode(payload)) = payload, 'and through a body') FROM toasted;
SELECT ok(acemq.claim_check_delete(:'key'), 'deleted');
SELECT ok(NOT acemq.claim_check_delete(:'key'), 'once only');
SELECT is(acemq.claim_check_get(:'key'), NULL, 'and then not held');
SELECT is(acemq.claim_check_get('never-issued'), NULL, 'nor is a key that nobody issued');
SELECT ok((SELECT bool_and(created_at BETWEEN now() AND clock_timestamp()) FROM acemq.claim_check), 'when it was put is recorded');

-- Keys that are none never reach the table.
CREATE TEMP TABLE malformed (key text);
INSERT INTO malformed VALUES (''), ('.'), ('-a'), ('_a'), ('.a'), ('../etc/passwd'), ('a/b'), ('a b'), (' a'), ('a '), (E'a\n'), (E'\na'),
    ('ä'), ('aä'), ('a:b'), ('a%'), (E'a\\b'), ('a''b'), (repeat('a', 129));
SELECT throws_ok(format('SELECT acemq.claim_check_get(%L)', key), '22023', 'argument "key" is no key of a claim check',
                 format('get: "%s"', translate(left(key, 20), E'\n', ' '))) FROM malformed;
SELECT throws_ok(format('SELECT acemq.claim_check_delete(%L)', key), '22023', 'argument "key" is no key of a claim check',
                 format('delete: "%s"', translate(left(key, 20), E'\n', ' '))) FROM malformed;
CREATE TEMP TABLE wellformed (key text);
INSERT INTO wellformed VALUES ('a'), ('Z'), ('0'), ('a.b_c-d'), ('9-'), ('A..'), (repeat('a', 128));
INSERT INTO acemq.claim_check (key, payload) SELECT key, key::bytea FROM wellformed;
SELECT is(acemq.claim_check_get(key), key::bytea, format('a key by the rule: "%s"', left(key, 20))) FROM wellformed;
SELECT is(acemq.claim_check_decode(pg_temp.checked(key)), key::bytea, format('in a body: "%s"', left(key, 20))) FROM wellformed;
SELECT is(acemq.claim_check_key(pg_temp.checked(key)), key, format('and read out of it: "%s"', left(key, 20))) FROM wellformed;
SELECT ok(acemq.claim_check_delete(key), format('and deleted: "%s"', left(key, 20))) FROM wellformed;

-- encode.
SELECT is(acemq.claim_check_encode('\x0102'), '\xac01000102'::bytea, 'inline');
SELECT is(acemq.claim_check_encode(''), '\xac0100'::bytea, 'nothing, inline');
SELECT is(acemq.claim_check_encode('\xac0100'), '\xac0100ac0100'::bytea, 'what looks like a frame is a payload');
SELECT is(acemq.claim_check_encode(pg_temp.bytes(9), 10), '\xac0100'::bytea || pg_temp.bytes(9), 'below the threshold');
SELECT pg_temp.held() AS before \gset
CREATE TEMP TABLE bodies (n int, body bytea);
INSERT INTO bodies VALUES (10, acemq.claim_check_encode(pg_temp.bytes(10), 10)), (11, acemq.claim_check_encode(pg_temp.bytes(11), 10)),
    (0, acemq.claim_check_encode('', 0)), (1, acemq.claim_check_encode(pg_temp.bytes(1), 0)),
    (65536, acemq.claim_check_encode(pg_temp.bytes(65536))), (65536, acemq.claim_check_encode(pg_temp.bytes(65536), NULL)),
    (100, acemq.claim_check_encode(pg_temp.bytes(100), 100));
SELECT is(substr(body, 1, 3), '\xac0101'::bytea, n || ' bytes at or over the threshold') FROM bodies;
SELECT is(length(body), 39, n || ' bytes: a UUID travels') FROM bodies;
SELECT is(convert_from(substr(body, 4), 'UTF8'), acemq.claim_check_key(body), n || ' bytes: it is the key') FROM bodies;
SELECT ok(acemq.claim_check_get(acemq.claim_check_key(body)) = CASE n WHEN 0 THEN '' ELSE pg_temp.bytes(n) END, n || ' bytes: held') FROM bodies;
SELECT ok(acemq.claim_check_decode(body) = CASE n WHEN 0 THEN '' ELSE pg_temp.bytes(n) END, n || ' bytes: decoded') FROM bodies;
SELECT is(pg_temp.held() - :before, 7::bigint, 'one payload each, and decoding removes none');
SELECT is(acemq.claim_check_encode(pg_temp.bytes(65535)), '\xac0100'::bytea || pg_temp.bytes(65535), 'the default is 65536');
SELECT is(acemq.claim_check_encode(pg_temp.bytes(65535), NULL), '\xac0100'::bytea || pg_temp.bytes(65535), 'null means the default');
SELECT is(acemq.claim_check_encode(pg_temp.bytes(70000), 2147483647), '\xac0100'::bytea || pg_temp.bytes(70000), 'the highest threshold');
SELECT throws_ok($$SELECT acemq.claim_check_encode('', -1)$$, '22023', 'argument "threshold" must be at least 0, not -1', 'a negative one');

-- decode: what is no frame is the payload.
CREATE TEMP TABLE unframed (body bytea);
INSERT INTO unframed VALUES (''), ('\x00'), ('\xac'), ('\xac01'), ('\xac00'), ('\x01ac'), ('\xac0102'), ('\xac01ff'), ('\xac0080'),
    ('\xac0001'), ('\xac0000'), ('\x01ac00'), ('\x01ac01'), ('\xac02004142'), ('\x00ac0100'), ('\xab0100'), ('\xad0101'), ('\x2c0100'),
    ('\xac8100'), ('{"a": 1}'), ('\xac010241'), ('\xc2ac0100');
SELECT is(acemq.claim_check_decode(body), body, 'unframed: ' || body::text) FROM unframed;
SELECT is(acemq.claim_check_key(body), NULL, 'without a key: ' || body::text) FROM unframed;
SELECT ok(acemq.claim_check_decode(payload) = payload, 'unframed, ' || length(payload) || ' bytes out of a table') FROM toasted;
SELECT is(acemq.claim_check_decode('\xac0100'), ''::bytea, 'inline, and empty');
SELECT is(acemq.claim_check_decode('\xac010000'), '\x00'::bytea, 'inline, one byte');
SELECT is(acemq.claim_check_decode('\xac0100ac0101'), '\xac0101'::bytea, 'one frame is taken off, not two');
SELECT is(acemq.claim_check_key('\xac010061'), NULL, 'inline has no key');
SELECT ok(acemq.claim_check_decode('\xac0100'::bytea || payload) = payload, 'inline, ' || length(payload) || ' bytes') FROM toasted;
UPDATE toasted SET payload = '\xac0100'::bytea || payload;
SELECT ok(acemq.claim_check_decode(payload) = substr(payload, 4), 'inline, ' || length(payload) || ' bytes out of a table') FROM toasted;

-- decode: a key that is not held, or none at all, is fatal in the same way.
SELECT throws_ok($$SELECT acemq.claim_check_decode('\xac010161')$$, 'AQ002', 'the payload of argument "body" is not held under key "a"', 'not held');
SELECT is(acemq.claim_check_key('\xac010161'), 'a', 'its key can be read all the same');
SELECT throws_ok(format('SELECT acemq.claim_check_decode(%L)', pg_temp.checked(repeat('k', 128))), 'AQ002',
                 format('the payload of argument "body" is not held under key "%s"', repeat('k', 128)), 'the longest key');
CREATE TEMP TABLE damaged (tail bytea);
INSERT INTO damaged VALUES (''), ('\x00'), ('\x6100'), ('\x610a'), ('\xff'), ('\x61c3a4'), ('.a'), ('a b'), (repeat('a', 129)::bytea),
    (repeat('a', 100000)::bytea);
SELECT throws_ok(format('SELECT acemq.claim_check_decode(%L)', '\xac0101'::bytea || tail), 'AQ002',
                 'argument "body" refers to a payload by what is no key of a claim check', 'decode: no key, ' || left(tail::text, 20)) FROM damaged;
SELECT throws_ok(format('SELECT acemq.claim_check_key(%L)', '\xac0101'::bytea || tail), 'AQ002',
                 'argument "body" refers to a payload by what is no key of a claim check', 'key: no key, ' || left(tail::text, 20)) FROM damaged;

-- Any bytes whatever are a body: 4,000 of them, half with the beginning of a frame.
CREATE FUNCTION pg_temp.outcome(body bytea) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM acemq.claim_check_key(body);
    RETURN acemq.claim_check_decode(body)::text;
EXCEPTION WHEN SQLSTATE 'AQ002' THEN
    RETURN 'AQ002';
END $$;
CREATE TEMP TABLE noise AS
SELECT CASE i % 6 WHEN 0 THEN '\xac0101'::bytea WHEN 1 THEN '\xac0100' WHEN 2 THEN '\xac01' ELSE '' END
       || pg_temp.bytes((i * 7919 % 211)) || sha256(i::text::bytea) || substr(sha512(i::text::bytea), 1, i % 64) AS body
FROM generate_series(1, 4000) i;
UPDATE noise SET body = substr(body, 1, length(body) % 40) WHERE length(body) % 3 = 0;
SELECT is_empty($$SELECT body FROM noise WHERE pg_temp.outcome(body) <>
                  CASE substr(body, 1, 3) WHEN '\xac0101' THEN 'AQ002' WHEN '\xac0100' THEN substr(body, 4)::text ELSE body::text END$$, 'noise');

-- NULL.
SELECT throws_ok(format('SELECT acemq.claim_check_%s', call), '22004', format('argument "%s" must not be null', argument), call)
FROM (VALUES ('put(NULL)', 'payload'), ('get(NULL)', 'key'), ('delete(NULL)', 'key'), ('encode(NULL)', 'payload'), ('encode(NULL, 0)', 'payload'),
             ('decode(NULL)', 'body'), ('purge(NULL)', 'older_than')) v (call, argument);
SELECT is(acemq.claim_check_key(NULL), NULL, 'the key of nothing is nothing');

-- What is rolled back was never there.
SELECT pg_temp.held() AS before \gset
SAVEPOINT a;
SELECT acemq.claim_check_put('\x01') AS gone \gset
SELECT acemq.claim_check_encode('\x02', 0) AS gone_body \gset
ROLLBACK TO a;
SELECT is(pg_temp.held(), :before::bigint, 'rolled back to a savepoint');
SELECT is(acemq.claim_check_get(:'gone'), NULL, 'not held');
SELECT throws_ok(format('SELECT acemq.claim_check_decode(%L)', :'gone_body'), 'AQ002', NULL, 'nor behind its body');
SELECT acemq.claim_check_put('\x03') AS back \gset
SAVEPOINT a;
SELECT acemq.claim_check_delete(:'back');
ROLLBACK TO a;
SELECT is(acemq.claim_check_get(:'back'), '\x03'::bytea, 'a delete is taken back too');
DO $$
BEGIN
    PERFORM acemq.claim_check_encode('\x04', 0);
    RAISE division_by_zero;
EXCEPTION WHEN division_by_zero THEN
    NULL;
END $$;
SELECT is(pg_temp.held(), :before::bigint + 1, 'an exception block');
SELECT throws_ok($$SET LOCAL transaction_read_only = on; SELECT acemq.claim_check_put('')$$, '25006', NULL, 'put in a read-only transaction');
SELECT throws_ok($$SET LOCAL transaction_read_only = on; SELECT acemq.claim_check_delete('a')$$, '25006', NULL, 'delete in one');
SELECT throws_ok($$SET LOCAL transaction_read_only = on; SELECT acemq.claim_check_purge('0')$$, '25006', NULL, 'purge in one');
SAVEPOINT a;
SET LOCAL transaction_read_only = on;
SELECT is(acemq.claim_check_get(:'back'), '\x03'::bytea, 'get in one');
SELECT is(acemq.claim_check_decode(pg_temp.checked(:'back')), '\x03'::bytea, 'decode in one');
SELECT is(acemq.claim_check_encode('\x05'), '\xac010005'::bytea, 'encode in one, as long as nothing is stored');
ROLLBACK TO a;

-- purge.
DELETE FROM acemq.claim_check;
INSERT INTO acemq.claim_check (key, payload, created_at)
SELECT key, pg_temp.bytes(10000), clock_timestamp() - age FROM (VALUES ('waiting', interval '2 h'), ('retired', '2 h'), ('failed', '2 h'),
    ('leased', '2 h'), ('later', '2 h'), ('published', '2 h'), ('unused', '2 h'), ('inline', '2 h'), ('close', '61 min'), ('young', '59 min')) v (key, age);
INSERT INTO acemq.outbox (message_id, exchange, routing_key, body, retired_at, published_at, next_attempt_at, leased_until, not_before)
SELECT key, 'e', 'k', pg_temp.checked(key), CASE key WHEN 'retired' THEN now() END, CASE key WHEN 'published' THEN now() END,
       CASE key WHEN 'failed' THEN now() + interval '1 day' END, CASE key WHEN 'leased' THEN now() + interval '1 day' END,
       CASE key WHEN 'later' THEN now() + interval '1 day' END
FROM acemq.claim_check WHERE key IN ('waiting', 'retired', 'failed', 'leased', 'later', 'published');
-- Bodies that refer to nothing: inline, big, damaged.
INSERT INTO acemq.outbox (exchange, routing_key, body)
VALUES ('e', 'k', '\xac0100'::bytea || 'inline'::bytea), ('e', 'k', ''), ('e', 'k', '\xac0101'), ('e', 'k', '\xac0101ff00'),
       ('e', 'k', 'unused'), ('e', 'k', pg_temp.bytes(100000)), ('e', 'k', pg_temp.checked(repeat('u', 129))),
       ('e', 'k', pg_temp.checked('unused ')), ('e', 'k', pg_temp.checked('Unused')), ('e', 'k', pg_temp.checked(repeat('unused', 50000)));
SELECT is(acemq.claim_check_purge('3 h'), 0::bigint, 'nothing is that old');
SELECT is(acemq.claim_check_purge('1 h'), 4::bigint, 'what is old and not referred to');
SELECT set_eq('SELECT key FROM acemq.claim_check', ARRAY['waiting', 'retired', 'failed', 'leased', 'later', 'young'],
              'waiting, retired, failed, leased and delayed messages keep their payloads');
SELECT is(acemq.claim_check_purge('1 h'), 0::bigint, 'nothing is left to purge');
UPDATE acemq.outbox SET published_at = now() WHERE message_id IN ('waiting', 'failed');
DELETE FROM acemq.outbox WHERE message_id = 'later';
SELECT is(acemq.claim_check_purge('1 h'), 3::bigint, 'once they are sent or gone, it can go');
SELECT is(acemq.claim_check_purge('0'), 1::bigint, 'all that is not referred to');
SELECT set_eq('SELECT key FROM acemq.claim_check', ARRAY['retired', 'leased'], 'and never more');
SELECT is(current_setting('plan_cache_mode'), 'auto', 'no setting of ours is left');
SELECT throws_ok($$SELECT acemq.claim_check_purge('-1 ms')$$, '22023', 'argument "older_than" is out of range', 'purge: negative');
SELECT throws_ok($$SELECT acemq.claim_check_purge('110 years')$$, '22023', 'argument "older_than" is out of range', 'purge: too long');
DELETE FROM acemq.outbox;
DELETE FROM acemq.claim_check;

-- The longest key there can be in a body keeps its payload too.
INSERT INTO acemq.claim_check (key, payload) VALUES (repeat('k', 128), ''), ('k', '');
INSERT INTO acemq.outbox (exchange, routing_key, body) SELECT 'e', 'k', pg_temp.checked(key) FROM acemq.claim_check;
SELECT is(acemq.claim_check_purge('0'), 0::bigint, 'keys of 1 and 128 characters are referred to');
DELETE FROM acemq.outbox;
DELETE FROM acemq.claim_check;

-- outbox_add with the threshold off, which is the default.
SELECT is(current_setting('acemq.claim_check_threshold'), '-1', 'off');
SELECT acemq.outbox_add('e', 'off', pg_temp.bytes(100000));
SELECT ok((SELECT body = pg_temp.bytes(100000) FROM acemq.outbox), 'a body goes out as it is');
SELECT is(pg_temp.held(), 0::bigint, 'and nothing is stored');
DELETE FROM acemq.outbox;

-- And on.
SET LOCAL acemq.claim_check_threshold = '100B';
CREATE FUNCTION pg_temp.json(count int) RETURNS text LANGUAGE sql AS $$SELECT '"' || repeat('x', count - 2) || '"'$$;
SELECT acemq.outbox_add('e', 'text 99', pg_temp.json(99)), acemq.outbox_add('e', 'text 100', pg_temp.json(100)),
       acemq.outbox_add('e', 'text 101', pg_temp.json(101)), acemq.outbox_add('e', 'json 100', pg_temp.json(100)::json),
       acemq.outbox_add('e', 'json 99', pg_temp.json(99)::json), acemq.outbox_add('e', 'jsonb 100', pg_temp.json(100)::jsonb),
       acemq.outbox_add('e', 'jsonb 99', pg_temp.json(99)::jsonb), acemq.outbox_add('e', 'bytea 100', pg_temp.bytes(100)),
       acemq.outbox_add('e', 'bytea 99', pg_temp.bytes(99)),
       acemq.outbox_add('e', 'plain 100', repeat('é', 50), content_type => 'text/plain'),
       acemq.outbox_add('e', 'plain 98', repeat('é', 49), content_type => 'text/plain');
CREATE TEMP VIEW sent AS SELECT routing_key, substring(routing_key FROM '\d+')::int AS n, body, content_type, headers FROM acemq.outbox;
SELECT is(acemq.claim_check_key(body) IS NOT NULL, n >= 100, routing_key || ': checked in from 100 bytes on') FROM sent;
SELECT is(length(body), CASE WHEN n >= 100 THEN 39 ELSE n END, routing_key || ': a small body is not framed') FROM sent;
SELECT ok(acemq.claim_check_decode(body) = CASE split_part(routing_key, ' ', 1) WHEN 'bytea' THEN pg_temp.bytes(n)
              WHEN 'plain' THEN convert_to(repeat('é', n / 2), 'UTF8') ELSE pg_temp.json(n)::bytea END, routing_key || ': decoded') FROM sent;
SELECT is(content_type, CASE split_part(routing_key, ' ', 1) WHEN 'bytea' THEN 'application/octet-stream' WHEN 'plain' THEN 'text/plain'
                        ELSE 'application/json' END, routing_key || ': the content type stays') FROM sent;
SELECT is(pg_temp.held(), 6::bigint, 'one payload each');
SELECT is(acemq.claim_check_purge('0'), 0::bigint, 'all of them referred to');
DELETE FROM acemq.outbox;
DELETE FROM acemq.claim_check;

-- jsonb counts as it is rendered.
SELECT acemq.outbox_add('e', 'k', jsonb_build_object('a', repeat('x', 90)));
SELECT is(pg_temp.held(), 0::bigint, 'jsonb of 99 bytes');
SELECT acemq.outbox_add('e', 'k', jsonb_build_object('a', repeat('x', 91)));
SELECT is(pg_temp.held(), 1::bigint, 'jsonb of 100 bytes');
SELECT throws_ok(format('SELECT acemq.outbox_add(%L, %L, %L)', 'e', 'k', repeat('x', 200)), '22P02', NULL, 'text is still checked');
SELECT is(pg_temp.held(), 1::bigint, 'before anything is stored');

-- Headers and every option stay.
SELECT acemq.outbox_add('e', 'k', pg_temp.json(200), headers => '{"a": 1}', message_id => 'whole', type => 't', ordering_key => 'o',
                        content_type => 'application/vnd.x+json', priority => 3, not_before => now() + interval '1 h');
SELECT results_eq($$SELECT headers, type COLLATE "default", ordering_key COLLATE "default", content_type COLLATE "default", priority, not_before IS NOT NULL
                    FROM acemq.outbox WHERE message_id = 'whole'$$,
                  $$VALUES ('{"a": 1}'::jsonb, 't' COLLATE "default", 'o' COLLATE "default", 'application/vnd.x+json' COLLATE "default", 3::smallint, true)$$,
                  'nothing else changes');
DELETE FROM acemq.outbox;
DELETE FROM acemq.claim_check;

-- A frame of the application's own is left alone.
SELECT acemq.outbox_add('e', 'own', body) FROM bodies WHERE n = 65536 LIMIT 1;
SELECT acemq.outbox_add('e', 'own', acemq.claim_check_encode(pg_temp.bytes(500), 1000));
SELECT acemq.outbox_add('e', 'own', '\xac0101'::bytea || pg_temp.bytes(500));
SELECT is(pg_temp.held(), 0::bigint, 'frames are not checked in again');
SELECT is((SELECT count(*) FROM acemq.outbox WHERE substr(body, 1, 2) = '\xac01'), 3::bigint, 'and go out as they are');
SELECT acemq.outbox_add('e', 'not a frame', '\xac0102'::bytea || pg_temp.bytes(500));
SELECT is(pg_temp.held(), 1::bigint, 'what only begins like one is checked in');
DELETE FROM acemq.outbox;
DELETE FROM acemq.claim_check;

-- acemq.max_body_size is for what goes on the wire.
SET LOCAL acemq.max_body_size = '1kB';
SELECT lives_ok(format('SELECT acemq.outbox_add(''e'', ''k'', %s)', payload), 'larger than acemq.max_body_size: ' || payload)
FROM unnest(ARRAY['pg_temp.json(100000)', 'pg_temp.json(100000)::json', 'pg_temp.json(100000)::jsonb', 'pg_temp.bytes(100000)']) payload;
SELECT is((SELECT sum(length(payload)) FROM acemq.claim_check), 400000::bigint, 'all of it is stored');
SELECT throws_ok($$SELECT acemq.outbox_add('e', 'k', '\xac0100'::bytea || pg_temp.bytes(1022))$$, '54000', NULL, 'a frame goes on the wire as it is, so it may not');
SELECT lives_ok($$SELECT acemq.outbox_add('e', 'k', '\xac0100'::bytea || pg_temp.bytes(1021))$$, 'one that fits');
SET LOCAL acemq.claim_check_threshold = '2kB';
SELECT throws_ok(format('SELECT acemq.outbox_add(''e'', ''k'', %s)', payload), '54000', NULL, 'too big for the wire, too small for the store: ' || payload)
FROM unnest(ARRAY['pg_temp.json(1025)', 'pg_temp.json(2047)::json', 'pg_temp.json(2047)::jsonb', 'pg_temp.bytes(1025)']) payload;
SELECT lives_ok($$SELECT acemq.outbox_add('e', 'k', pg_temp.bytes(2048))$$, 'big enough for it');
SET LOCAL acemq.claim_check_threshold = -1;
SELECT throws_ok($$SELECT acemq.outbox_add('e', 'k', pg_temp.bytes(2048))$$, '54000', NULL, 'off again');
RESET acemq.max_body_size;
DELETE FROM acemq.outbox;
DELETE FROM acemq.claim_check;

-- 0: every body.
SET LOCAL acemq.claim_check_threshold = 0;
SELECT acemq.outbox_add('e', 'k', ''::bytea), acemq.outbox_add('e', 'k', '1');
SELECT is((SELECT array_agg(acemq.claim_check_decode(body) ORDER BY id) FROM acemq.outbox), ARRAY[''::bytea, '1'], 'every body is checked in');
DELETE FROM acemq.outbox;
DELETE FROM acemq.claim_check;

-- The same message id again: no second row, no second payload.
SELECT acemq.outbox_add('e', 'k', '1', message_id => 'once');
SELECT is(acemq.outbox_add('e', 'k', '2', message_id => 'once'), 'once', 'the id comes back');
SELECT is(pg_temp.held(), 1::bigint, 'and no payload is left behind');
SELECT is((SELECT acemq.claim_check_decode(body) FROM acemq.outbox), '1'::bytea, 'the first one holds');
-- Nor with a row that a trigger of the owner's drops.
CREATE FUNCTION pg_temp.drop_row() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
SAVEPOINT a;
CREATE TRIGGER drop_it BEFORE INSERT ON acemq.outbox FOR EACH ROW EXECUTE FUNCTION pg_temp.drop_row();
SELECT acemq.outbox_add('e', 'k', '3');
SELECT is(pg_temp.held(), 1::bigint, 'a row that was dropped leaves no payload');
ROLLBACK TO a;
CREATE TRIGGER drop_it BEFORE INSERT ON acemq.claim_check FOR EACH ROW EXECUTE FUNCTION pg_temp.drop_row();
SELECT throws_ok($$SELECT acemq.outbox_add('e', 'k', '4')$$, '09000', NULL, 'a payload that was dropped is an error');
SELECT throws_ok($$SELECT acemq.claim_check_put('4')$$, '09000', NULL, 'put, too');
ROLLBACK TO a;
SAVEPOINT a;
SELECT acemq.outbox_add('e', 'k', '5');
ROLLBACK TO a;
SELECT is(pg_temp.held(), 1::bigint, 'a message that is rolled back leaves no payload');

-- EXECUTE is enough, and nothing of the caller's is called.
CREATE ROLE acemq_test_checker;
GRANT USAGE ON SCHEMA acemq TO acemq_test_checker;
SELECT format('GRANT EXECUTE ON FUNCTION %s TO acemq_test_checker', p.oid::regprocedure) FROM pg_proc p
WHERE p.pronamespace = 'acemq'::regnamespace AND (p.proname LIKE 'claim\_check\_%' OR p.proname = 'outbox_add') \gexec
SET LOCAL ROLE acemq_test_checker;
SELECT acemq.claim_check_put('\x01') AS key \gset
SELECT is(acemq.claim_check_get(:'key'), '\x01'::bytea, 'put and get');
SELECT is(acemq.claim_check_decode(acemq.claim_check_encode('\x02', 0)), '\x02'::bytea, 'encode and decode');
SELECT ok(acemq.claim_check_delete(:'key'), 'delete');
SELECT lives_ok($$SELECT acemq.outbox_add('e', 'k', '6')$$, 'outbox_add with the threshold on');
SELECT is(acemq.claim_check_purge('0'), 1::bigint, 'purge');
SELECT throws_ok('SELECT * FROM acemq.claim_check', '42501', NULL, 'but not the table');
SELECT throws_ok('SET acemq.claim_check_threshold = 1', '42501', NULL, 'nor the threshold');
RESET ROLE;

SELECT set_eq($$SELECT proname::text, provolatile::text, proisstrict, proparallel::text, prosecdef FROM pg_proc
                WHERE pronamespace = 'acemq'::regnamespace AND proname LIKE 'claim\_check\_%'$$,
              $$VALUES ('claim_check_put', 'v', false, 'u', false), ('claim_check_get', 'v', false, 'u', false),
                       ('claim_check_delete', 'v', false, 'u', false), ('claim_check_encode', 'v', false, 'u', false),
                       ('claim_check_decode', 'v', false, 'u', false), ('claim_check_purge', 'v', false, 'u', false),
                       ('claim_check_key', 'i', true, 's', false)$$, 'what the planner is told');

SELECT * FROM finish();
ROLLBACK;
