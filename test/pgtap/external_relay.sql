-- The protocol of a relay outside the server: lanes, leases, outcomes.
BEGIN;
SELECT plan(53);

SELECT throws_ok('SELECT * FROM acemq.outbox_claim(0)', '22023', 'argument "batch" is out of range', 'batch 0');
SELECT throws_ok('SELECT * FROM acemq.outbox_claim(10001)', '22023', 'argument "batch" is out of range', 'batch over the limit');
SELECT throws_ok('SELECT * FROM acemq.outbox_claim(NULL)', '22004', 'argument "batch" must not be null', 'batch null');
SELECT throws_ok($$SELECT * FROM acemq.outbox_claim(lease => '0')$$, '22023', 'argument "lease" is out of range', 'lease 0');
SELECT throws_ok($$SELECT * FROM acemq.outbox_claim(relay => '')$$, '22023', 'argument "relay" must not be empty', 'empty name');
SELECT acemq.relay_pause();
SELECT is_empty('SELECT * FROM acemq.outbox_claim()', 'nothing to claim');

-- What a claimed row looks like.
SELECT acemq.outbox_add('orders', 'order.placed', '{"n": 1}', message_id => 'full', type => 'Order', version => 2,
                        correlation_id => 'c', causation_id => 'b', priority => 7, expiration => '90 s', reply_to => 'answers',
                        headers => '{"tenant": "x", "n": 3, "f": 1.5, "nothing": null}', persistent => false);
CREATE TEMP TABLE claimed AS SELECT * FROM acemq.outbox_claim(relay => 'r');
SELECT results_eq(
    'SELECT message_id, exchange, routing_key, content_type, convert_from(body, ''UTF8'') COLLATE "default", priority, expiration, reply_to, attempts, persistent FROM claimed',
    $$VALUES ('full', 'orders', 'order.placed', 'application/json', '{"n": 1}', 7, 90000::bigint, 'answers', 0, false)$$,
    'properties and body');
SELECT is((SELECT headers - 'x-acemq-origin' - 'x-acemq-first-seen' FROM claimed),
          '{"x-acemq-id": "full", "x-acemq-type": "Order", "x-acemq-version": 2, "x-acemq-correlation": "c", "x-acemq-causation": "b",
            "x-acemq-attempt": 1, "acemq-reply-to": "answers", "tenant": "x", "n": 3, "f": 1.5}'::jsonb,
          'all headers that go on the wire');
SELECT is((SELECT (headers ->> 'x-acemq-first-seen')::bigint FROM claimed),
          (SELECT floor(extract(epoch FROM created_at) * 1000)::bigint FROM acemq.outbox WHERE message_id = 'full'), 'first seen is the time of adding');
SELECT ok((SELECT leased_by = 'r' AND leased_until BETWEEN clock_timestamp() + interval '50 s' AND clock_timestamp() + interval '60 s'
           FROM acemq.outbox_pending WHERE message_id = 'full'), 'the lease is on record');

-- Outcomes.
SELECT id AS full_id FROM claimed \gset
SELECT is_empty('SELECT * FROM acemq.outbox_claim()', 'a leased row is not claimed again');
SELECT ok(NOT acemq.outbox_mark_published(:full_id, 'other'), 'finishing needs the lease');
SELECT ok(NOT acemq.outbox_mark_published(:full_id), 'the name of this session is another one');
SELECT ok(NOT acemq.outbox_mark_failed(:full_id, 'x', 'other'), 'so does failing');
SELECT ok(acemq.outbox_mark_published(:full_id, 'r'), 'the holder finishes');
SELECT ok(NOT acemq.outbox_mark_published(:full_id, 'r'), 'once');
SELECT is((SELECT count(*) FROM acemq.outbox), 0::bigint, 'the row is deleted');
SELECT throws_ok($$SELECT acemq.outbox_mark_published(NULL)$$, '22004', 'argument "id" must not be null', 'id null');
SELECT throws_ok($$SELECT acemq.outbox_mark_failed(1, NULL)$$, '22004', 'argument "reason" must not be null', 'reason null');

-- A name of this session, the same for every call.
SELECT acemq.outbox_add('e', 'k', '{}', message_id => 'kept');
SELECT id AS kept_id FROM acemq.outbox_claim() \gset
SELECT set_config('acemq.outbox_retention', '1h', true);
SELECT ok(acemq.outbox_mark_published(:kept_id), 'the session finishes its own');
SELECT ok((SELECT published_at IS NOT NULL AND leased_by IS NULL AND leased_until IS NULL FROM acemq.outbox WHERE id = :kept_id),
          'acemq.outbox_retention keeps the row');
