"""The fields of protobuf messages without compiled schemas: footers of ORC, records of KPL."""

from collections import defaultdict
from typing import Any, TypeAlias

Fields: TypeAlias = defaultdict[int, list[Any]]
"""By the field's number, its values in order: varints, and the bytes of texts and messages."""


def parsed_fields(data: bytes) -> Fields:
    """The fields of a message, without those of fixed size; `ValueError` if it is none."""
    fields: Fields = defaultdict(list)
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        match tag & 7:
            case 0:
                value, at = varint(data, at)
                fields[tag >> 3].append(value)
            case 1:
                at += 8
            case 2:
                size, at = varint(data, at)
                fields[tag >> 3].append(data[at : at + size])
                at += size
            case 5:
                at += 4
            case kind:
                raise ValueError(f"a protobuf message with the unknown wire type {kind}")
    return fields


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A variable-length integer, and the position after it."""
    value = shift = 0
    while data[at] & 0x80:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
    return value | data[at] << shift, at + 1
