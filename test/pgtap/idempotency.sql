-- The idempotency store: claims, confirmations, leases, owners.
BEGIN;
SELECT plan(117);

-- Arguments.
SELECT throws_ok('SELECT acemq.idempotency_claim(NULL)', '22004', 'argument "key" must not be null', 'claim: key null');
SELECT throws_ok('SELECT acemq.idempotency_first_time(NULL)', '22004', 'argument "key" must not be null', 'first_time: key null');
SELECT throws_ok('SELECT acemq.idempotency_confirm(NULL)', '22004', 'argument "key" must not be null', 'confirm: key null');
SELECT throws_ok('SELECT acemq.idempotency_forget(NULL)', '22004', 'argument "key" must not be null', 'forget: key null');
SELECT throws_ok('SELECT acemq.idempotency_confirmed(NULL)', '22004', 'argument "key" must not be null', 'confirmed: key null');
SELECT throws_ok(format('SELECT acemq.idempotency_%s($$$$)', f), '22023', 'argument "key" must not be empty', f || ': key empty')
FROM unnest(ARRAY['claim', 'first_time', 'confirm', 'forget', 'confirmed']) f;
SELECT throws_ok(format('SELECT acemq.idempotency_%s(repeat($$k$$, 256))', f), '22001', 'argument "key" is too long', f || ': key too long')
FROM unnest(ARRAY['claim', 'first_time', 'confirm', 'forget', 'confirmed']) f;
SELECT throws_ok(format('SELECT acemq.idempotency_%s($$k$$, owner => $$$$)', f), '22023', 'argument "owner" must not be empty', f || ': owner empty')
FROM unnest(ARRAY['claim', 'first_time', 'confirm', 'forget']) f;
SELECT throws_ok(format('SELECT acemq.idempotency_%s($$k$$, owner => repeat($$o$$, 65))', f), '22001', 'argument "owner" is too long', f || ': owner too long')
FROM unnest(ARRAY['claim', 'first_time', 'confirm', 'forget']) f;
SELECT throws_ok(format('SELECT acemq.idempotency_%s($$k$$, %L)', f, span), '22023', NULL, f || ': span of ' || span)
FROM unnest(ARRAY['claim', 'first_time', 'confirm']) f, unnest(ARRAY['0', '-1 s', '0.9 ms', '200 years']) span;
SELECT throws_ok($$SELECT acemq.idempotency_claim('k', '0')$$, '22023', 'argument "lease" is out of range', 'lease is named');
SELECT throws_ok($$SELECT acemq.idempotency_confirm('k', '0')$$, '22023', 'argument "retention" is out of range', 'retention is named');
SELECT is_empty('SELECT * FROM acemq.idempotency', 'what was refused has left nothing');