SELECT ok(NOT acemq.outbox_mark_failed(:kept_id, 'late'), 'published is final');
SELECT is_empty('SELECT * FROM acemq.outbox_claim()', 'and is not claimed');
SELECT acemq.outbox_purge('0');

-- Attempts, back-off, retirement.
SELECT set_config('acemq.retry_delay', '10s', true), set_config('acemq.max_attempts', '2', true);
SELECT acemq.outbox_add('e', 'k', '{}', message_id => 'bad');
SELECT acemq.outbox_add('e', 'k', '{}', message_id => 'behind');
SELECT acemq.outbox_add('other', 'k', '{}', message_id => 'beside');
SELECT is((SELECT array_agg(message_id) FROM acemq.outbox_claim(2)), ARRAY['bad', 'behind'], 'oldest first, no more than asked for');
SELECT id AS bad_id FROM acemq.outbox WHERE message_id = 'bad' \gset
SELECT ok(acemq.outbox_mark_failed(:bad_id, repeat('é', 2000)), 'a failed attempt');
SELECT is((SELECT attempts FROM acemq.outbox WHERE id = :bad_id), 1, 'is counted');
SELECT is((SELECT last_error FROM acemq.outbox WHERE id = :bad_id), repeat('é', 511), 'its reason is cut at a character');
SELECT ok((SELECT next_attempt_at BETWEEN clock_timestamp() + interval '4 s' AND clock_timestamp() + interval '10 s' AND leased_by IS NULL
           FROM acemq.outbox WHERE id = :bad_id), 'it waits for the back-off');
UPDATE acemq.outbox SET leased_until = NULL, leased_by = NULL WHERE message_id = 'behind';
SELECT is((SELECT array_agg(message_id) FROM acemq.outbox_claim()), ARRAY['beside'], 'it holds its lane and no other');
UPDATE acemq.outbox SET next_attempt_at = clock_timestamp() - interval '1 ms' WHERE id = :bad_id;
SELECT is((SELECT array_agg(message_id) FROM acemq.outbox_claim(relay => 'r')), ARRAY['bad', 'behind'], 'after the back-off the lane goes on in order');
SELECT ok(acemq.outbox_mark_failed(:bad_id, 'again', 'r'), 'the last attempt');
SELECT ok((SELECT retired_at IS NOT NULL AND next_attempt_at IS NULL AND attempts = 2 FROM acemq.outbox WHERE id = :bad_id), 'retires it');
SELECT is((SELECT pg_catalog.count(*) FROM acemq.outbox_claim(relay => 'r')), 0::bigint, 'a retired row is not claimed');
SELECT ok(NOT acemq.outbox_mark_failed(:bad_id, 'x', 'r'), 'nor failed again');
SELECT acemq.outbox_release('bad');
SELECT is((SELECT array_agg(message_id) FROM acemq.outbox_claim(relay => 'r')), ARRAY['bad'], 'until it is released');
DELETE FROM acemq.outbox;

-- An ordering key has one row out at a time, whatever the exchange.
SELECT acemq.outbox_add('e', 'k', '{}', message_id => 'k1', ordering_key => 'key');
SELECT acemq.outbox_add('f', 'k', '{}', message_id => 'k2', ordering_key => 'key');
SELECT acemq.outbox_add('e', 'k', '{}', message_id => 'e1');
SELECT acemq.outbox_add('e', 'k', '{}', message_id => 'e2');
SELECT acemq.outbox_add('', 'q1', '{}', message_id => 'q1');
SELECT acemq.outbox_add('', 'q2', '{}', message_id => 'q2');
SELECT is((SELECT array_agg(message_id) FROM acemq.outbox_claim(relay => 'r')), ARRAY['k1', 'e1', 'e2', 'q1', 'q2'], 'strict key, pipelined exchanges');
SELECT acemq.outbox_mark_published(id, 'r') FROM acemq.outbox WHERE message_id = 'k1';
SELECT is((SELECT array_agg(message_id) FROM acemq.outbox_claim(relay => 'r')), ARRAY['k2'], 'then the next one of the key');
SELECT acemq.outbox_mark_failed(id, 'no queue', 'r') FROM acemq.outbox WHERE message_id = 'q1';
SELECT acemq.outbox_add('', 'q1', '{}', message_id => 'q1b');
SELECT acemq.outbox_add('', 'q2', '{}', message_id => 'q2b');
SELECT is((SELECT array_agg(message_id) FROM acemq.outbox_claim(relay => 'r')), ARRAY['q2b'], 'default exchange: q1 backs off, q2 goes on');
DELETE FROM acemq.outbox;

