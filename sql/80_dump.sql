-- What pg_dump takes along: every table with data of the user's, and the
-- sequence, so that new ids are larger than the restored ones.
SELECT pg_catalog.pg_extension_config_dump('acemq.outbox', '');
SELECT pg_catalog.pg_extension_config_dump('acemq.outbox_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('acemq.identity', '');
SELECT pg_catalog.pg_extension_config_dump('acemq.idempotency', '');
SELECT pg_catalog.pg_extension_config_dump('acemq.schema_registry', '');
SELECT pg_catalog.pg_extension_config_dump('acemq.schema_registry_seq', '');
SELECT pg_catalog.pg_extension_config_dump('acemq.claim_check', '');
