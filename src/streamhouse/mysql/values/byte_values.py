"""Values of MySQL that are bytes: geometry, addresses, UUIDs and vectors."""

from __future__ import annotations

import json
import re
import struct
import uuid
from typing import Any

import numpy as np
import pyarrow as pa

_BYTES = 4


def vector_numbers(raw: pa.Array, target: pa.DataType) -> pa.Array:
    """Vectors as arrays of numbers, or as their text, such as `[1,0.25]`; `raw`: their bytes.

    Raises `ValueError` for bytes that are not a vector.
    """
    if not len(raw):
        return pa.array([], target)
    # A copy begins at the first byte, and has no bytes for null values.
    _, bounds, data = raw.take(pa.array(np.arange(len(raw)))).buffers()
    ends = np.frombuffer(bounds, np.int32)[: len(raw) + 1]
    if (ends % _BYTES).any():
        raise ValueError("a value is not a vector, whose numbers have four bytes each")
    numbers = np.frombuffer(b"" if data is None else data, np.uint8)[: ends[-1]].view("<f4")
    mask = raw.is_null() if raw.null_count else None
    offsets = pa.array(ends // _BYTES, pa.int32())
    vectors = pa.ListArray.from_arrays(offsets, pa.array(numbers), mask=mask)
    if not pa.types.is_string(target):
        return vectors.cast(target)
    texts = [None if v is None else f"[{','.join(v)}]" for v in _texts(vectors)]
    return pa.array(texts, pa.string())


def _texts(vectors: pa.ListArray) -> list[list[str] | None]:
    texts: list[list[str] | None] = vectors.cast(pa.list_(pa.string())).to_pylist()
    return texts


_ZEROS = re.compile(r"(?:^|:)0(?::0)*(?::|$)")


def uuid_text(data: bytes) -> str:
    """A UUID of 16 bytes, in lower case."""
    return str(uuid.UUID(bytes=data))


def inet4_text(data: bytes) -> str:
    """An address of 4 bytes."""
    return ".".join(map(str, data))


def inet6_text(data: bytes) -> str:
    """An address of 16 bytes, as MariaDB prints it.

    `::` replaces the first of the longest runs of zeros, even a single zero. Addresses that embed
    an IPv4 address end with it.
    """
    groups = [int.from_bytes(data[at : at + 2], "big") for at in range(0, 16, 2)]
    if not any(groups[:5]) and (groups[5] == 0xFFFF or (not groups[5] and groups[6])):
        return ("::ffff:" if groups[5] else "::") + inet4_text(data[12:])
    text = ":".join(f"{group:x}" for group in groups)
    runs = [match.span() for match in _ZEROS.finditer(text)]
    if not runs:
        return text
    start, end = max(runs, key=lambda run: text[run[0] : run[1]].count("0"))
    return text[:start] + "::" + text[end:]


_COLLECTION = 7
_NAMES = {
    1: "Point",
    2: "LineString",
    3: "Polygon",
    4: "MultiPoint",
    5: "MultiLineString",
    6: "MultiPolygon",
    _COLLECTION: "GeometryCollection",
}
_EXACT_INTEGERS = 2.0**53


def geometry_text(data: bytes) -> str:
    """The JSON text of a spatial value, which MySQL stores as its SRID and WKB.

    Like GeoJSON, with the SRID as `srid`; coordinates are x (longitude), then y. Raises
    `ValueError` for other bytes.
    """
    try:
        kind, content, _ = _geometry(data, 4)
    except (struct.error, KeyError):
        raise ValueError(f"{data[:40].hex()} is not a spatial value") from None
    srid = int.from_bytes(data[:4], "little")
    document = {_field(kind): content, "type": _NAMES[kind], "srid": srid}
    return json.dumps(document, separators=(",", ":"))


def _geometry(data: bytes, at: int) -> tuple[int, Any, int]:
    """The kind and content of the geometry at a byte offset, and the offset after it."""
    order = "<" if data[at : at + 1] == b"\1" else ">"
    (kind,) = struct.unpack_from(f"{order}I", data, at + 1)
    at += 5
    if kind == 1:
        return kind, *_point(data, at, order)
    if kind in (2, 3):
        return kind, *(_points(data, at, order) if kind == 2 else _rings(data, at, order))
    count, at = _count(data, at, order)
    parts = []
    for _ in range(count):
        part, content, at = _geometry(data, at)
        named = {"type": _NAMES[part], _field(part): content}
        parts.append(named if kind == _COLLECTION else content)
    return kind, parts, at


def _field(kind: int) -> str:
    return "geometries" if kind == _COLLECTION else "coordinates"


def _count(data: bytes, at: int, order: str) -> tuple[int, int]:
    return struct.unpack_from(f"{order}I", data, at)[0], at + 4


def _point(data: bytes, at: int, order: str) -> tuple[list[float], int]:
    return [_plain(value) for value in struct.unpack_from(f"{order}2d", data, at)], at + 16


def _points(data: bytes, at: int, order: str) -> tuple[list[list[float]], int]:
    count, at = _count(data, at, order)
    return [_point(data, at + 16 * i, order)[0] for i in range(count)], at + 16 * count


def _rings(data: bytes, at: int, order: str) -> tuple[list[list[list[float]]], int]:
    count, at = _count(data, at, order)
    rings = []
    for _ in range(count):
        ring, at = _points(data, at, order)
        rings.append(ring)
    return rings, at


def _plain(value: float) -> float:
    """Whole numbers as integers, so that JSON has no `.0`."""
    is_whole = value.is_integer() and abs(value) < _EXACT_INTEGERS
    return int(value) if is_whole else value