-- A relay may hold several batches of a lane; another one may not step in between.
SELECT acemq.outbox_add('e', 'k', '{}', message_id => 'a' || i) FROM generate_series(1, 4) i;
SELECT is((SELECT array_agg(message_id) FROM acemq.outbox_claim(2, relay => 'r')), ARRAY['a1', 'a2'], 'a batch of a lane');
SELECT is((SELECT array_agg(message_id) FROM acemq.outbox_claim(1, relay => 'other')), NULL, 'another relay waits');
SELECT is((SELECT array_agg(message_id) FROM acemq.outbox_claim(1, relay => 'r')), ARRAY['a3'], 'its holder goes on');
SELECT acemq.outbox_mark_failed(id, 'x', 'r') FROM acemq.outbox WHERE message_id = 'a2';
SELECT is((SELECT array_agg(message_id) FROM acemq.outbox_claim(1, relay => 'r')), NULL, 'until one has failed');
DELETE FROM acemq.outbox;

-- Due times.
SELECT acemq.outbox_add('e', 'k', '{}', message_id => 'later', not_before => clock_timestamp() + interval '1 hour');
SELECT acemq.outbox_add('e', 'k', '{}', message_id => 'due', not_before => clock_timestamp() + interval '1 hour');
SELECT acemq.outbox_add('e', 'k', '{}', message_id => 'before');
SELECT is((SELECT array_agg(message_id) FROM acemq.outbox_claim(relay => 'r')), ARRAY['before'], 'what is not due holds nobody');
UPDATE acemq.outbox SET leased_until = NULL, leased_by = NULL;
UPDATE acemq.outbox SET not_before = clock_timestamp() WHERE message_id = 'due';
SELECT acemq.outbox_add('e', 'k', '{}', message_id => 'after');
SELECT is((SELECT array_agg(message_id) FROM acemq.outbox_claim(relay => 'r')), ARRAY['before', 'due', 'after'], 'a due row goes where it would be if added then');
DELETE FROM acemq.outbox;

-- Leases end by time only.
SELECT acemq.outbox_add('e', 'k', '{}', message_id => 'lost');
SELECT id AS lost_id FROM acemq.outbox_claim(lease => '1 ms', relay => 'first') \gset
SELECT pg_sleep(0.01);
SELECT is((SELECT array_agg(message_id) FROM acemq.outbox_claim(relay => 'second')), ARRAY['lost'], 'a lease that ran out is free');
SELECT ok(NOT acemq.outbox_mark_published(:lost_id, 'first'), 'the first holder has lost it');
SELECT is((SELECT attempts FROM acemq.outbox WHERE id = :lost_id), 0, 'which cost no attempt');
SELECT ok(acemq.outbox_mark_published(:lost_id, 'second'), 'the second one finishes');

-- A row put in by hand whose headers cannot be written is a failed attempt of its own.
INSERT INTO acemq.outbox (message_id, exchange, routing_key, body, headers)
VALUES ('poison', 'p', 'k', 'x', '{"x-acemq-mine": 1}'), ('fine', 'q', 'k', 'x', NULL), ('held', 'p', 'k', 'x', NULL);
SELECT is((SELECT array_agg(message_id) FROM acemq.outbox_claim(relay => 'r')), ARRAY['fine'], 'one bad row does not end the claim, and holds its lane');
SELECT ok((SELECT attempts = 1 AND last_error LIKE '%x-acemq-mine%' AND leased_by IS NULL FROM acemq.outbox WHERE message_id = 'poison'), 'the bad row has failed');
SELECT ok((SELECT leased_by IS NULL FROM acemq.outbox WHERE message_id = 'held'), 'what is behind it is not leased');

-- Refusals.
SELECT acemq.relay_resume();
INSERT INTO acemq.identity (system_identifier, database) VALUES (1, 1);
SELECT throws_ok('SELECT * FROM acemq.outbox_claim()', '55000', NULL, 'not from a copy');
SELECT acemq.relay_resume();
SELECT throws_ok('SELECT * FROM acemq.outbox_claim()', '55000', 'the relay in the server serves this database', 'not beside the relay in the server');

SELECT * FROM finish();
ROLLBACK;
