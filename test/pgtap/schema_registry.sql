-- The schema registry: one id for one definition of a subject, for ever.
BEGIN;
SELECT plan(97);

PREPARE counter AS SELECT last_id FROM acemq.schema_registry_seq;
SELECT last_id AS base FROM acemq.schema_registry_seq \gset
SELECT (:base + 1) AS first, (:base + 2) AS second, (:base + 3) AS third, (:base + 4) AS fourth \gset

-- Registering.
SELECT is((SELECT ROW(id, subject, schema_version, format, definition)::text FROM acemq.schema_register('orders', 'avro', '{"type":"string"}')),
          ROW(:first, 'orders', 1, 'avro', '{"type":"string"}')::text, 'the first definition of a subject');
SELECT results_eq('counter', ARRAY[:first], 'the counter has its id');
SELECT ok((SELECT registered_at BETWEEN now() AND clock_timestamp() FROM acemq.schema_registry WHERE id = :first), 'it says when');
SELECT is((acemq.schema_register('orders', 'avro', '{"type":"string"}')).id, :first, 'the same again');
SELECT is((SELECT ROW(id, schema_version, format)::text FROM acemq.schema_register('orders', 'json-schema', '{"type":"string"}')),
          ROW(:first, 1, 'avro')::text, 'whatever the format');
SELECT is((SELECT ROW(id, schema_version)::text FROM acemq.schema_register('orders', 'avro', '{"type": "string"}')),
          ROW(:second, 2)::text, 'a blank more is another definition');
SELECT is((SELECT ROW(id, schema_version)::text FROM acemq.schema_register('customers', 'avro', '{"type":"string"}')),
          ROW(:third, 1)::text, 'of another subject the same text is a schema of its own');
SELECT is((SELECT ROW(id, schema_version)::text FROM acemq.schema_register('Orders', 'avro', '{"type":"string"}')),
          ROW(:fourth, 1)::text, 'subjects are compared byte by byte');
SELECT is((SELECT count(*) FROM acemq.schema_registry WHERE id > :base), 4::bigint, 'four rows');
SELECT results_eq('counter', ARRAY[:fourth], 'four ids');
SELECT results_eq($$SELECT (acemq.schema_register('many', 'f', d)).schema_version FROM unnest(ARRAY['a', 'b', 'a', 'c', 'b']) d$$,
                  ARRAY[1, 2, 1, 3, 2], 'several in one statement see each other');
SELECT is((acemq.schema_register('orders', 'protobuf', E' \t\n')).schema_version, 3, 'blanks are a definition');
SELECT is((acemq.schema_register(' orders', 'protobuf', 'x')).schema_version, 1, 'and part of a subject');

-- Fingerprints, from openssl dgst -sha256.
SELECT is((acemq.schema_register('fp', 'f', definition)).fingerprint::text, fingerprint, description) FROM (VALUES
    ('{"type":"string"}', '00404e686415370f1711c4d7acfa2905444d3cf23cef2e10c47d445ebe690f96', 'fingerprint of JSON'),
    ('{"type": "string"}', '38a346cadbd3820527bdd4c8fa746275ff6b6435dcb4a7c22e0b2c68bcfed961', 'with a blank'),
    ('syntax = "proto3";', 'bf7901a1fd23ec4cee4e5e86db1e2586f5c6c623526319eb2ff68b74d15edad3', 'of protobuf'),
    ('é', '4a99557e4033c3539de2eb65472017cad5f9557f7a0625a09f1c3f6e2ba69c4c', 'of two bytes of UTF-8'),
    (' ', '36a9e7f1c95b82ffb99743e0c5c4ce95d83c9a430aac59f84ef3cbfab6145068', 'of a blank'),
    (E'a\nb', '7e18f737311b2dc3b2f269dd78396b0351f14fb66efa879f768cb23181883c78', 'of two lines')) v (definition, fingerprint, description);

-- A definition that is kept apart from the row, and one that is compressed.
SELECT string_agg(md5(i::text), '') AS large FROM generate_series(1, 3000) i \gset
SELECT is((acemq.schema_register('large', 'f', :'large')).definition, :'large', 'a large definition');
SELECT is((acemq.schema_register('large', 'f', :'large')).definition, :'large', 'again');
SELECT is((acemq.schema_register('large', 'f', :'large')).registered_at,
          (SELECT registered_at FROM acemq.schema_registry WHERE subject = 'large'), 'the columns behind it');
