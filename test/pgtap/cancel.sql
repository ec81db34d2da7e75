-- outbox_cancel by every way a row is found, and sweep's checks of its arguments.
BEGIN;
SELECT plan(22);

SELECT acemq.outbox_add('a', 'k', '{}', message_id => 'mine');
SELECT acemq.outbox_add('a', 'k', '{}') AS generated \gset
SELECT acemq.outbox_add('a', 'k', '{}', not_before => clock_timestamp() + interval '1 hour') AS later \gset
INSERT INTO acemq.outbox (message_id, exchange, routing_key, body, attempts, retired_at)
VALUES ('retired', 'a', 'k', 'x', 10, clock_timestamp());
INSERT INTO acemq.outbox (message_id, exchange, routing_key, body, attempts, next_attempt_at, last_error)
VALUES ('failed', 'a', 'k', 'x', 1, clock_timestamp() + interval '1 hour', 'no route');
INSERT INTO acemq.outbox (message_id, caller_id, exchange, routing_key, body, published_at)
VALUES ('sent', true, 'a', 'k', 'x', clock_timestamp());
INSERT INTO acemq.outbox (message_id, caller_id, exchange, routing_key, body, leased_until, leased_by)
VALUES ('leased', true, 'a', 'k', 'x', clock_timestamp() + interval '1 minute', 'other'),
       ('lost', true, 'a', 'k', 'x', clock_timestamp() - interval '1 minute', 'other');
INSERT INTO acemq.outbox (message_id, exchange, routing_key, body)
VALUES ('twice', 'a', 'k', 'x'), ('twice', 'b', 'k', 'x');

SELECT ok(acemq.outbox_cancel('mine'), 'an id of the caller');
SELECT ok(NOT acemq.outbox_cancel('mine'), 'cancelled once only');
SELECT ok(acemq.outbox_cancel(:'generated'), 'a generated id');
SELECT ok(acemq.outbox_cancel(:'later'), 'a message that is not due');
SELECT ok(acemq.outbox_cancel('retired'), 'a retired message');
SELECT ok(acemq.outbox_cancel('failed'), 'one that failed and waits for its next attempt');
SELECT ok(NOT acemq.outbox_cancel('sent'), 'not a published one');
SELECT ok(NOT acemq.outbox_cancel('leased'), 'not one that is leased');
SELECT ok(NOT acemq.outbox_cancel('lost'), 'nor one whose holder vanished: it may have been sent');
SELECT ok(NOT acemq.outbox_cancel('unknown'), 'unknown');
SELECT ok(NOT acemq.outbox_cancel(''), 'the empty id is unknown');
SELECT ok(acemq.outbox_cancel('twice'), 'all rows that share a generated id');
SELECT set_eq('SELECT message_id FROM acemq.outbox', ARRAY['sent', 'leased', 'lost'], 'what is left');
SELECT throws_ok('SELECT acemq.outbox_cancel(NULL)', '22004', 'argument "message_id" must not be null', 'null');

-- A refusal ends its own subtransaction and nothing else.
SAVEPOINT before;
SELECT acemq.outbox_add('a', 'k', '{}', message_id => 'again');
SELECT ok(acemq.outbox_cancel('again'), 'a row of this subtransaction');
ROLLBACK TO before;
SELECT acemq.outbox_add('a', 'k', '{}', message_id => 'back');
SAVEPOINT before;
SELECT acemq.outbox_cancel('back');
ROLLBACK TO before;
SELECT is((SELECT count(*) FROM acemq.outbox WHERE message_id = 'back'), 1::bigint, 'a rollback takes the cancel back');

-- Same id, given again after a cancel: a new message.
SELECT acemq.outbox_cancel('back');
SELECT acemq.outbox_add('a', 'k', '{"new": 1}', message_id => 'back');
SELECT is((SELECT convert_from(body, 'UTF8') FROM acemq.outbox WHERE message_id = 'back'), '{"new": 1}', 'the id is free again');

SELECT throws_ok($$SET LOCAL transaction_read_only = on; SELECT acemq.outbox_cancel('back')$$, '25006', NULL, 'not in a read-only transaction');

SELECT throws_ok('SELECT acemq.outbox_sweep(NULL)', '22004', 'argument "timeout" must not be null', 'sweep: null');
SELECT throws_ok($$SELECT acemq.outbox_sweep('-1 ms')$$, '22023', 'argument "timeout" is out of range', 'sweep: negative');
SELECT throws_ok($$SELECT acemq.outbox_sweep('110 years')$$, '22023', 'argument "timeout" is out of range', 'sweep: too long');
SELECT throws_ok($$SELECT acemq.outbox_sweep('1 s')$$, 'AQ003', 'no relay is running for this database',
                 'sweep: this server has no broker URL');

SELECT * FROM finish();
ROLLBACK;
