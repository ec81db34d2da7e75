-- complain if this script is sourced in psql instead of by CREATE EXTENSION
\echo Use "CREATE EXTENSION acemq" to load this file. \quit

COMMENT ON SCHEMA acemq IS 'acemq: transactional outbox relayed to RabbitMQ';