SELECT is((acemq.schema_latest('large')).definition, :'large', 'its latest');
SELECT is((SELECT definition FROM acemq.schema_versions('large')), :'large', 'its versions');
SELECT is((acemq.schema_register('large', 'f', repeat('x', 100000))).schema_version, 2, 'a compressed one');
SELECT is((acemq.schema_register('large', 'f', repeat('x', 100000))).definition, repeat('x', 100000), 'again');
SELECT is((acemq.schema_by_id((acemq.schema_latest('large')).id)).definition, repeat('x', 100000), 'by id');

-- Lengths, in characters.
SELECT lives_ok($$SELECT acemq.schema_register(repeat('é', 255), repeat('é', 32), 'x')$$, 'the longest subject and format');
SELECT is((acemq.schema_latest(repeat('é', 255))).format::text, repeat('é', 32), 'are kept whole');
SELECT throws_ok($$SELECT acemq.schema_register(repeat('é', 256), 'f', 'x')$$, '22001', 'argument "subject" is too long', 'a longer subject');
SELECT throws_ok($$SELECT acemq.schema_register('a' || repeat(' ', 255), 'f', 'x')$$, '22001', 'argument "subject" is too long',
                 'blanks at the end count');
SELECT throws_ok($$SELECT acemq.schema_register('s', repeat('f', 33), 'x')$$, '22001', 'argument "format" is too long', 'a longer format');

-- Null and empty.
SELECT throws_ok($$SELECT acemq.schema_register(NULL, 'f', 'x')$$, '22004', 'argument "subject" must not be null', 'subject null');
SELECT throws_ok($$SELECT acemq.schema_register('s', NULL, 'x')$$, '22004', 'argument "format" must not be null', 'format null');
SELECT throws_ok($$SELECT acemq.schema_register('s', 'f', NULL)$$, '22004', 'argument "definition" must not be null', 'definition null');
SELECT throws_ok($$SELECT acemq.schema_register('', 'f', 'x')$$, '22023', 'argument "subject" must not be empty', 'subject empty');
SELECT throws_ok($$SELECT acemq.schema_register('s', '', 'x')$$, '22023', 'argument "format" must not be empty', 'format empty');
SELECT throws_ok($$SELECT acemq.schema_register('s', 'f', '')$$, '22023', 'argument "definition" must not be empty', 'definition empty');
SELECT throws_ok('SELECT acemq.schema_latest(NULL)', '22004', 'argument "subject" must not be null', 'latest: null');
SELECT throws_ok('SELECT acemq.schema_by_id(NULL)', '22004', 'argument "id" must not be null', 'by id: null');
SELECT throws_ok('SELECT * FROM acemq.schema_versions(NULL)', '22004', 'argument "subject" must not be null', 'versions: null');

-- Looking.
SELECT is((acemq.schema_latest('many')).definition, 'c', 'latest');
SELECT throws_ok($$SELECT acemq.schema_latest('unknown')$$, 'AQ001', 'no schema is registered for subject "unknown"', 'latest of none');
SELECT throws_ok($$SELECT acemq.schema_latest('')$$, 'AQ001', 'no schema is registered for subject ""', 'latest of the empty subject');
SELECT is((acemq.schema_by_id(:second)).definition, '{"type": "string"}', 'by id');
SELECT throws_ok('SELECT acemq.schema_by_id(2000000000)', 'AQ001', 'no schema has the id 2000000000', 'by an id that is not there');
SELECT throws_ok('SELECT acemq.schema_by_id(0)', 'AQ001', 'no schema has the id 0', 'nor 0');
SELECT throws_ok('SELECT acemq.schema_by_id(-1)', 'AQ001', 'no schema has the id -1', 'nor a negative one');
SELECT is((SELECT string_agg(schema_version || definition, ' ') FROM acemq.schema_versions('many')), '1a 2b 3c', 'versions, ascending');
SELECT is_empty($$SELECT * FROM acemq.schema_versions('unknown')$$, 'versions of none');
SELECT results_eq($$SELECT v.* FROM acemq.schema_versions('many') v$$,
                  $$SELECT r.* FROM acemq.schema_registry r WHERE subject = 'many' ORDER BY schema_version$$, 'they are the rows');

-- A rollback gives back, and only a rollback.
SAVEPOINT before;
SELECT (acemq.schema_register('saved', 'f', 'x')).id AS given_back \gset
ROLLBACK TO before;
SELECT is((acemq.schema_register('saved', 'f', 'y')).id, :given_back, 'the id of a savepoint that was rolled back');
SELECT is((acemq.schema_latest('saved')).schema_version, 1, 'and its version');
CREATE FUNCTION pg_temp.caught() RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    PERFORM acemq.schema_register('caught', 'f', 'x');
    RAISE division_by_zero;
