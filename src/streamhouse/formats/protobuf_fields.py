"""The fields of protobuf messages without compiled schemas: footers of ORC, records of KPL."""

from typing import TypeAlias

Fields: TypeAlias = dict[int, list[int | bytes]]
"""By the field's number, its values in order: varints, and the bytes of texts and messages."""


def parsed_fields(data: bytes) -> Fields:
    """The fields of a message, without those of fixed size; `ValueError` if it is none."""
    fields: Fields = {}
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        match tag & 7:
            case 0:
                value, at = varint(data, at)
                fields.setdefault(tag >> 3, []).append(value)
            case 1:
                at += 8
            case 2:
                size, at = varint(data, at)
                fields.setdefault(tag >> 3, []).append(data[at : at + size])
                at += size
            case 5:
                at += 4
            case kind:
                raise ValueError(f"a protobuf message with the unknown wire type {kind}")
    return fields


def numbers(fields: Fields, field: int) -> list[int]:
    """The integers of a field."""
    return [value for value in fields.get(field, ()) if isinstance(value, int)]


def contents(fields: Fields, field: int) -> list[bytes]:
    """The texts or messages of a field."""
    return [value for value in fields.get(field, ()) if isinstance(value, bytes)]


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A variable-length integer, and the position after it."""
    value = shift = 0
    while data[at] & 0x80:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
    return value | data[at] << shift, at + 1