-- 255 characters are not 255 bytes, and no two keys are the same but for their bytes.
SELECT is(acemq.idempotency_claim(repeat('é', 255)), 'claimed', '255 characters of two bytes');
SELECT is(acemq.idempotency_claim(repeat('é', 255)), 'in_progress', 'and found again');
SELECT is(acemq.idempotency_claim('k', owner => repeat('é', 64)), 'claimed', 'an owner of 64 characters of two bytes');
SELECT is((SELECT claimed_by::text FROM acemq.idempotency WHERE message_id = 'k'), repeat('é', 64), 'as it was given');
SELECT is(acemq.idempotency_claim('K'), 'claimed', 'case counts');
SELECT is(acemq.idempotency_claim('k '), 'claimed', 'so does a trailing blank');
SELECT is(acemq.idempotency_claim(E'e\u0301'), 'claimed', 'e and an accent');
SELECT is(acemq.idempotency_claim(E'\u00e9'), 'claimed', 'are not an accented e');
SELECT is(acemq.idempotency_claim($$'; DROP TABLE acemq.idempotency; --$$), 'claimed', 'quotes are nothing special');
DELETE FROM acemq.idempotency;

-- A claim.
SELECT is(acemq.idempotency_claim('a'), 'claimed', 'a new key');
SELECT is(acemq.idempotency_claim('a'), 'in_progress', 'the same owner again');
SELECT is(acemq.idempotency_claim('a', owner => 'other'), 'in_progress', 'another owner');
SELECT ok((SELECT state = 'CLAIMED' AND claimed_by ~ '^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$'
           FROM acemq.idempotency WHERE message_id = 'a'), 'is owned by a UUID of the session');
SELECT ok((SELECT recorded_at BETWEEN clock_timestamp() - interval '10 s' AND clock_timestamp()
                  AND expires_at = recorded_at + interval '5 min' FROM acemq.idempotency WHERE message_id = 'a'), 'for acemq.idempotency_lease, from now');
SELECT ok(NOT acemq.idempotency_confirmed('a'), 'is no confirmation');
SELECT ok(NOT acemq.idempotency_first_time('a'), 'first_time: somebody is at it');
SELECT ok(acemq.idempotency_first_time('b', '10 s', 'me'), 'first_time: a new key');
SELECT is((SELECT claimed_by || ' ' || (expires_at - recorded_at)::text FROM acemq.idempotency WHERE message_id = 'b'), 'me 00:00:10', 'with its lease and owner');
SELECT acemq.idempotency_claim('c');
SELECT is((SELECT count(DISTINCT claimed_by) FROM acemq.idempotency WHERE message_id IN ('a', 'c')), 1::bigint, 'the session is one owner');
SET LOCAL acemq.owner = 'set';
SET LOCAL acemq.idempotency_lease = '1500 ms';
SELECT acemq.idempotency_claim('d');
SELECT is((SELECT claimed_by || ' ' || (expires_at - recorded_at)::text FROM acemq.idempotency WHERE message_id = 'd'), 'set 00:00:01.5', 'settings of the session');
RESET acemq.owner;
RESET acemq.idempotency_lease;

-- The session's UUID is the same before and after a rollback.
SAVEPOINT s;
SELECT acemq.idempotency_claim('gone');
SELECT claimed_by AS before FROM acemq.idempotency WHERE message_id = 'gone' \gset
ROLLBACK TO s;
SELECT is(acemq.idempotency_claim('gone'), 'claimed', 'a claim that was rolled back never was');
SELECT is((SELECT claimed_by::text FROM acemq.idempotency WHERE message_id = 'gone'), :'before', 'the owner is still the same');

-- Confirm.
SELECT ok(acemq.idempotency_confirm('a'), 'its owner confirms');
SELECT is(acemq.idempotency_claim('a'), 'duplicate', 'then it is a duplicate');
SELECT ok(NOT acemq.idempotency_first_time('a'), 'first_time: a duplicate');
SELECT ok(acemq.idempotency_confirmed('a'), 'and confirmed');
SELECT ok((SELECT state = 'CONFIRMED' AND claimed_by IS NULL AND recorded_at BETWEEN clock_timestamp() - interval '10 s' AND clock_timestamp()
                  AND expires_at = recorded_at + interval '24 h' FROM acemq.idempotency WHERE message_id = 'a'), 'nobody''s, for acemq.idempotency_retention');
SELECT ok(NOT acemq.idempotency_confirm('a', '1 h'), 'a second time: no claim was left');
SELECT is((SELECT expires_at - recorded_at FROM acemq.idempotency WHERE message_id = 'a'), interval '1 h', 'but it counts');
SELECT ok(NOT acemq.idempotency_confirm('never claimed'), 'a key without a row');
SELECT is(acemq.idempotency_claim('never claimed'), 'duplicate', 'is recorded all the same');
SELECT ok(NOT acemq.idempotency_confirm('b'), 'another owner''s claim');
SELECT is(acemq.idempotency_claim('b'), 'duplicate', 'is confirmed over its head');
SELECT ok(acemq.idempotency_confirm('d', owner => 'set'), 'the owner by name');
SET LOCAL acemq.idempotency_retention = '2 s';
SELECT acemq.idempotency_confirm('d');
SELECT is((SELECT expires_at - recorded_at FROM acemq.idempotency WHERE message_id = 'd'), interval '2 s', 'retention of the session');
RESET acemq.idempotency_retention;

-- Forget.
SELECT ok(NOT acemq.idempotency_forget('a'), 'never a confirmation');
SELECT ok(NOT acemq.idempotency_forget('unknown'), 'nothing there');
SELECT acemq.idempotency_claim('f', owner => 'me');
SELECT ok(NOT acemq.idempotency_forget('f'), 'never another owner''s claim');
SELECT ok(acemq.idempotency_forget('f', 'me'), 'one''s own');
SELECT ok(NOT acemq.idempotency_forget('f', 'me'), 'once');
SELECT is(acemq.idempotency_claim('f'), 'claimed', 'then it is free');

-- Expiry.
SELECT acemq.idempotency_claim('e', '1 ms', 'slow'), pg_sleep(0.01);
SELECT is(acemq.idempotency_claim('e', owner => 'next'), 'claimed', 'a lease that ran out is taken over');
SELECT is((SELECT claimed_by || ' ' || (expires_at - recorded_at)::text FROM acemq.idempotency WHERE message_id = 'e'), 'next 00:05:00', 'by its new owner, for a new lease');
SELECT ok(NOT acemq.idempotency_forget('e', 'slow'), 'the first owner has nothing left to forget');
SELECT ok(NOT acemq.idempotency_confirm('e', owner => 'slow'), 'confirms late');
SELECT is(acemq.idempotency_claim('e', owner => 'third'), 'duplicate', 'which counts');
SELECT ok(NOT acemq.idempotency_forget('e', 'next'), 'for the second owner too');
SELECT ok(NOT acemq.idempotency_confirm('e', owner => 'next'), 'who is told');
SELECT acemq.idempotency_claim('l', '1 ms', 'late'), pg_sleep(0.01);
SELECT ok(acemq.idempotency_confirm('l', '1 ms', 'late'), 'an expired claim that nobody took over is still its owner''s');
SELECT pg_sleep(0.01);
SELECT ok(NOT acemq.idempotency_confirmed('l'), 'an expired confirmation is none');
SELECT is(acemq.idempotency_claim('l'), 'claimed', 'and is taken over as well');
SELECT acemq.idempotency_claim('x', '1 ms', 'late'), pg_sleep(0.01);
SELECT ok(acemq.idempotency_forget('x', 'late'), 'an expired claim can be forgotten');

SELECT acemq.idempotency_claim('locked', '1 ms'), pg_sleep(0.01);
SELECT message_id FROM acemq.idempotency WHERE message_id = 'locked' FOR UPDATE;
SELECT is(acemq.idempotency_claim('locked'), 'claimed', 'what this transaction has locked itself is not in the way');

-- Exactly at the deadline the row is expired.
SELECT acemq.idempotency_confirm('now');
UPDATE acemq.idempotency SET expires_at = clock_timestamp() WHERE message_id = 'now';
SELECT ok(NOT acemq.idempotency_confirmed('now'), 'confirmed needs some time left');

-- Purge.
DELETE FROM acemq.idempotency;
INSERT INTO acemq.idempotency
SELECT 'old ' || i, CASE WHEN i % 2 = 0 THEN 'CLAIMED' ELSE 'CONFIRMED' END, 'x', clock_timestamp(), clock_timestamp() - interval '1 s' FROM generate_series(1, 2500) i;
INSERT INTO acemq.idempotency
SELECT 'live ' || i, CASE WHEN i % 2 = 0 THEN 'CLAIMED' ELSE 'CONFIRMED' END, 'x', clock_timestamp(), clock_timestamp() + interval '1 h' FROM generate_series(1, 10) i;
SELECT is(acemq.idempotency_purge(), 2500::bigint, 'purge: expired rows of both kinds, in more than two batches');
SELECT is((SELECT count(*) FROM acemq.idempotency WHERE message_id LIKE 'live %'), 10::bigint, 'no others');
SELECT is(acemq.idempotency_purge(), 0::bigint, 'nothing left');

-- Every call sees the one before it, in one statement too.
SELECT results_eq($$SELECT acemq.idempotency_claim('one'), acemq.idempotency_claim('one'), acemq.idempotency_confirm('one'), acemq.idempotency_claim('one')$$,
                  $$VALUES ('claimed'::acemq.claim, 'in_progress'::acemq.claim, true, 'duplicate'::acemq.claim)$$, 'in one statement');
SELECT is((SELECT count(*) FILTER (WHERE acemq.idempotency_claim('many ' || i % 10) = 'claimed') FROM generate_series(1, 100) i), 10::bigint, 'a hundred calls, ten keys');

-- What the owner has put on the table.
ALTER TABLE acemq.idempotency ADD note text DEFAULT 'default', ADD number bigint GENERATED BY DEFAULT AS IDENTITY,
    ADD twice text GENERATED ALWAYS AS (message_id || message_id) STORED, ADD CONSTRAINT not_this CHECK (message_id <> 'this');
CREATE INDEX own ON acemq.idempotency (upper(message_id)) WHERE state = 'CLAIMED';
SELECT acemq.idempotency_claim('columns');
SELECT ok((SELECT note = 'default' AND number > 0 AND twice = 'columnscolumns' FROM acemq.idempotency WHERE message_id = 'columns'), 'columns with defaults');
SELECT ok(acemq.idempotency_confirm('columns'), 'confirmed');
SELECT ok((SELECT note = 'default' AND twice = 'columnscolumns' AND state = 'CONFIRMED' FROM acemq.idempotency WHERE message_id = 'columns'), 'with them');
SELECT throws_ok($$SELECT acemq.idempotency_claim('this')$$, '23514', NULL, 'checks are checked');
SET LOCAL enable_seqscan = off;
SELECT acemq.idempotency_claim('indexed', '1 ms'), pg_sleep(0.01), acemq.idempotency_claim('indexed');
SELECT is((SELECT count(*) FROM acemq.idempotency WHERE upper(message_id) = 'INDEXED' AND state = 'CLAIMED'), 1::bigint, 'an index of the owner''s knows the row');
ALTER TABLE acemq.idempotency DROP twice;
CREATE TABLE public.fired (what text);
CREATE FUNCTION note_it() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN INSERT INTO public.fired VALUES (lower(TG_WHEN || ' ' || TG_OP || ' ' || TG_LEVEL)); IF TG_LEVEL = 'ROW' THEN RETURN CASE WHEN NEW.message_id = 'suppressed' THEN NULL ELSE NEW END; END IF; RETURN NULL; END$$;
GRANT INSERT ON public.fired TO PUBLIC;
CREATE TRIGGER br BEFORE INSERT OR UPDATE OF state ON acemq.idempotency FOR EACH ROW EXECUTE FUNCTION note_it();
CREATE TRIGGER ar AFTER INSERT OR UPDATE ON acemq.idempotency FOR EACH ROW EXECUTE FUNCTION note_it();
CREATE TRIGGER bs BEFORE INSERT OR UPDATE ON acemq.idempotency EXECUTE FUNCTION note_it();
CREATE TRIGGER "as" AFTER INSERT OR UPDATE ON acemq.idempotency EXECUTE FUNCTION note_it();
SELECT acemq.idempotency_claim('triggers', '1 ms'), pg_sleep(0.01);
SELECT results_eq('TABLE fired', $$VALUES ('before insert statement'), ('before insert row'), ('after insert row'), ('after insert statement')$$, 'triggers fire at a claim');
TRUNCATE fired;
SELECT is(acemq.idempotency_claim('triggers'), 'claimed', 'a takeover with triggers');
SELECT results_eq('TABLE fired', $$VALUES ('before update statement'), ('before update row'), ('after update row'), ('after update statement')$$, 'at which they fire');
SELECT ok(acemq.idempotency_confirm('triggers'), 'a confirm with triggers');
SELECT is(acemq.idempotency_claim('suppressed'), 'in_progress', 'a trigger that keeps the row out');
SELECT ok(NOT acemq.idempotency_confirm('suppressed'), 'keeps a confirmation out, too');
CREATE TRIGGER ar2 AFTER INSERT ON acemq.idempotency REFERENCING NEW TABLE AS new EXECUTE FUNCTION note_it();
SELECT is(acemq.idempotency_claim('transition table'), 'claimed', 'a trigger with a transition table');
SELECT is(acemq.idempotency_claim('transition table'), 'in_progress', 'and then');

-- Not a table we can read.
ALTER TABLE acemq.idempotency ALTER message_id TYPE text;
SELECT throws_ok($$SELECT acemq.idempotency_claim('k')$$, '55000', 'table "acemq.idempotency" has been changed', 'a column of another type');
SELECT throws_ok($$SELECT acemq.idempotency_confirmed('k')$$, '55000', 'table "acemq.idempotency" has been changed', 'for confirmed too');

-- Read-only.
SET TRANSACTION READ ONLY;
SELECT throws_ok(format('SELECT acemq.idempotency_%s', f), '25006', NULL, f || ' in a read-only transaction')
FROM unnest(ARRAY['claim($$k$$)', 'first_time($$k$$)', 'confirm($$k$$)', 'forget($$k$$)', 'purge()']) f;

SELECT * FROM finish();
ROLLBACK;
