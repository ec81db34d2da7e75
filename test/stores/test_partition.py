"""Partitions of the same key in databases of different encodings: the bytes in UTF-8 decide."""

import random

import psycopg2
import pytest

LETTERS = {"UTF8": "\u00e4\u00df\u65e5\U0001f600aZ0", "LATIN1": "\u00e4\u00f6\u00fc\u00df\u00f1\u00e9aZ0",
           "EUC_JP": "\u65e5\u672c\u00e9\u3042aZ0", "SQL_ASCII": "\u00e4\u65e5aZ0"}


def partition(key, partitions):
    """The formula of the protocol, once more."""
    value = 2166136261
    for byte in key.encode("utf-8"):
        value = ((value ^ byte) * 16777619) % 2**32
    return value % partitions


@pytest.mark.parametrize("encoding", LETTERS)
def test_keys_outside_ascii(cluster, encoding):
    dice = random.Random(7)
    with cluster.encoded_database("partition_encoding", encoding) as cursor:
        for _ in range(300):
            key = "".join(dice.choice(LETTERS[encoding]) for _ in range(dice.randrange(20)))
            partitions = dice.choice([1, 2, 3, 7, 8, 10, 16, 1000, 2**31 - 1])
            number = partition(key, partitions)
            cursor.execute("SELECT acemq.partition(%s, %s), acemq.partitioned_routing_key(%s, %s, %s)",
                           (key, partitions, key, key, partitions))
            assert cursor.fetchall() == [(number, f"{key}.{number}")]


def test_what_has_no_utf8(cluster):
    with cluster.encoded_database("partition_encoding", "SQL_ASCII") as cursor, pytest.raises(psycopg2.errors.CharacterNotInRepertoire):
        cursor.execute(r"SELECT acemq.partition(E'\xe9', 4)")
