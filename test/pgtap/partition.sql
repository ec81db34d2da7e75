-- partition() and partitioned_routing_key(): vectors, and what they refuse.
BEGIN;
SELECT no_plan();

-- The vectors of the protocol; those with an odd number of partitions are of the unsigned hash.
CREATE TEMP TABLE vectors (key text, p2 int, p4 int, p8 int, p16 int, p3 int, p10 int);
INSERT INTO vectors VALUES
    ('', 1, 1, 5, 5, 1, 1),
    ('a', 0, 0, 4, 12, 1, 0),
    ('foobar', 0, 0, 0, 8, 1, 0),
    ('order-1', 1, 1, 5, 13, 1, 9),
    ('order-42', 0, 0, 4, 4, 2, 2),
    ('A-1', 0, 2, 6, 6, 1, 4),
    ('A-2', 1, 3, 3, 3, 2, 5),
    ('customer-7', 1, 1, 1, 1, 0, 5),
    ('11111111-2222-3333-4444-555555555555', 1, 1, 1, 9, 1, 9),
    ('acct:0001', 1, 3, 3, 3, 0, 3),
    ('tenant/acme', 0, 0, 0, 0, 0, 6),
    ('ñandú', 1, 3, 3, 11, 1, 1),
    ('日本', 1, 1, 1, 1, 0, 1),
    ('order-1001', 0, 0, 4, 12, 1, 2),
    ('hello world', 1, 3, 7, 7, 0, 7);
SELECT is(ARRAY[acemq.partition(key, 2), acemq.partition(key, 4), acemq.partition(key, 8), acemq.partition(key, 16),
                acemq.partition(key, 3), acemq.partition(key, 10)],
          ARRAY[p2, p4, p8, p16, p3, p10], format('"%s"', key)) FROM vectors;

-- More of them, computed by another program.
CREATE TEMP TABLE others (key text, p1 int, p3 int, p5 int, p7 int, p100 int, p1000 int, most int);
INSERT INTO others VALUES
    ('', 0, 1, 1, 2, 61, 261, 18652614),
    ('a', 0, 1, 0, 5, 20, 220, 1678518573),
    ('foobar', 0, 1, 0, 0, 20, 720, 1067252073),
    ('ÄÖÜ', 0, 2, 0, 1, 40, 40, 1774858393),
    ('Straße 1', 0, 2, 4, 0, 19, 219, 1446356219),
    ('😀', 0, 2, 1, 3, 56, 256, 866293256),
    (E'tab\tnew\nline', 0, 0, 3, 4, 73, 773, 40310126),
    (repeat('x', 10000), 0, 1, 2, 1, 57, 157, 1991985157),
    (repeat('日', 3000), 0, 0, 3, 5, 33, 133, 1804172486),
    (' ', 0, 1, 4, 4, 59, 159, 621580159),
    ('2147483647', 0, 1, 1, 2, 41, 841, 500604841);
SELECT is(ARRAY[acemq.partition(key, 1), acemq.partition(key, 3), acemq.partition(key, 5), acemq.partition(key, 7),
                acemq.partition(key, 100), acemq.partition(key, 1000), acemq.partition(key, 2147483647)],
          ARRAY[p1, p3, p5, p7, p100, p1000, most], format('other numbers, "%s"', translate(left(key, 20), E'\t\n', '  '))) FROM others;

-- Every partition is used, and none that does not exist.
SELECT results_eq($$SELECT acemq.partition('key ' || i, 7) AS p FROM generate_series(1, 1000) i GROUP BY p ORDER BY p$$,
                  'SELECT generate_series(0, 6)', 'all seven, and no other');
SELECT is(acemq.partition(repeat('key', 100000), 8), acemq.partition((SELECT repeat('key', 100000)), 8), 'a long key');
CREATE TEMP TABLE stored (key text);
INSERT INTO stored SELECT string_agg(md5(i::text), '') FROM generate_series(1, 2000) i;
SELECT is((SELECT acemq.partition(key, 1024) FROM stored),
          (SELECT acemq.partition(string_agg(md5(i::text), ''), 1024) FROM generate_series(1, 2000) i), 'a key out of line');

SELECT is(acemq.partitioned_routing_key('orders', 'A-2', 4), 'orders.3', 'a routing key');
SELECT is(acemq.partitioned_routing_key('orders', 'A-2', 1), 'orders.0', 'one partition has a number too');
SELECT is(acemq.partitioned_routing_key('', '', 4), '.1', 'an empty base and an empty key');
SELECT is(acemq.partitioned_routing_key('größe.%d', 'foobar', 16), 'größe.%d.8', 'the base is kept as it is');
SELECT is(acemq.partitioned_routing_key('k', 'a', 2147483647), 'k.' || acemq.partition('a', 2147483647), 'the most partitions');

SELECT throws_ok(format('SELECT acemq.partition(%L, %s)', 'a', n), '22023', format('argument "partitions" must be at least 1, not %s', n),
                 n || ' partitions')
FROM unnest(ARRAY[0, -1, -2147483647 - 1]) n;
SELECT throws_ok($$SELECT acemq.partitioned_routing_key('k', 'a', 0)$$, '22023', 'argument "partitions" must be at least 1, not 0',
                 'a routing key of no partitions');
SELECT is(acemq.partition(NULL, 4), NULL, 'null key');
SELECT is(acemq.partition('a', NULL), NULL, 'null number');
SELECT is(acemq.partitioned_routing_key(NULL, 'a', 4), NULL, 'null base');
SELECT is(acemq.partitioned_routing_key('k', NULL, 4), NULL, 'null key of a routing key');
SELECT is(acemq.partitioned_routing_key('k', 'a', NULL), NULL, 'null number of a routing key');

-- Fit for an index or a generated column, and for parallel plans.
SELECT set_eq($$SELECT proname::text, provolatile::text, proisstrict, proparallel::text FROM pg_proc
                    WHERE pronamespace = 'acemq'::regnamespace AND proname LIKE 'partition%'$$,
                  $$VALUES ('partition', 'i', true, 's'), ('partitioned_routing_key', 'i', true, 's')$$, 'pure functions');
SELECT lives_ok('CREATE TEMP TABLE generated (key text, p int GENERATED ALWAYS AS (acemq.partition(key, 8)) STORED)',
                'a generated column');

SELECT * FROM finish();
ROLLBACK;
