"""Reads the time zone of the JVM that wrote an ORC file from the file's footers.

Neither the Rust core nor pyarrow exposes it. An ORC file ends with a postscript, whose length is
the last byte. Before it is the footer, which lists the stripes; each stripe has a footer of its
own. All three are protobuf messages, and the footers are compressed in chunks.
"""

import zlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from streamhouse.errors import StreamhouseError
from streamhouse.formats.protobuf_fields import Fields, parsed_fields, varint

# Protobuf field numbers and compression codecs of ORC's specification.
_FOOTER_LENGTH, _COMPRESSION = 1, 2
_STRIPES = 3
_OFFSET, _INDEX_LENGTH, _DATA_LENGTH, _STRIPE_FOOTER_LENGTH = 1, 2, 3, 4
_WRITER_ZONE = 3
_NONE, _ZLIB, _SNAPPY, _LZ4, _ZSTD = 0, 1, 2, 4, 5
_TAIL = 16 * 2**10


def writer_zone(file: Any) -> str | None:
    """The zone's name, such as `Asia/Shanghai`; empty if the file does not record it.

    Files with a TIMESTAMP column record it. None for a file without rows. `file` is open for
    reading and seekable. Raises `StreamhouseError` if it is not an ORC file, or for an unsupported
    compression codec.
    """
    size = file.seek(0, 2)
    tail = _read(file, max(0, size - _TAIL), min(size, _TAIL))
    postscript = _message(tail[-1 - tail[-1] : -1])
    footer_at = size - 1 - tail[-1] - _number(postscript, _FOOTER_LENGTH)
    codec = _number(postscript, _COMPRESSION)
    footer = _message(
        _uncompressed(_read(file, footer_at, _number(postscript, _FOOTER_LENGTH)), codec)
    )
    for entry in footer[_STRIPES]:
        stripe = _message(entry)
        at = sum(_number(stripe, field) for field in (_OFFSET, _INDEX_LENGTH, _DATA_LENGTH))
        packed = _read(file, at, _number(stripe, _STRIPE_FOOTER_LENGTH))
        (zone,) = _message(_uncompressed(packed, codec))[_WRITER_ZONE] or [b""]
        return bytes(zone).decode()
    return None


def _read(file: Any, at: int, size: int) -> bytes:
    file.seek(at)
    return bytes(file.read(size))


def _number(message: Fields, field: int) -> int:
    return ([value for value in message[field] if isinstance(value, int)] or [0])[-1]


def _message(data: bytes) -> Fields:
    try:
        return parsed_fields(data)
    except (ValueError, TypeError):
        raise StreamhouseError("a file that is read as ORC is not an ORC file") from None


def _uncompressed(data: bytes, codec: int) -> bytes:
    return b"".join(_chunks(data, codec)) if codec != _NONE else data


def _chunks(data: bytes, codec: int) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        header = int.from_bytes(data[at : at + 3], "little")
        chunk, at = data[at + 3 : at + 3 + (header >> 1)], at + 3 + (header >> 1)
        yield chunk if header & 1 else _decompressed(chunk, codec)


def _decompressed(chunk: bytes, codec: int) -> bytes:
    if codec == _ZLIB:
        return zlib.decompress(chunk, -15)
    if codec == _ZSTD:
        return bytes(pa.CompressedInputStream(pa.BufferReader(chunk), "zstd").read())
    if codec == _SNAPPY:
        return bytes(pa.decompress(chunk, varint(chunk, 0)[0], "snappy"))
    raise StreamhouseError(
        f"an ORC file is compressed with codec {codec}, so its writer's time zone cannot be read; "
        "write it with 'file.compression' = 'zstd'"
    )
