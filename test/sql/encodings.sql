-- outbox_add() in databases that are not in UTF-8: names are stored in the encoding of
-- the database, limits and bodies are those of the UTF-8 form.  Nothing is committed.
\set VERBOSITY terse
CREATE DATABASE regress_acemq_latin1 ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0;
\c regress_acemq_latin1
\encoding UTF8
SET client_min_messages = error;
CREATE EXTENSION acemq;
BEGIN;
SET LOCAL acemq.origin = 'é@x';
SELECT count(acemq.outbox_add('é', 'text', '{"a": "é"}', headers => '{"é": "é"}', type => 'é', ordering_key => 'é'));
SELECT count(acemq.outbox_add('é', 'json', '{"a": "é"}'::json));
SELECT count(acemq.outbox_add('é', 'jsonb', '{"a": "\u00e9"}'::jsonb));
SELECT count(acemq.outbox_add('é', 'plain', 'é', content_type => 'text/plain'));
SELECT count(acemq.outbox_add('é', 'bytea', '\xe9'::bytea));
SELECT convert_to(exchange, 'LATIN1') AS exchange, routing_key, encode(body, 'escape') AS body, headers, type, origin
FROM acemq.outbox ORDER BY id;
SELECT count(acemq.outbox_add('e', repeat('é', 127), '1'));
SELECT count(acemq.outbox_add('e', 'k', '1', headers => jsonb_build_object(repeat('é', 64), 1)));
SET LOCAL acemq.max_body_size = '1kB';
SELECT count(acemq.outbox_add('e', 'k', repeat('é', 512), content_type => 'text/plain'));
SAVEPOINT a;
SELECT acemq.outbox_add('e', 'k', repeat('é', 513), content_type => 'text/plain');
ROLLBACK TO a;
SELECT acemq.outbox_add('e', repeat('é', 128), '1');
ROLLBACK TO a;
SELECT acemq.outbox_add('e', 'k', '1', headers => jsonb_build_object(repeat('é', 65), 1));
ROLLBACK;

-- An encoding in which the same text has more bytes than in UTF-8.
CREATE DATABASE regress_acemq_eucjp ENCODING 'EUC_JP' LOCALE 'C' TEMPLATE template0;
\c regress_acemq_eucjp
\encoding UTF8
SET client_min_messages = error;
CREATE EXTENSION acemq;
BEGIN;
SET LOCAL acemq.max_body_size = '1kB';
SELECT octet_length(repeat('é', 512)) AS stored,
       count(acemq.outbox_add('é', repeat('é', 127), repeat('é', 512), content_type => 'text/plain'));
SELECT octet_length(routing_key) AS routing_key, octet_length(body) AS body FROM acemq.outbox;
ROLLBACK;

-- Bytes of unknown meaning: taken if they are valid UTF-8.
CREATE DATABASE regress_acemq_ascii ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0;
\c regress_acemq_ascii
\encoding UTF8
SET client_min_messages = error;
CREATE EXTENSION acemq;
BEGIN;
SELECT count(acemq.outbox_add('é', 'text', '{"a": "é"}', headers => '{"é": "é"}'));
SELECT count(acemq.outbox_add('e', 'bytea', '\xe9'::bytea));
SELECT encode(exchange::bytea, 'escape') AS exchange, encode(body, 'escape') AS body, headers FROM acemq.outbox ORDER BY id;
SAVEPOINT a;
SELECT acemq.outbox_add(E'\xe9', 'k', '1');
ROLLBACK TO a;
SELECT acemq.outbox_add('e', 'k', E'\xe9', content_type => 'text/plain');
ROLLBACK TO a;
SELECT acemq.outbox_add('e', 'k', '1', message_id => E'\xe9');
ROLLBACK TO a;
SELECT acemq.outbox_add('e', 'k', '1', type => E'\xe9');
ROLLBACK TO a;
SELECT acemq.outbox_add('e', 'k', '1', headers => jsonb_build_object('a', E'\xe9'));
ROLLBACK TO a;
SELECT acemq.outbox_add('e', 'k', '1', headers => jsonb_build_object(E'\xe9', 'a'));
ROLLBACK TO a;
\set VERBOSITY default
SELECT acemq.outbox_add('e', 'k', to_jsonb(E'\xe9'::text));
ROLLBACK;
\c postgres
DROP DATABASE regress_acemq_latin1;
DROP DATABASE regress_acemq_eucjp;
DROP DATABASE regress_acemq_ascii;
