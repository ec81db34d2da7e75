-- The processes: restart, version, and the first start after CREATE EXTENSION.

CREATE FUNCTION acemq.worker_restart() RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', 'acemq_worker_restart';
COMMENT ON FUNCTION acemq.worker_restart() IS
    'ends the worker of this database, a new one starts at once and reads settings made with ALTER DATABASE; true if one was running';

CREATE FUNCTION acemq.version() RETURNS text
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'acemq_version';
COMMENT ON FUNCTION acemq.version() IS 'version of the library and of the SQL objects';

CREATE FUNCTION acemq._extension_created() RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'acemq_extension_created';
COMMENT ON FUNCTION acemq._extension_created() IS 'internal: has the launcher look at this database when the transaction commits';

SELECT acemq._extension_created();
