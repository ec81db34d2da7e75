-- schedule_at, schedule_in: when, which way, defaults, and what they refuse.
BEGIN;
SELECT no_plan();
SET LOCAL timezone = 'UTC';

CREATE TEMP VIEW rows AS
SELECT message_id, exchange, routing_key, convert_from(body, 'UTF8') AS body, content_type, type, headers, correlation_id,
       causation_id, version, priority, expiration, reply_to, persistent, ordering_key, not_before, ladder_due_at
FROM acemq.outbox;

-- When.
SELECT acemq.schedule_at('2027-01-01 09:00 Europe/Berlin', 'mail', 'greeting', '{"order": 1}') AS at \gset
SELECT is((SELECT ARRAY[not_before, ladder_due_at] FROM rows WHERE message_id = :'at'),
          ARRAY['2027-01-01 08:00+00', NULL]::timestamptz[], 'schedule_at: the row waits until then');
SELECT acemq.schedule_in('90 s', 'mail', 'greeting', '{}') AS "in" \gset
SELECT ok((SELECT not_before BETWEEN clock_timestamp() + '80 s' AND clock_timestamp() + '90 s' FROM rows WHERE message_id = :'in'),
          'schedule_in: counted from now');
SELECT pg_sleep(0.02);
SELECT acemq.schedule_in('0', 'mail', 'greeting', '{}') AS now \gset
SELECT ok((SELECT not_before >= now() + '20 ms' FROM rows WHERE message_id = :'now'),
          'from the call, not from the beginning of the transaction');
SELECT acemq.schedule_at('2020-01-01', 'mail', 'greeting', '{}') AS past \gset
SELECT acemq.schedule_in('-1 h', 'mail', 'greeting', '{}') AS before \gset
SELECT ok((SELECT bool_and(not_before < now()) FROM rows WHERE message_id IN (:'past', :'before')), 'a time that is past is legal');
SELECT acemq.schedule_at('2027-01-01', 'mail', 'greeting', '{}', via => 'outbox') AS named \gset
SELECT is((SELECT not_before FROM rows WHERE message_id = :'named'), '2027-01-01 00:00+00', 'the default way has a name');
SELECT acemq.schedule_at('2027-01-01', 'mail', 'greeting', '{}', via => NULL) AS named \gset
SELECT is((SELECT not_before FROM rows WHERE message_id = :'named'), '2027-01-01 00:00+00', 'NULL is the default');

-- Months and days are calendar steps in the zone of the session, across every change of its clocks.
CREATE TEMP TABLE steps (zone text, delay interval);
INSERT INTO steps SELECT z, d::interval
FROM unnest(ARRAY['Europe/Berlin', 'America/New_York', 'UTC', 'Asia/Kathmandu', 'Australia/Lord_Howe']) z,
     unnest(ARRAY['1 month', '6 months', '1 day', '24 hours', '200 days', '1 year 3 months 2 days 1 hour', '-3 months', '0']) d;
CREATE FUNCTION pg_temp.step_is_calendar(zone text, delay interval) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    before timestamptz;
    after timestamptz;
    found timestamptz;
    added text;
BEGIN
    PERFORM set_config('timezone', zone, true);
    before := clock_timestamp();
    added := acemq.schedule_in(delay, 'e', 'k', '{}');
    after := clock_timestamp();
    SELECT not_before INTO found FROM acemq.outbox WHERE message_id = added;
    RETURN found BETWEEN before + delay AND after + delay;
END $$;
SELECT ok(pg_temp.step_is_calendar(zone, delay), format('%s in %s', delay, zone)) FROM steps;

-- The same from one moment before a change: what the relay is given is what the calendar says.
SET LOCAL timezone = 'Europe/Berlin';
SELECT acemq.schedule_at(timestamptz '2027-03-27 12:00' + interval '1 day', 'e', 'k', '{}') AS day,
       acemq.schedule_at(timestamptz '2027-03-27 12:00' + interval '24 hours', 'e', 'k', '{}') AS hours \gset
SELECT is((SELECT not_before::text FROM rows WHERE message_id = :'day'), '2027-03-28 12:00:00+02', '1 day is the same hour tomorrow');
SELECT is((SELECT not_before::text FROM rows WHERE message_id = :'hours'), '2027-03-28 13:00:00+02', '24 hours are an hour later');
SET LOCAL timezone = 'UTC';

