-- Partitioning: the same partition for the same key, in every language.
--
-- docs/protocol.md, section 7.

-- acemq.partition: which partition a key belongs to.
--
--   key          any text; its bytes in UTF-8 count, whatever the encoding of the database
--   partitions   how many there are, at least 1
--
-- From 0 to partitions - 1: FNV-1a with 32 bits (offset 2166136261, prime
-- 16777619), unsigned, modulo partitions.  With a power of two the libraries for Ruby,
-- Go, Python, Java and .NET all find the same one.  With any other number Java (floorMod of
-- the signed hash) and .NET (the hash without its top bit) differ for about half of all keys.
--
-- NULL for NULL.
--
--   22023          partitions is less than 1
--   22021, 22P05   key has no form in UTF-8
CREATE FUNCTION acemq.partition(key text, partitions integer) RETURNS integer
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'acemq_partition';
COMMENT ON FUNCTION acemq.partition(text, integer) IS
    'which of so many partitions, counted from 0, a key belongs to; all AceMQ libraries agree where the number is a power of two';

-- acemq.partitioned_routing_key: base, a dot, and the partition of the key.
--
--   base                any text; outbox_add() takes routing keys of at most 255 bytes
--   key, partitions     as above
--
-- The form of the libraries for Ruby, Go and Python, for example `orders.3`.  Java writes
-- `p3`, .NET `3`.
CREATE FUNCTION acemq.partitioned_routing_key(base text, key text, partitions integer) RETURNS text
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'acemq_partitioned_routing_key';
COMMENT ON FUNCTION acemq.partitioned_routing_key(text, text, integer) IS
    'the base, a dot and the partition of the key: where to send what belongs to the key';
