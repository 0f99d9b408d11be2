"""Spatial values as JSON text, in the form that Flink CDC documents."""

from __future__ import annotations

import json
import struct
from typing import Any

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
