-- Pause, resume and the fence of a copy, as far as the table says.
BEGIN;
SELECT plan(14);

PREPARE own AS SELECT i.paused FROM acemq.identity i, pg_control_system() s, pg_database d
    WHERE i.system_identifier = s.system_identifier AND i.database = d.oid AND d.datname = current_database();

SELECT results_eq('own', ARRAY[false], 'CREATE EXTENSION adds the row of this database');
SELECT is((SELECT count(*) FROM acemq.identity), 1::bigint, 'and no other');
SELECT lives_ok('SELECT acemq.relay_pause()', 'pause');
SELECT results_eq('own', ARRAY[true], 'is on record');
SELECT lives_ok('SELECT acemq.relay_pause()', 'pause again');
SELECT acemq.relay_resume();
SELECT results_eq('own', ARRAY[false], 'resume');

-- A restored copy has the row of another database, and perhaps none of its own.
UPDATE acemq.identity SET system_identifier = 1;
INSERT INTO acemq.identity (system_identifier, database) VALUES (2, 2);
SELECT acemq.relay_pause();
SELECT is((SELECT count(*) FROM acemq.identity), 3::bigint, 'pausing a copy does not end its fence');
SELECT results_eq('own', ARRAY[true], 'but is remembered');
SELECT acemq.relay_resume();
SELECT results_eq('own', ARRAY[false], 'resuming a copy makes it the owner');
SELECT is((SELECT count(*) FROM acemq.identity), 1::bigint, 'the only one');
SELECT ok((SELECT bool_and(ok) FROM acemq.doctor() WHERE "check" IN ('identity', 'not paused')), 'the doctor agrees');

-- What a dump restored into its own database brings.
INSERT INTO acemq.identity (system_identifier, database, paused) SELECT system_identifier, database, false FROM acemq.identity;
SELECT results_eq('own', ARRAY[false], 'the same row again changes nothing');
INSERT INTO acemq.identity (system_identifier, database, paused) SELECT system_identifier, database, true FROM acemq.identity;
SELECT results_eq('own', ARRAY[true], 'unless it was paused');
SELECT is((SELECT count(*) FROM acemq.identity), 1::bigint, 'there is one row');

SELECT * FROM finish();
ROLLBACK;