-- Every kind of payload, both ways, and every option.
SELECT acemq.schedule_at('2027-01-01', 'kinds', 'k', '{"b": 1,  "a": 2}'),
       acemq.schedule_at('2027-01-01', 'kinds', 'k', '{"b": 1,  "a": 2}'::json),
       acemq.schedule_at('2027-01-01', 'kinds', 'k', '{"b": 1,  "a": 2}'::jsonb),
       acemq.schedule_at('2027-01-01', 'kinds', 'k', 'bytes'::bytea),
       acemq.schedule_in('1 h', 'kinds', 'k', '{"b": 1,  "a": 3}'),
       acemq.schedule_in('1 h', 'kinds', 'k', '{"b": 1,  "a": 3}'::json),
       acemq.schedule_in('1 h', 'kinds', 'k', '{"b": 1,  "a": 3}'::jsonb),
       acemq.schedule_in('1 h', 'kinds', 'k', 'more'::bytea);
SELECT set_eq($$SELECT body, content_type FROM rows WHERE exchange = 'kinds'$$, $$VALUES
    ('{"b": 1,  "a": 2}', 'application/json'), ('{"a": 2, "b": 1}', 'application/json'), ('bytes', 'application/octet-stream'),
    ('{"b": 1,  "a": 3}', 'application/json'), ('{"a": 3, "b": 1}', 'application/json'), ('more', 'application/octet-stream')$$,
    'payloads are those of outbox_add');
SELECT acemq.schedule_at('2027-01-01', 'mail', 'greeting', 'hello', type => 'mail.greeting', headers => '{"x-tenant": "acme"}',
    message_id => 'all', correlation_id => 'c', causation_id => 'd', version => 3, content_type => 'text/plain', priority => 4,
    expiration => '90 s', reply_to => 'answers', persistent => false, ordering_key => 'o');
SELECT is((SELECT to_jsonb(r) FROM rows r WHERE message_id = 'all'), jsonb_build_object(
    'message_id', 'all', 'exchange', 'mail', 'routing_key', 'greeting', 'body', 'hello', 'content_type', 'text/plain',
    'type', 'mail.greeting', 'headers', '{"x-tenant": "acme"}'::jsonb, 'correlation_id', 'c', 'causation_id', 'd', 'version', 3,
    'priority', 4, 'expiration', 90000, 'reply_to', 'answers', 'persistent', false, 'ordering_key', 'o',
    'not_before', '2027-01-01T00:00:00+00:00', 'ladder_due_at', NULL), 'every option, in the table');
SELECT is((SELECT type FROM rows WHERE message_id = :'at'), NULL, 'in the table the type is the routing key');
SELECT is(acemq.schedule_at('2028-01-01', 'mail', 'greeting', '{}', message_id => 'all'), 'all', 'the same id again');
SELECT is((SELECT count(*) FROM rows WHERE message_id = 'all'), 1::bigint, 'adds nothing');
SELECT lives_ok($$SELECT acemq.schedule_in('1 h', 'mail', 'k', '{}', headers => '{"x-schedule-due-at": 1}')$$,
                'in the table a header may be called what it likes');

-- The ladder.
SELECT acemq.schedule_at('2027-01-01', 'mail', 'greeting', '{}', via => 'ladder') AS ladder \gset
SELECT is((SELECT to_jsonb(r) - 'message_id' FROM rows r WHERE message_id = :'ladder'), jsonb_build_object(
    'exchange', 'mail', 'routing_key', 'greeting', 'body', '{}', 'content_type', 'application/json',
    'type', 'ScheduledMessage', 'headers', NULL, 'correlation_id', NULL, 'causation_id', NULL, 'version', 1,
    'priority', NULL, 'expiration', NULL, 'reply_to', NULL, 'persistent', true, 'ordering_key', NULL,
    'not_before', NULL, 'ladder_due_at', '2027-01-01T00:00:00+00:00'), 'the row names its target, and its type is the ladder''s');
