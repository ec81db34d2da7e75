-- What an operator does with retired and published rows: release, discard, purge.
BEGIN;
SELECT plan(36);

-- A worker of this cluster must not touch what we set up; nothing here is committed anyway.
INSERT INTO acemq.outbox (message_id, caller_id, exchange, routing_key, body, attempts, last_error, retired_at, ordering_key)
VALUES ('r1', true, 'a', 'k', 'x', 10, 'no route', clock_timestamp(), 'key'),
       ('r2', false, 'a', 'k', 'x', 10, 'no route', clock_timestamp(), NULL),
       ('r3', false, 'b', 'k', 'x', 10, 'no route', clock_timestamp(), NULL),
       ('r4', true, 'b', 'k', 'x', 10, 'no route', clock_timestamp(), NULL);
INSERT INTO acemq.outbox (message_id, exchange, routing_key, body, attempts, next_attempt_at, last_error)
VALUES ('waiting', 'a', 'k', 'x', 3, clock_timestamp() + interval '1 hour', 'no route');
INSERT INTO acemq.outbox (message_id, exchange, routing_key, body, published_at)
VALUES ('sent-old', 'a', 'k', 'x', clock_timestamp() - interval '2 days'),
       ('sent-new', 'a', 'k', 'x', clock_timestamp() - interval '2 hours');

SELECT set_eq('SELECT message_id FROM acemq.outbox_retired', ARRAY['r1', 'r2', 'r3', 'r4'], 'the view shows retired rows');
SELECT set_eq('SELECT message_id FROM acemq.outbox_pending', ARRAY['waiting'], 'and the other one those that wait');
SELECT results_eq($$SELECT type COLLATE "default", body_size FROM acemq.outbox_retired WHERE message_id = 'r1'$$, $$VALUES ('k', 1)$$,
                  'type and size are shown');

-- release
SELECT ok(NOT acemq.outbox_release('unknown'), 'releasing an unknown message does nothing');
SELECT ok(acemq.outbox_release('waiting'), 'releasing a message that backs off makes it due');
SELECT results_eq($$SELECT attempts, last_error, next_attempt_at FROM acemq.outbox WHERE message_id = 'waiting'$$,
                  $$VALUES (0, NULL::text, NULL::timestamptz)$$, 'with no attempts');
SELECT ok(NOT acemq.outbox_release('waiting'), 'releasing one that just waits does nothing');
INSERT INTO acemq.outbox (message_id, caller_id, exchange, routing_key, body, attempts, next_attempt_at, not_before, published_at)
VALUES ('due', true, 'a', 'k', 'x', 1, clock_timestamp() - interval '1 s', NULL, NULL),
       ('given', true, 'a', 'k', 'x', 1, clock_timestamp() + interval '1 hour', NULL, NULL),
       ('timed', false, 'a', 'k', 'x', 1, clock_timestamp() + interval '1 hour', clock_timestamp(), NULL),
       ('sent', true, 'a', 'k', 'x', 1, clock_timestamp() + interval '1 hour', NULL, clock_timestamp());
SELECT ok(NOT acemq.outbox_release('due'), 'nor one whose next attempt is due');
SELECT ok(acemq.outbox_release('given'), 'a message with an id of the caller that backs off');
SELECT ok(acemq.outbox_release('timed'), 'one with a due time');
SELECT ok(NOT acemq.outbox_release('sent'), 'but no published one');
DELETE FROM acemq.outbox WHERE message_id IN ('due', 'given', 'timed', 'sent');
SELECT ok(NOT acemq.outbox_release('sent-old'), 'releasing a published message does nothing');
SELECT ok(acemq.outbox_release('r1'), 'a message with an id of the caller is released');
SELECT ok(acemq.outbox_release('r2'), 'one with a generated id too');
SELECT ok(NOT acemq.outbox_release('r1'), 'but only once');
SELECT results_eq(
    $$SELECT message_id COLLATE "default", attempts, last_error, retired_at, next_attempt_at FROM acemq.outbox WHERE message_id IN ('r1', 'r2') ORDER BY id$$,
    $$VALUES ('r1'::text, 0, NULL::text, NULL::timestamptz, NULL::timestamptz), ('r2', 0, NULL, NULL, NULL)$$,
    'attempts, error and times are cleared');
SELECT ok((SELECT r.id < w.id FROM acemq.outbox r, acemq.outbox w WHERE r.message_id = 'r1' AND w.message_id = 'waiting'),
          'a released row keeps its id, so its place');
SELECT is(acemq.outbox_release_all('nowhere'), 0::bigint, 'release_all of another exchange');
SELECT is(acemq.outbox_release_all('b'), 2::bigint, 'release_all of an exchange');
SELECT is(acemq.outbox_release_all(), 0::bigint, 'nothing is left to release');
UPDATE acemq.outbox SET retired_at = clock_timestamp() WHERE message_id LIKE 'r_';
SELECT is(acemq.outbox_release_all(), 4::bigint, 'release_all of everything');
UPDATE acemq.outbox SET attempts = 2, next_attempt_at = clock_timestamp() + interval '1 hour' WHERE message_id = 'r3';
SELECT is(acemq.outbox_release_all('b'), 1::bigint, 'release_all counts what backs off');
SELECT throws_ok('SELECT acemq.outbox_release(NULL)', '22004', 'argument "message_id" must not be null', 'release: null');

-- discard
UPDATE acemq.outbox SET retired_at = clock_timestamp() WHERE message_id IN ('r1', 'r2');
SELECT ok(NOT acemq.outbox_discard('waiting', 'test'), 'a waiting message is not discarded');
SELECT ok(NOT acemq.outbox_discard('sent-old', 'test'), 'a published one neither');
SELECT ok(acemq.outbox_discard('r1', 'test'), 'a retired one is');
SELECT ok(acemq.outbox_discard('r2', 'test'), 'whoever made its id');
SELECT ok(NOT acemq.outbox_discard('r1', 'test'), 'and is gone');
SELECT throws_ok($$SELECT acemq.outbox_discard('r3', NULL)$$, '22004', 'argument "reason" must not be null', 'discard: null reason');
SELECT throws_ok($$SELECT acemq.outbox_discard('r3', ' ')$$, '22023', 'argument "reason" must not be empty', 'discard: empty reason');

-- purge
UPDATE acemq.outbox SET retired_at = clock_timestamp() WHERE message_id = 'r3';
SELECT is(acemq.outbox_purge('1 day'), 1::bigint, 'purge removes what was published long ago');
SELECT is(acemq.outbox_purge('0'), 1::bigint, 'or everything published');
SELECT set_eq('SELECT message_id FROM acemq.outbox', ARRAY['waiting', 'r3', 'r4'], 'never what waits or is retired');
SELECT throws_ok($$SELECT acemq.outbox_purge('-1 s')$$, '22023', 'argument "older_than" is out of range', 'purge: negative');
INSERT INTO acemq.outbox (exchange, routing_key, body, published_at)
SELECT 'a', 'k', 'x', clock_timestamp() - interval '1 day' FROM generate_series(1, 2500);
SELECT is(acemq.outbox_purge('1 hour'), 2500::bigint, 'purge over several batches');
UPDATE acemq.outbox SET retired_at = NULL;
INSERT INTO acemq.outbox (exchange, routing_key, body, attempts, retired_at)
SELECT 'a', 'k', 'x', 10, clock_timestamp() FROM generate_series(1, 2500);
SELECT is(acemq.outbox_release_all('a'), 2500::bigint, 'release_all over several batches');

SELECT * FROM finish();
ROLLBACK;
