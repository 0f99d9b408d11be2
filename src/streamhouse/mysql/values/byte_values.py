"""Values of MySQL that are bytes: Unicode texts, geometry, addresses, UUIDs and vectors.

Unicode encodings of MySQL can also contain unpaired surrogates.
"""

import json
import re
import uuid

import duckdb
import numpy as np
import pyarrow as pa

from streamhouse.sql.expressions.sandboxed_connection import sandboxed

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


_EXACT_INTEGERS = 2.0**53


def geometry_texts(raw: pa.Array) -> pa.Array:
    """The JSON texts of spatial values, which MySQL stores as their SRID and WKB.

    Like GeoJSON, with the SRID as `srid`; coordinates are x (longitude), then y. Raises
    `ValueError` for other bytes.
    """
    with sandboxed() as connection:
        connection.register("spatial", pa.table({"raw": raw}))
        try:
            rows = connection.sql("SELECT ST_AsGeoJSON(ST_GeomFromWKB(raw[5:])) FROM spatial")
            found = zip(raw.to_pylist(), rows.fetchall(), strict=True)
        except duckdb.Error as error:
            raise ValueError(f"it is not a spatial value: {error}") from None
    texts = [None if data is None else _document(text, data[:4]) for data, (text,) in found]
    return pa.array(texts, pa.string())


def _document(text: str, srid: bytes) -> str:
    document = json.loads(text, parse_float=_coordinate)
    document |= {"type": document.pop("type"), "srid": int.from_bytes(srid, "little")}
    return json.dumps(document, separators=(",", ":"))


def _coordinate(text: str) -> float:
    """Whole numbers as integers, so that JSON has no `.0`."""
    value = float(text)
    is_whole = value.is_integer() and abs(value) < _EXACT_INTEGERS
    return int(value) if is_whole else value


_CODECS = {
    "utf8": "utf-8",
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
}
UNICODE = frozenset({*_CODECS, "ucs2"})
"""The character sets in which each text has one form."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_PAIR = re.compile("[\U00010000-\U0010ffff]")


def utf8_text(data: bytes) -> str:
    """Text as the server sends it in UTF-8; an unpaired surrogate reads as `?`."""
    return unicode_text("utf8mb4", data)


def unicode_text(charset: str, data: bytes, key: bool = False) -> str:
    """Text of a character set in `UNICODE`; raises `ValueError` for invalid bytes.

    An unpaired surrogate, which is no character, reads as `?`; with `key`, it is a `ValueError`.
    """
    if charset == "ucs2":
        return _ucs2(data, key)
    codec = _CODECS[charset]
    try:
        return data.decode(codec)
    except UnicodeDecodeError:
        if key:
            raise
    return _SURROGATE.sub("?", data.decode(codec, "surrogatepass"))


def _ucs2(data: bytes, key: bool) -> str:
    """Two bytes for each character: MySQL's UCS-2 has no pairs."""
    text = data.decode("utf-16-be", "surrogatepass")
    if not _PAIR.search(text) and not _SURROGATE.search(text):
        return text
    if key:
        raise ValueError(f"{data[:40].hex()} contains surrogates, which are not characters")
    return _SURROGATE.sub("?", _PAIR.sub("??", text))
