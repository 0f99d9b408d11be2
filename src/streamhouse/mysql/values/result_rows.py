"""Streams the rows of a SELECT as Arrow columns of the bytes that the server sends.

PyMySQL decodes value by value: 10 µs for a row of ten columns. This reads only the lengths of the
packets one by one, and extracts the columns of all rows of a block with NumPy
(docs/decisions/042-one-binlog-reader.md).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pymysql
from pymysql.constants import CR

BLOCK_BYTES = 2 << 20
_HEADER = 4
_LONGEST_PACKET = 0xFFFFFF
_NULL, _TWO_BYTES, _THREE_BYTES, _EIGHT_BYTES = 251, 252, 253, 254
_ERROR, _END, _LONGEST_END = 0xFF, 0xFE, 9
_LENGTH = struct.Struct("<I")

_Numbers = npt.NDArray[np.int64]

Columns = list[pa.Array]
"""The columns of some rows: binary arrays of equal length."""


def stream_columns(
    connection: pymysql.Connection[Any], statement: str, arguments: Sequence[Any] = ()
) -> Iterator[Columns]:
    """The rows of a statement, in blocks of about `BLOCK_BYTES`, or one row if that is longer.

    The connection can be used again only after the last block.
    """
    with connection.cursor() as cursor:
        statement = cursor.mogrify(statement, arguments or None)
    connection.query(statement, unbuffered=True)
    result: Any = connection._result  # type: ignore[attr-defined]
    # PyMySQL must not read the remaining rows when the cursor is closed.
    result.unbuffered_active, result.connection = False, None
    packets = _Packets(connection)
    while not packets.ended:
        block, starts, ends = packets.block()
        if len(starts):
            yield _columns(block, starts, ends, result.field_count)


class _Packets:
    """The packets of a result set, up to its end."""

    def __init__(self, connection: pymysql.Connection[Any]) -> None:
        self._connection = connection
        self._file: Any = connection._rfile  # type: ignore[attr-defined]
        self._drained = False
        self._rest = b""
        self.ended = False

    def block(self) -> tuple[bytearray, _Numbers, _Numbers]:
        """A buffer, with the offsets where its rows start and end."""
        buffer = bytearray(max(BLOCK_BYTES, 2 * len(self._rest)))
        filled = len(self._rest)
        buffer[:filled] = self._rest
        packets: list[int] = []
        at = 0
        while not self.ended:
            buffer, filled = self._filled(buffer, filled)
            at, filled = self._scan(buffer, at, filled, packets)
            if packets and filled >= BLOCK_BYTES:
                break
        self._rest = bytes(memoryview(buffer)[at:filled])
        bounds = np.array([*packets, at], np.int64)
        return buffer, bounds[:-1] + _HEADER, bounds[1:]

    def _filled(self, buffer: bytearray, filled: int) -> tuple[bytearray, int]:
        if filled == len(buffer):
            buffer = buffer + bytes(len(buffer))
        if self._drained:
            read = self._file.raw.readinto(memoryview(buffer)[filled:])
        else:
            # `readinto1` would wait for more than PyMySQL has buffered, which may be all.
            space = len(buffer) - filled
            buffered = self._file.read1(space)
            read = len(buffered)
            buffer[filled : filled + read] = buffered
            self._drained = read < space
        if not read:
            raise pymysql.err.OperationalError(
                CR.CR_SERVER_LOST, "Lost connection to MySQL server during query"
            )
        return buffer, filled + read

    def _scan(self, buffer: bytearray, at: int, filled: int, packets: list[int]) -> tuple[int, int]:
        """Append where packets of rows start; returns where they end, and the new `filled`.

        `filled` shrinks, as the headers within a long row are removed.
        """
        found = packets.append
        last = filled - _HEADER
        length_at = _LENGTH.unpack_from
        while at < last:
            found(at)
            length = length_at(buffer, at)[0] & _LONGEST_PACKET
            at += _HEADER + length
            if length == _LONGEST_PACKET:
                at, filled = _joined(buffer, packets[-1] + _HEADER, filled)
                last = filled - _HEADER
        if at > filled:
            at = packets.pop()
        if packets and self._is_end(buffer, packets[-1] + _HEADER, at):
            at = packets.pop()
            self.ended = True
        return at, filled

    def _is_end(self, buffer: bytearray, start: int, end: int) -> bool:
        """Whether a packet is the last one of the result set; raises the error if it is one."""
        first = buffer[start]
        if first == _ERROR:
            pymysql.err.raise_mysql_exception(bytes(buffer[start:end]))
        return first == _END and end - start < _LONGEST_END


def _joined(buffer: bytearray, start: int, filled: int) -> tuple[int, int]:
    """Join the packets of a row of 16 MB or more: where it ends, and the new `filled`.

    The end is beyond `filled` if the row is not complete yet; then nothing is changed.
    """
    headers: list[int] = []
    end = start + _LONGEST_PACKET
    while True:
        if end + _HEADER > filled:
            return filled + 1, filled
        length = _LENGTH.unpack_from(buffer, end)[0] & _LONGEST_PACKET
        headers.append(end)
        end += _HEADER + length
        if length < _LONGEST_PACKET:
            break
    if end > filled:
        return end, filled
    for header in reversed(headers):
        buffer[header : filled - _HEADER] = buffer[header + _HEADER : filled]
        filled -= _HEADER
    return end - _HEADER * len(headers), filled


def _columns(buffer: bytearray, starts: _Numbers, ends: _Numbers, count: int) -> Columns:
    data = np.frombuffer(buffer, np.uint8)
    block = pa.py_buffer(buffer)
    columns = []
    at = starts
    for _ in range(count):
        begins, lengths, nulls = _values(data, at)
        at = begins + lengths
        columns.append(cut(block, begins, at, nulls))
    if not np.array_equal(at, ends):
        raise pymysql.err.InternalError("a row of the result set is not as long as its values")
    return columns


def cut(
    block: pa.Buffer, begins: _Numbers, ends: _Numbers, nulls: npt.NDArray[np.bool_] | None
) -> pa.Array:
    """The values between these offsets of a block, as a binary array."""
    if not len(begins):
        return pa.array([], pa.binary())
    # The values and the gaps between them make one array, of which every second is taken.
    bounds = np.empty(2 * len(begins), np.int32)
    bounds[0::2], bounds[1::2] = begins, ends
    pieces = pa.Array.from_buffers(
        pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), block]
    )
    evens = np.arange(0, len(bounds), 2, dtype=np.int32)
    return pieces.take(pa.array(evens, mask=nulls))


def _values(
    data: npt.NDArray[np.uint8], at: _Numbers
) -> tuple[_Numbers, _Numbers, npt.NDArray[np.bool_] | None]:
    """The offsets of the values that are encoded at `at`, their lengths, and which are NULL."""
    first = data[at]
    lengths = first.astype(np.int64)
    begins = at + 1
    if not len(first) or first.max() < _NULL:
        return begins, lengths, None
    nulls = first == _NULL
    lengths[nulls] = 0
    for mark, size in ((_TWO_BYTES, 2), (_THREE_BYTES, 3), (_EIGHT_BYTES, 8)):
        (rows,) = np.nonzero(first == mark)
        if len(rows):
            encoded = begins[rows]
            lengths[rows] = sum(
                data[encoded + shift].astype(np.int64) << 8 * shift for shift in range(size)
            )
            begins[rows] += size
    return begins, lengths, nulls
