-- acemq.metrics: what is there, and that it costs no look at a table.
BEGIN;
SELECT no_plan();

-- The worker has taken its place in shared memory soon after CREATE EXTENSION.
DO $$
BEGIN
    FOR i IN 1..1000 LOOP
        EXIT WHEN EXISTS (SELECT FROM acemq.metrics WHERE name = 'acemq.outbox.pending');
        PERFORM pg_sleep(0.02);
    END LOOP;
END
$$;

SELECT is_empty($$SELECT n FROM unnest(ARRAY['acemq.outbox.added.total', 'acemq.outbox.returned.total', 'acemq.outbox.nacked.total',
                      'acemq.outbox.resent.total', 'acemq.outbox.overtaken.total', 'acemq.outbox.purged.total', 'acemq.outbox.pending',
                      'acemq.outbox.pending.approximate', 'acemq.outbox.retired', 'acemq.outbox.in.flight', 'acemq.outbox.oldest.age',
                      'acemq.outbox.held.age', 'acemq.relay.connected', 'acemq.relay.reconnects.total',
                      'acemq.relay.blocked.seconds.total', 'acemq.relay.skipped.turns.total', 'acemq.schedule.scheduled.total',
                      'acemq.schedule.delivered.total', 'acemq.schedule.hops.total', 'acemq.schedule.malformed.total',
                      'acemq.schedule.ladder.problems', 'acemq.idempotency.purged.total']) n
                  WHERE (SELECT count(*) FROM acemq.metrics WHERE name = n AND labels = '{}') <> 1$$,
                'each number is there once');
SELECT is_empty('SELECT * FROM acemq.metrics WHERE value IS NULL OR labels IS NULL OR value < 0', 'and none is null or below zero');
SELECT is((SELECT labels->>'state' FROM acemq.metrics WHERE name = 'acemq.relay.in.state' AND value = 1),
          (SELECT state FROM acemq.status), 'the state is that of status');
SELECT is((SELECT labels->>'state' FROM acemq.metrics WHERE name = 'acemq.scheduler.in.state' AND value = 1),
          (SELECT scheduler FROM acemq.status), 'that of the scheduler too');
SELECT is((SELECT value FROM acemq.metrics WHERE name = 'acemq.relay.connected'), 0::double precision,
          'without a URL it is not connected');

-- Constant cost: no table of ours is opened (which would leave its lock until the end of the transaction).
SELECT is_empty($$SELECT l.relation::regclass FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
                  WHERE l.pid = pg_backend_pid() AND c.relnamespace = 'acemq'::regnamespace AND c.relkind <> 'v'$$,
                'no table, index or sequence is opened');

SELECT * FROM finish();
ROLLBACK;
