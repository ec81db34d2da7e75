-- Closed by default: PUBLIC has nothing, and nobody else has anything until the
-- owner calls acemq.grant_access().  An upgrade script that adds an object
-- revokes for it, because ALTER DEFAULT PRIVILEGES would outlive the extension.

-- A schema that was there before may belong to somebody who could put functions
-- of theirs among ours: such a one is not taken (42501).
CREATE FUNCTION acemq._check_schema() RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'acemq_check_schema';
COMMENT ON FUNCTION acemq._check_schema() IS 'internal: refuses a schema that belongs to another role';

SELECT acemq._check_schema();

REVOKE ALL ON SCHEMA acemq FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA acemq FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA acemq FROM PUBLIC;
REVOKE ALL ON ALL ROUTINES IN SCHEMA acemq FROM PUBLIC;
