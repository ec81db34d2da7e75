"""Header values as they are on the wire.

pika gives numbers without their kind, cuts doubles to whole numbers and reads
negative 64-bit integers as unsigned.  Importing this module makes pika keep
what really came: each BasicProperties gets `exact` (plain values) and `kinds`
(the same shape, with AMQP's kind letters in place of the values).

May depend on: pika.
"""

import functools
import struct

import pika.spec

_FLAG_CONTENT_TYPE = 1 << 15
_FLAG_CONTENT_ENCODING = 1 << 14
_FLAG_HEADERS = 1 << 13

_NUMBERS = {b"b": ">b", b"B": ">B", b"s": ">h", b"U": ">h", b"u": ">H", b"I": ">i", b"i": ">I", b"l": ">q",
            b"L": ">q", b"f": ">f", b"d": ">d", b"T": ">Q"}


def _skip_short_string(encoded, offset):
    return offset + 1 + encoded[offset]


def _read_table(encoded, offset):
    end = offset + 4 + struct.unpack_from(">I", encoded, offset)[0]
    offset += 4
    values, kinds = {}, {}
    while offset < end:
        after_name = _skip_short_string(encoded, offset)
        name = encoded[offset + 1:after_name].decode("utf-8")
        if name in values:
            raise ValueError(f"header {name} is there twice")
        values[name], kinds[name], offset = _read_value(encoded, after_name)
    return values, kinds, offset


def _read_array(encoded, offset):
    end = offset + 4 + struct.unpack_from(">I", encoded, offset)[0]
    offset += 4
    values, kinds = [], []
    while offset < end:
        value, kind, offset = _read_value(encoded, offset)
        values.append(value)
        kinds.append(kind)
    return values, kinds, offset


def _read_value(encoded, offset):
    kind = bytes(encoded[offset:offset + 1])
    offset += 1
    if kind == b"F":
        return _read_table(encoded, offset)
    if kind == b"A":
        return _read_array(encoded, offset)
    letter = kind.decode("ascii")
    if kind == b"V":
        return None, letter, offset
    if kind == b"t":
        return encoded[offset] != 0, letter, offset + 1
    if kind in b"Sx":
        end = offset + 4 + struct.unpack_from(">I", encoded, offset)[0]
        text = bytes(encoded[offset + 4:end])
        return text.decode("utf-8") if kind == b"S" else text, letter, end
    layout = _NUMBERS[kind]
    return struct.unpack_from(layout, encoded, offset)[0], letter, offset + struct.calcsize(layout)


def read_headers(encoded, offset=0):
    """(values, kinds) of the headers in an encoded property list."""
    flags = struct.unpack_from(">H", encoded, offset)[0]
    offset += 2
    for flag in (_FLAG_CONTENT_TYPE, _FLAG_CONTENT_ENCODING):
        if flags & flag:
            offset = _skip_short_string(encoded, offset)
    if not flags & _FLAG_HEADERS:
        return {}, {}
    values, kinds, _ = _read_table(encoded, offset)
    return values, kinds


def properties_set(properties):
    """The AMQP properties that the message has, headers aside, by name."""
    return {name: value for name, value in sorted(vars(properties).items())
            if value is not None and name not in ("headers", "exact", "kinds")}


def _decode_both_ways(decode):
    @functools.wraps(decode)
    def decoded(self, encoded, offset=0):
        self.exact, self.kinds = read_headers(encoded, offset)
        return decode(self, encoded, offset)

    return decoded


if not hasattr(pika.spec.BasicProperties.decode, "__wrapped__"):
    pika.spec.BasicProperties.decode = _decode_both_ways(pika.spec.BasicProperties.decode)