EXCEPTION WHEN division_by_zero THEN
    RETURN (SELECT count(*) FROM acemq.schema_registry WHERE subject = 'caught');
END $$;
SELECT is(pg_temp.caught(), 0, 'an exception that is caught takes the schema back');
DELETE FROM acemq.schema_registry WHERE id = :given_back;
SELECT is((acemq.schema_register('saved', 'f', 'z')).id, :given_back + 1, 'the id of a row that was deleted is not given out again');
SELECT is((acemq.schema_register('saved', 'f', 'y')).id, :given_back + 2, 'nor to the same definition');

-- Rows that were written past the counter.
INSERT INTO acemq.schema_registry SELECT last_id + 10, 'past', 7, 'f', 'x', repeat('0', 64), now() FROM acemq.schema_registry_seq;
SELECT is((acemq.schema_register('past', 'f', 'y')).id, (SELECT id + 1 FROM acemq.schema_registry WHERE fingerprint = repeat('0', 64)),
          'the next id is above them');
SELECT is((acemq.schema_latest('past')).schema_version, 8, 'and the next version');

-- Only reading.
CREATE FUNCTION pg_temp.reading(statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    SET LOCAL transaction_read_only = on;
    RETURN NEXT lives_ok(format('SELECT acemq.schema_register(%L, %L, %L)', 'orders', 'avro', '{"type":"string"}'),
                         'read-only: a definition that is known');
    RETURN NEXT throws_ok(format('SELECT acemq.schema_register(%L, %L, %L)', 'orders', 'avro', 'new'), '25006', NULL,
                          'read-only: a new one');
    RETURN NEXT throws_ok(statement, '25006', NULL, 'read-only: an import');
END $$;
SAVEPOINT before;
SELECT pg_temp.reading($$SELECT acemq.schema_import(2000000000, 'orders', 'f', 'x')$$);
ROLLBACK TO before;

-- Importing.
SELECT (last_id + 100) AS imported FROM acemq.schema_registry_seq \gset
SELECT is((SELECT ROW(id, subject, schema_version, format, definition, registered_at)::text
           FROM acemq.schema_import(:imported, 'import', 'avro', 'x', 5, '2020-02-29 12:00+00')),
          ROW(:imported, 'import', 5, 'avro', 'x', timestamptz '2020-02-29 12:00+00')::text, 'import');
SELECT is((acemq.schema_latest('import')).fingerprint::text, encode(sha256('x'), 'hex'), 'has its fingerprint');
SELECT results_eq('counter', ARRAY[:imported], 'the counter is raised');
SELECT is((acemq.schema_import(:imported, 'import', 'avro', 'x', 5, '2020-02-29 12:00+00')).id, :imported, 'the same again');
SELECT is((SELECT ROW(schema_version, format, registered_at)::text FROM acemq.schema_import(:imported, 'import', 'json', 'x')),
          ROW(5, 'avro', timestamptz '2020-02-29 12:00+00')::text, 'with less said: the row that is there');
SELECT is((acemq.schema_import(:imported - 1, 'import', 'avro', 'y')).schema_version, 6, 'a lower id, and the next version');
SELECT results_eq('counter', ARRAY[:imported], 'does not set the counter back');
SELECT ok((SELECT registered_at BETWEEN now() AND clock_timestamp() FROM acemq.schema_by_id(:imported - 1)), 'now, unless told');
SELECT throws_ok(format($$SELECT acemq.schema_import(%s, 'import', 'avro', 'z')$$, :imported), '23505',
                 format('the schema id %s is taken', :imported), 'the id of another definition');
SELECT throws_ok(format($$SELECT acemq.schema_import(%s, 'other', 'avro', 'x')$$, :imported), '23505',
                 format('the schema id %s is taken', :imported), 'or of another subject');
SELECT throws_ok(format($$SELECT acemq.schema_import(%s, 'import', 'avro', 'x')$$, :imported + 1), '23505',
                 'this definition is registered for subject "import" under another id', 'a definition that has an id');
SELECT throws_ok(format($$SELECT acemq.schema_import(%s, 'import', 'avro', 'z', 5)$$, :imported + 1), '23505',
                 'version 5 of subject "import" is taken', 'a version that is taken');
SELECT throws_ok(format($$SELECT acemq.schema_import(%s, 'import', 'avro', 'x', 4)$$, :imported), '23505',
                 format('the schema with id %s has another version', :imported), 'the same with another version');
SELECT results_eq('counter', ARRAY[:imported], 'what is refused does not raise the counter');
SELECT is((acemq.schema_register('import', 'avro', 'x')).id, :imported, 'registering finds what was imported');
SELECT throws_ok($$SELECT acemq.schema_import(NULL, 's', 'f', 'x')$$, '22004', 'argument "id" must not be null', 'import: id null');
SELECT throws_ok($$SELECT acemq.schema_import(1, NULL, 'f', 'x')$$, '22004', 'argument "subject" must not be null', 'import: subject null');
SELECT throws_ok($$SELECT acemq.schema_import(0, 's', 'f', 'x')$$, '22023', 'argument "id" must be at least 1, not 0', 'import: id 0');
SELECT throws_ok($$SELECT acemq.schema_import(1, 's', 'f', 'x', 0)$$, '22023', 'argument "version" must be at least 1, not 0',
                 'import: version 0');
SELECT throws_ok($$SELECT acemq.schema_import(1, 's', 'f', 'x', 1, 'infinity')$$, '22008', 'argument "registered_at" is out of range',
                 'import: no time');

-- Recovery: what was exported comes back under its ids, in any order.
CREATE TEMP TABLE export AS SELECT * FROM acemq.schema_registry;
TRUNCATE acemq.schema_registry;
UPDATE acemq.schema_registry_seq SET last_id = 0;
SELECT count(acemq.schema_import(id, subject, format, definition, schema_version, registered_at)) FROM
    (SELECT * FROM export WHERE fingerprint <> repeat('0', 64) ORDER BY md5(id::text)) e;
SELECT results_eq('SELECT * FROM acemq.schema_registry ORDER BY id', $$SELECT * FROM export WHERE fingerprint <> repeat('0', 64) ORDER BY id$$,
                  'export and import');
SELECT results_eq('counter', 'SELECT max(id) FROM export', 'the counter is at the highest id');

-- The counter's row.
INSERT INTO acemq.schema_registry_seq (only_row, last_id) SELECT 1, last_id + 5 FROM acemq.schema_registry_seq;
SELECT results_eq('counter', 'SELECT max(id) + 5 FROM export', 'a dump brings a higher count');
INSERT INTO acemq.schema_registry_seq (only_row, last_id) VALUES (1, 0);
SELECT results_eq('counter', 'SELECT max(id) + 5 FROM export', 'or a lower one');
SET LOCAL session_replication_role = replica;
SELECT lives_ok('INSERT INTO acemq.schema_registry_seq (only_row, last_id) VALUES (1, 1)', 'also to a replica');
RESET session_replication_role;
SELECT throws_ok('INSERT INTO acemq.schema_registry_seq (only_row, last_id) VALUES (2, 1)', '23514', NULL, 'there is one row');
SELECT throws_ok('INSERT INTO acemq.schema_registry_seq (only_row) VALUES (1)', '23502', NULL, 'with a count');
SELECT throws_ok('INSERT INTO acemq.schema_registry_seq (last_id) VALUES (1)', '23502', NULL, 'and a key');
SAVEPOINT before;
UPDATE acemq.schema_registry_seq SET last_id = 2147483646;
SELECT is((acemq.schema_register('end', 'f', 'x')).id, 2147483647, 'the last id');
SELECT throws_ok($$SELECT acemq.schema_register('end', 'f', 'y')$$, '2200H', 'there are no ids left for schemas', 'no more ids');
SELECT is((acemq.schema_register('end', 'f', 'x')).id, 2147483647, 'what is known is found all the same');
ROLLBACK TO before;
SELECT acemq.schema_import(1900000000, 'end', 'f', 'x', 2147483647);
SELECT throws_ok($$SELECT acemq.schema_register('end', 'f', 'y')$$, '2200H', 'there are no versions left for subject "end"',
                 'no more versions');
DELETE FROM acemq.schema_registry_seq;
SELECT throws_ok($$SELECT acemq.schema_register('end', 'f', 'y')$$, '55000', 'table "acemq.schema_registry_seq" has no row',
                 'the counter is gone');
SELECT throws_ok($$SELECT acemq.schema_import(1, 'end', 'f', 'y')$$, '55000', NULL, 'for an import too');
SELECT is((acemq.schema_register('end', 'f', 'x')).id, 1900000000, 'what is known does not need it');
INSERT INTO acemq.schema_registry_seq SELECT 1, COALESCE(max(id), 0) FROM acemq.schema_registry;
SELECT is((acemq.schema_register('start', 'f', 'y')).id, 1900000001, 'put back as the hint says');

SELECT * FROM finish();
ROLLBACK;
