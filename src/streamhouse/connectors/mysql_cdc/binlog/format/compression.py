"""Decompresses events: MariaDB's `log_bin_compress`, MySQL's `binlog_transaction_compression`.

The formats are those of MariaDB's `binlog_buf_uncompress` and of MySQL's
`Transaction_payload_event`.
"""

import zlib
from collections.abc import Iterator

import pyarrow as pa

from streamhouse.connectors.mysql_cdc.binlog.format.events import HEADER, QUERY, UPDATES
from streamhouse.connectors.mysql_cdc.binlog.format.table_map import packed
from streamhouse.errors import ConnectError

PAYLOAD = 40
"""The kind of MySQL's event with all events of a transaction but the first."""

_KINDS = {165: QUERY, 166: 23, 167: 24, 168: 25, 169: 30, 170: 31, 171: 32}
"""The kinds of MariaDB's compressed events, and of the same events without compression."""
COMPRESSED = frozenset({PAYLOAD, *_KINDS})

_QUERY_HEAD_BYTES = 13
_ROWS_HEAD_BYTES = 8
_FIRST_ROWS_2 = 30
_FLAG, _ALGORITHM, _SIZE_BYTES = 0x80, 0x70, 0x07
_END, _SIZE, _METHOD, _PLAIN_SIZE = range(4)
_ZSTD, _NONE = 0, 255


def decompressed(event: bytes, trailer: int) -> bytes:
    """The events in a compressed event, as the server would send them without compression.

    `trailer`: the bytes of checksums, which are zeros in the result. Raises `ConnectError` for an
    event that cannot be decompressed.
    """
    kind = event[4]
    end = len(event) - trailer
    try:
        if kind == PAYLOAD:
            return b"".join(_transaction(event, end, trailer))
        plain_kind = _KINDS[kind]
        at = _start(event, plain_kind)
        body = event[HEADER.size : at] + _inflated(event, at, end)
        return _event(event, plain_kind, body, int.from_bytes(event[13:17], "little"), trailer)
    except (zlib.error, pa.ArrowInvalid, OSError, LookupError, ValueError) as error:
        raise ConnectError(
            f"the binlog has a compressed event (number {kind}) that cannot be read ({error}); set "
            "log_bin_compress = OFF, binlog_transaction_compression = OFF on the server"
        ) from None


def _start(event: bytes, kind: int) -> int:
    """Where the compressed part of a QUERY or row event begins."""
    at = HEADER.size
    if kind == QUERY:
        status = int.from_bytes(event[at + 11 : at + 13], "little")
        return at + _QUERY_HEAD_BYTES + status + event[at + 8] + 1
    at += _ROWS_HEAD_BYTES
    if kind >= _FIRST_ROWS_2:
        at += int.from_bytes(event[at : at + 2], "little")
    columns, at = packed(event, at)
    return at + (columns + 7) // 8 * (2 if kind in UPDATES else 1)


def _inflated(event: bytes, at: int, end: int) -> bytes:
    """The decompressed bytes `at` to `end`, which begin with flags and the plain size."""
    head = event[at]
    if not head & _FLAG or head & _ALGORITHM:
        raise ValueError("it has an unknown form")
    start = at + 1 + (head & _SIZE_BYTES)
    plain = zlib.decompress(memoryview(event)[start:end])
    if len(plain) != int.from_bytes(event[at + 1 : start], "big"):
        raise ValueError("it has another size than it says")
    return plain


def _event(head: bytes, kind: int, body: bytes, pos: int, trailer: int) -> bytes:
    """An event with the time, server and flags of another."""
    seconds, _, server, _, _, flags = HEADER.unpack_from(head)
    size = HEADER.size + len(body) + trailer
    return HEADER.pack(seconds, kind, server, size, pos, flags) + body + bytes(trailer)


def _transaction(event: bytes, end: int, trailer: int) -> Iterator[bytes]:
    """The events of a transaction; the end position of the last one is that of the transaction."""
    _, _, _, size, stop, _ = HEADER.unpack_from(event)
    plain = _payload(event, end)
    at = 0
    while at < len(plain):
        inner = HEADER.unpack_from(plain, at)[3]
        head, body = plain[at : at + HEADER.size], plain[at + HEADER.size : at + inner]
        at += inner
        pos = stop if at >= len(plain) else stop - size + 1
        yield _event(head, head[4], body, pos, trailer)


def _payload(event: bytes, end: int) -> bytes:
    at = HEADER.size
    fields: dict[int, int] = {}
    while True:
        field, at = packed(event, at)
        if field == _END:
            break
        length, at = packed(event, at)
        fields[field], _ = packed(event, at)
        at += length
    data = event[at:end]
    method = fields.get(_METHOD, _NONE)
    if method == _NONE:
        return data
    if method != _ZSTD:
        raise ValueError(f"it has the unknown compression {method}")
    size = fields.get(_SIZE, len(data))
    plain = pa.Codec("zstd").decompress(data[:size], fields[_PLAIN_SIZE])
    return bytes(plain.to_pybytes())
