"""Parses TABLE_MAP events, which describe the columns of the row events after them.

The server's setting `binlog_row_metadata` decides what is in an event: with `NO_LOG` (MariaDB's
default) only types and sizes, with `MINIMAL` (MySQL's) also signs and character sets, with `FULL`
also names and the members of ENUM and SET.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from pymysql.constants import FIELD_TYPE

BLOB_COMPRESSED = 140
VARCHAR_COMPRESSED = 141
"""MariaDB's types of columns that are declared COMPRESSED."""

TIMESTAMP2, DATETIME2, TIME2 = 17, 18, 19
"""Types since MySQL 5.6, which only the binlog has."""

VECTOR = 242
"""MySQL's type of vectors, which `pymysql` does not name."""
_TYPED_ARRAY = 20
_POST_HEADER = 19 + 8
_SIGNS, _DEFAULT_CHARSET, _CHARSETS, _NAMES, _SETS, _ENUMS = 1, 2, 3, 4, 5, 6
_MEMBERS_DEFAULT_CHARSET, _MEMBERS_CHARSETS = 10, 11

_NUMERIC = frozenset(
    {
        FIELD_TYPE.TINY, FIELD_TYPE.SHORT, FIELD_TYPE.INT24, FIELD_TYPE.LONG, FIELD_TYPE.LONGLONG,
        FIELD_TYPE.NEWDECIMAL, FIELD_TYPE.FLOAT, FIELD_TYPE.DOUBLE, FIELD_TYPE.YEAR,
    }
)  # fmt: skip
_TEXTS = frozenset(
    {
        FIELD_TYPE.STRING, FIELD_TYPE.VAR_STRING, FIELD_TYPE.VARCHAR, FIELD_TYPE.BLOB,
        BLOB_COMPRESSED, VARCHAR_COMPRESSED,
    }
)  # fmt: skip
_CHOICES = frozenset({FIELD_TYPE.ENUM, FIELD_TYPE.SET})
_META_BYTES = {
    **dict.fromkeys(
        (
            FIELD_TYPE.FLOAT, FIELD_TYPE.DOUBLE, TIMESTAMP2, DATETIME2,
            TIME2, FIELD_TYPE.BLOB, FIELD_TYPE.GEOMETRY, FIELD_TYPE.JSON,
            BLOB_COMPRESSED, VECTOR, _TYPED_ARRAY,
        ),
        1,
    ),
    **dict.fromkeys(
        (
            FIELD_TYPE.VARCHAR, FIELD_TYPE.STRING, FIELD_TYPE.VAR_STRING, FIELD_TYPE.NEWDECIMAL,
            FIELD_TYPE.BIT, VARCHAR_COMPRESSED,
        ),
        2,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class LoggedColumn:
    """A column as a TABLE_MAP event describes it; None: the event does not have it.

    `length`: the most bytes of a CHAR, VARCHAR or BINARY; `length_size`: the bytes before a value
    that count its bytes, 0 for values of a fixed size; `size`: the bytes of an ENUM, SET or BIT;
    `fraction`: digits after the seconds; `collation`: the server's number; `members`: of an ENUM or
    SET, as bytes of its character set.
    """

    type: int
    name: str | None = None
    unsigned: bool | None = None
    length: int = 0
    length_size: int = 0
    size: int = 0
    precision: int = 0
    scale: int = 0
    fraction: int = 0
    collation: int | None = None
    members: tuple[bytes, ...] | None = None


def logged_columns(data: bytes, at: int, end: int, mariadb: bool) -> list[LoggedColumn]:
    """The columns that the TABLE_MAP event at bytes `at` to `end`, without checksum, describes."""
    at += _POST_HEADER
    at += data[at] + 2
    at += data[at] + 2
    count, at = packed(data, at)
    types = data[at : at + count]
    size, at = packed(data, at + count)
    shapes = list(_shapes(types, data[at : at + size]))
    at += size + (count + 7) // 8
    known = dict(_optional(data, at, end))
    # Servers also list a collation for these types, which have none.
    texts = _TEXTS | {FIELD_TYPE.GEOMETRY if mariadb else VECTOR}
    names = _strings(known.get(_NAMES, b""))
    signs = (bool(byte & 0x80 >> bit) for byte in known.get(_SIGNS, b"") for bit in range(8))
    of_texts = _collations(known, _DEFAULT_CHARSET, _CHARSETS)
    of_choices = _collations(known, _MEMBERS_DEFAULT_CHARSET, _MEMBERS_CHARSETS)
    members = {
        FIELD_TYPE.ENUM: _member_lists(known.get(_ENUMS, b"")),
        FIELD_TYPE.SET: _member_lists(known.get(_SETS, b"")),
    }
    columns = []
    # Each list has the values of those columns only whose types have them, in their order.
    for shape in shapes:
        kind, name = shape["type"], next(names, None)
        collations = of_texts if kind in texts else of_choices if kind in _CHOICES else iter(())
        columns.append(
            LoggedColumn(
                **shape,
                name=None if name is None else name.decode(),
                unsigned=next(signs, None) if kind in _NUMERIC else None,
                collation=next(collations, None),
                members=next(members[kind], None) if kind in members else None,
            )
        )
    return columns


def packed(data: bytes, at: int) -> tuple[int, int]:
    """The length-encoded integer at a byte offset, and the offset after it."""
    first = data[at]
    if first < 251:
        return first, at + 1
    size = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


def _shapes(types: bytes, metadata: bytes) -> Iterator[dict[str, int]]:
    """The attributes of each column that its type and metadata give."""
    at = 0
    for kind in types:
        size = _META_BYTES.get(kind, 0)
        yield _shape(kind, metadata[at : at + size])
        at += size


def _shape(kind: int, meta: bytes) -> dict[str, int]:
    if kind in (FIELD_TYPE.STRING, FIELD_TYPE.VAR_STRING):
        return _string_shape(meta[0], meta[1])
    if kind in (FIELD_TYPE.VARCHAR, VARCHAR_COMPRESSED):
        length = int.from_bytes(meta, "little")
        return {"type": kind, "length": length, "length_size": 2 if length > 255 else 1}
    if kind in (TIMESTAMP2, DATETIME2, TIME2):
        return {"type": kind, "fraction": meta[0]}
    if kind == FIELD_TYPE.NEWDECIMAL:
        return {"type": kind, "precision": meta[0], "scale": meta[1]}
    if kind == FIELD_TYPE.BIT:
        return {"type": kind, "size": meta[1] + (1 if meta[0] else 0)}
    if kind in (FIELD_TYPE.FLOAT, FIELD_TYPE.DOUBLE) or not meta:
        return {"type": kind}
    return {"type": kind, "length_size": meta[0]}


def _string_shape(first: int, second: int) -> dict[str, int]:
    if first in _CHOICES:
        return {"type": first, "size": second}
    # Two bits of a length over 255 are in the type's byte, inverted.
    length = ((first & 0x30) ^ 0x30) << 4 | second
    return {
        "type": FIELD_TYPE.STRING,
        "length": length,
        "length_size": 2 if length > 255 else 1,
    }


def _optional(data: bytes, at: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The optional metadata: its kinds and their bytes."""
    while at < end:
        kind = data[at]
        size, at = packed(data, at + 1)
        yield kind, data[at : at + size]
        at += size


def _numbers(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        number, at = packed(data, at)
        yield number


def _strings(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size, at = packed(data, at)
        yield data[at : at + size]
        at += size


def _collations(known: dict[int, bytes], default_kind: int, each_kind: int) -> Iterator[int | None]:
    """The collations of the columns that have one: all are listed, or those besides a default."""
    if each_kind in known:
        yield from _numbers(known[each_kind])
        raise IndexError("a TABLE_MAP event has fewer collations than columns with one")
    elif known.get(default_kind):
        default, *pairs = _numbers(known[default_kind])
        others = dict(zip(pairs[::2], pairs[1::2], strict=True))
        yield from (others.get(index, default) for index in itertools.count())


def _member_lists(data: bytes) -> Iterator[tuple[bytes, ...]]:
    at = 0
    while at < len(data):
        count, at = packed(data, at)
        members = []
        for _ in range(count):
            size, at = packed(data, at)
            members.append(data[at : at + size])
            at += size
        yield tuple(members)