SELECT acemq.schedule_in('-1 h', 'mail', 'greeting', '{}', message_id => 'with id', via => 'ladder', type => '') AS given \gset
SELECT ok((SELECT ladder_due_at < now() AND type = 'ScheduledMessage' FROM rows WHERE message_id = 'with id'), 'an id of the caller''s');
SELECT acemq.schedule_in('1 h', 'mail', 'greeting', '{}', message_id => 'typed', via => 'ladder', type => 'mine',
                         priority => 3, reply_to => 'answers', ordering_key => 'o', headers => '{"x-sched": 1}');
SELECT is((SELECT to_jsonb(r) FROM rows r WHERE message_id = 'typed') ->> 'type', 'mine', 'a type that is given');
SELECT acemq.schedule_in('1 h', 'mail', 'greeting', '{}', message_id => 'key', via => 'ladder', type => 'greeting');
SELECT is((SELECT type FROM rows WHERE message_id = 'key'), NULL, 'also if it is the routing key');
SELECT is((SELECT count(*) FROM acemq.outbox_pending WHERE ladder_due_at IS NOT NULL), 4::bigint, 'the view shows which they are');
SELECT ok(acemq.outbox_cancel(:'ladder') AND acemq.outbox_cancel('with id') AND acemq.outbox_cancel(:'at') AND acemq.outbox_cancel('all'),
          'both can be cancelled');
SELECT is((SELECT count(*) FROM rows WHERE message_id IN (:'ladder', 'with id', :'at', 'all')), 0::bigint, 'and are gone');

-- What a relay outside the server gets is what goes on the wire.
SELECT acemq.outbox_cancel('typed');
SELECT acemq.schedule_in('-1 h', '', 'queue', '{}', message_id => 'overdue', via => 'ladder');
SELECT acemq.schedule_in('90 s', '', 'queue', 'x', message_id => 'rung', via => 'ladder', content_type => 'text/x');
SELECT acemq.relay_pause();
CREATE TEMP TABLE claimed AS SELECT * FROM acemq.outbox_claim(1000);
SELECT is((SELECT ARRAY[exchange, routing_key, content_type] FROM claimed WHERE message_id = 'rung'),
          ARRAY['acemq.schedule', 'acemq.schedule.1m', 'application/octet-stream'], 'outbox_claim: a rung');
SELECT is((SELECT jsonb_path_query_array(headers, '$.keyvalue() ? (@.key starts with "x-schedule-").key') FROM claimed WHERE message_id = 'rung'),
          '["x-schedule-due-at", "x-schedule-exchange", "x-schedule-routing-key", "x-schedule-content-type"]', 'its headers');
SELECT is((SELECT ARRAY[headers ->> 'x-schedule-exchange', headers ->> 'x-schedule-routing-key', headers ->> 'x-schedule-content-type'] FROM claimed WHERE message_id = 'rung'),
          ARRAY['', 'queue', 'text/x'], 'which say where to');
SELECT is((SELECT (headers ->> 'x-schedule-due-at')::bigint FROM claimed WHERE message_id = 'rung'),
          (SELECT floor(extract(epoch FROM ladder_due_at) * 1000)::bigint FROM rows WHERE message_id = 'rung'), 'and when');
SELECT is((SELECT ARRAY[exchange, routing_key, content_type] FROM claimed WHERE message_id = 'overdue'),
          ARRAY['', 'queue', 'application/json'], 'outbox_claim: straight to the target when due');
SELECT is((SELECT headers ? 'x-schedule-due-at' FROM claimed WHERE message_id = 'overdue'), false, 'without those headers');

