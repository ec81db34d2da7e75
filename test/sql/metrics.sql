-- The view acemq.metrics.  Needs no preloaded library: what is said without one is said with one too.
SELECT attname, format_type(atttypid, atttypmod), col_description(attrelid, attnum) IS NOT NULL AS documented
FROM pg_attribute WHERE attrelid = 'acemq.metrics'::regclass ORDER BY attnum;
SELECT name, labels FROM acemq.metrics
WHERE name IN ('acemq.relay.in.state', 'acemq.scheduler.in.state')
ORDER BY name, labels->>'state';
SELECT name, sum(value) FROM acemq.metrics WHERE name LIKE '%.state' GROUP BY name ORDER BY name;
SELECT count(*) AS bad_names FROM acemq.metrics WHERE name !~ '^acemq(\.[a-z0-9]+)+$';
SELECT count(*) AS repeated FROM (SELECT FROM acemq.metrics GROUP BY name, labels HAVING count(*) > 1) twice;
-- Nothing is read but shared memory.
EXPLAIN (COSTS OFF) SELECT * FROM acemq.metrics;
