"""Parses the headers of raw binlog events, and finds the ends of transactions."""

from __future__ import annotations

import struct

from streamhouse.connectors.mysql_cdc.server.position import BINLOG_START, Position

QUERY, STOP, ROTATE, FORMAT, XID, TABLE_MAP = 2, 3, 4, 15, 16, 19
HEARTBEATS = frozenset({27, 41})
XA_PREPARE, PARTIAL_UPDATE, MARIADB_GTID = 38, 39, 162
INSERTS, UPDATES, DELETES = frozenset({23, 30}), frozenset({24, 31}), frozenset({25, 32})
ROWS = INSERTS | UPDATES | DELETES
ROWS_2 = frozenset({30, 31, 32})
"""Kinds of row events that have a field of extra data."""
COMPRESSED = frozenset({40, 165, 166, 167, 168, 169, 170, 171})

HEADER = struct.Struct("<IBIIIH")
"""An event's header: seconds since 1970, event type, server id, bytes of the whole event, its end
position in the binlog file, flags."""
CHECKSUM_BYTES = 4

_ANONYMOUS_AND_GTID = frozenset({33, 34})
_COMPRESSED_TRANSACTION = 40
_STANDALONE = 1
_QUERY_HEAD = struct.Struct("<IIBHH")


def query_of(data: bytes, at: int, end: int) -> tuple[str, str]:
    """The default database and the SQL text of the QUERY event at bytes `at` to `end` (exclusive).

    `end` must exclude the checksum.
    """
    _, _, schema_length, _, variables = _QUERY_HEAD.unpack_from(data, at + HEADER.size)
    start = at + HEADER.size + _QUERY_HEAD.size + variables
    schema = data[start : start + schema_length]
    text = data[start + schema_length + 1 : end]
    return schema.decode("utf-8", "replace"), text.decode("utf-8", "replace")


class Track:
    """Tracks the position in a stream of events, and whether it is `between` two transactions.

    `checksums`: whether events end with a checksum of four bytes.
    """

    def __init__(self, start: Position, checksums: bool) -> None:
        self.position = start
        self.between = True
        self.checksums = checksums
        self._begun = False

    def take(self, data: bytes, at: int) -> None:
        """Advance past the event that starts at `at`."""
        _, kind, _, size, log_pos, _ = HEADER.unpack_from(data, at)
        if kind == ROTATE:
            self._rotate(data, at, at + size)
            return
        if kind == FORMAT:
            # Each binlog file has a FORMAT event, which says whether its events have checksums; it
            # ends with four bytes for one itself in any case.
            self.checksums = data[at + size - CHECKSUM_BYTES - 1] == 1
        elif kind in HEARTBEATS:
            if not self.between:
                return
        else:
            self._group(kind, data, at, at + size - self.trailer)
        if log_pos > self.position.pos:
            self.position = Position(self.position.file, log_pos)

    @property
    def trailer(self) -> int:
        """The size of the checksum at the end of each event, in bytes; 0 without checksums."""
        return CHECKSUM_BYTES if self.checksums else 0

    def _rotate(self, data: bytes, at: int, end: int) -> None:
        start = at + HEADER.size
        name = data[start + 8 : end - self.trailer].decode()
        # Each connection starts with a ROTATE event that only names the current file.
        if name != self.position.file:
            pos = int.from_bytes(data[start : start + 8], "little")
            self.position = Position(name, max(pos, BINLOG_START))
        self.between, self._begun = True, False

    def _group(self, kind: int, data: bytes, at: int, end: int) -> None:
        if kind in _ANONYMOUS_AND_GTID:
            self.between, self._begun = False, False
        elif kind == MARIADB_GTID:
            standalone = data[at + HEADER.size + 12] & _STANDALONE
            self.between, self._begun = False, not standalone
        elif kind in (XID, XA_PREPARE, STOP, _COMPRESSED_TRANSACTION):
            self.between, self._begun = True, False
        elif kind == QUERY:
            self._query(query_of(data, at, end)[1].strip().upper())

    def _query(self, text: str) -> None:
        if text == "BEGIN" or text.startswith(("XA START", "XA BEGIN")):
            self.between, self._begun = False, True
        elif not self._begun or text in ("COMMIT", "ROLLBACK"):
            self.between, self._begun = True, False
        elif text.startswith(("XA COMMIT", "XA ROLLBACK")):
            self.between, self._begun = True, False