-- What is refused.
CREATE FUNCTION pg_temp.refusal(call text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    hint text;
BEGIN
    EXECUTE 'SELECT acemq.' || call;
    RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
    RETURN SQLSTATE || ' ' || SQLERRM || CASE WHEN hint = '' THEN ' (no hint)' ELSE '' END;
END $$;
SELECT is(pg_temp.refusal(call), expected, call) FROM (VALUES
    ($$schedule_at(NULL, 'e', 'k', '{}')$$, '22004 argument "due" must not be null'),
    ($$schedule_in(NULL, 'e', 'k', '{}')$$, '22004 argument "delay" must not be null'),
    ($$schedule_at('infinity', 'e', 'k', '{}')$$, '22008 argument "due" is out of range'),
    ($$schedule_at('-infinity', 'e', 'k', '{}', via => 'ladder')$$, '22008 argument "due" is out of range'),
    ($$schedule_at(now() + interval '101 years', 'e', 'k', '{}')$$, '22008 argument "due" is out of range'),
    ($$schedule_at(now() - interval '101 years', 'e', 'k', '{}')$$, '22008 argument "due" is out of range'),
    ($$schedule_at(now() + interval '99 years', 'e', 'k', '{}')$$, 'accepted'),
    ($$schedule_in('101 years', 'e', 'k', '{}')$$, '22008 argument "delay" is out of range'),
    ($$schedule_in('-101 years', 'e', 'k', '{}', via => 'ladder')$$, '22008 argument "delay" is out of range'),
    ($$schedule_in('178000000 years', 'e', 'k', '{}')$$, '22008 argument "delay" is out of range'),
    ($$schedule_in('-2000000000 days', 'e', 'k', '{}')$$, '22008 argument "delay" is out of range'),
    ($$schedule_in('2000000000 hours', 'e', 'k', '{}')$$, '22008 argument "delay" is out of range'),
    ($$schedule_in('99 years', 'e', 'k', '{}')$$, 'accepted'),
    ($$schedule_in('1 h', 'e', 'k', '{}', via => 'Ladder')$$, '22023 argument "via" cannot be "Ladder"'),
    ($$schedule_in('1 h', 'e', 'k', '{}', via => '')$$, '22023 argument "via" cannot be ""'),
    ($$schedule_in('1 h', 'e', 'k', '{}', via => 'ladder', expiration => '2 h')$$,
     '22023 argument "expiration" cannot be given together with via => ''ladder'''),
    ($$schedule_in('1 h', 'e', 'k', '{}', via => 'ladder', persistent => false)$$,
     '22023 argument "persistent" cannot be false together with via => ''ladder'''),
    ($$schedule_in('1 h', 'e', 'k', '{}', via => 'ladder', headers => '{"x-schedule-due-at": 1}')$$,
     '42939 argument "headers" has a header that starts with "x-schedule-"'),
    ($$schedule_in('1 h', 'e', 'k', '{}', via => 'ladder', headers => '{"x-schedule-": null}')$$, 'accepted'),
    ($$schedule_in('1 h', 'e', 'k', '{}', via => 'ladder', headers => '{"inner": {"x-schedule-due-at": 1}}')$$, 'accepted'),
    ($$schedule_in('1 h', 'e', 'k', '{}', via => 'ladder', headers => '{"x-acemq-id": 1}')$$,
     '42939 argument "headers" has the reserved header "x-acemq-id"'),
    ($$schedule_in('1 h', '', '', '{}', via => 'ladder')$$, '22023 arguments "exchange" and "routing_key" must not both be empty'),
    ($$schedule_in('1 h', NULL, 'k', '{}')$$, '22004 argument "exchange" must not be null'),
    ($$schedule_in('1 h', 'e', 'k', NULL::text)$$, '22004 argument "payload" must not be null'),
    ($$schedule_in('1 h', 'e', 'k', 'no json')$$, '22P02 argument "payload" is not well-formed JSON'),
    ($$schedule_in('1 h', 'e', 'k', '{}', version => 0)$$, '22023 argument "version" must be at least 1, not 0')) v (call, expected);

-- Headers of the ladder count: what fits without them is over the limit with them.
SELECT throws_ok(format($$SELECT acemq.schedule_in('1 h', 'e', 'k', '{}', headers => jsonb_build_object('h', repeat('x', %s)), via => 'ladder')$$,
                        fits), '54000', NULL, 'headers over the limit')
FROM (SELECT max(n) AS fits FROM generate_series(65000, 65536) n
      WHERE pg_temp.refusal(format($$schedule_in('1 h', 'e', 'k', '{}', headers => jsonb_build_object('h', repeat('x', %s)))$$, n)) = 'accepted') f;

SELECT throws_ok($$SET LOCAL transaction_read_only = on; SELECT acemq.schedule_in('1 h', 'e', 'k', '{}')$$, '25006',
                 'cannot execute acemq.schedule_in() in a read-only transaction', 'not in a read-only transaction');

SELECT * FROM finish();
ROLLBACK;
