"""Parses the headers of raw binlog events, and finds the ends of transactions."""

import enum
import re
import struct

from streamhouse.errors import ConnectError
from streamhouse.mysql.position import BINLOG_START, BinlogIdentity, BinlogPosition

QUERY, STOP, ROTATE, FORMAT, XID, TABLE_MAP, INCIDENT = 2, 3, 4, 15, 16, 19, 26
HEARTBEATS = frozenset({27, 41})
XA_PREPARE, PARTIAL_UPDATE, MARIADB_GTID = 38, 39, 162
MYSQL_GTID, ANONYMOUS, TAGGED_GTID = 33, 34, 42
MYSQL_GTIDS = frozenset({MYSQL_GTID, ANONYMOUS, TAGGED_GTID})
GTIDS = MYSQL_GTIDS | {MARIADB_GTID}
"""Kinds of events with which a group begins."""
INSERTS, UPDATES, DELETES = frozenset({23, 30}), frozenset({24, 31}), frozenset({25, 32})
ROWS = INSERTS | UPDATES | DELETES
ROWS_2 = frozenset({30, 31, 32})
"""Kinds of row events that have a field of extra data."""
EXECUTE_LOAD_QUERY = 18
STATEMENTS = frozenset({QUERY, EXECUTE_LOAD_QUERY})
"""Kinds of events that have a SQL statement."""

HEADER = struct.Struct("<IBIIIH")
"""An event's header: seconds since 1970, event type, server id, bytes of the whole event, its end
position in the binlog file, flags."""
CHECKSUM_BYTES = 4

_STANDALONE = 1
_QUERY_HEAD = struct.Struct("<IIBHH")
_XA_PREPARED = struct.Struct("<BiII")
_NAME = r"(`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\"|[^\s`\"]+)\s*$"
_SAVEPOINT = re.compile(rf"SAVEPOINT\s+{_NAME}", re.IGNORECASE)
_ROLLBACK_TO = re.compile(
    rf"ROLLBACK\s+(?:WORK\s+)?TO\s+(?:SAVEPOINT\s+(?=\S))?{_NAME}", re.IGNORECASE
)
_XA = re.compile(
    r"XA\s+(START|BEGIN|END|PREPARE|COMMIT|ROLLBACK)\s+"
    r"X'([0-9a-f]*)'\s*,\s*X'([0-9a-f]*)'\s*,\s*(-?\d+)",
    re.IGNORECASE,
)


class Step(enum.Enum):
    """The effect of an event on the transaction that it belongs to."""

    COMMIT = "commits the transaction"
    ROLLBACK = "rolls the transaction back"
    STATEMENT = "is a statement outside a transaction, which is committed"
    BRACKET = "begins or ends a part of the transaction: BEGIN, XA START, XA END"
    SAVEPOINT = "sets the savepoint `name`"
    ROLLBACK_TO = "rolls back to the savepoint `name`"
    PREPARE = "prepares the XA transaction `name`"
    XA_COMMIT = "commits the XA transaction `name`, which was prepared before"
    XA_ROLLBACK = "rolls back the XA transaction `name`, which was prepared before"


def query_of(data: bytes, at: int, end: int) -> tuple[str, str]:
    """The default database and the SQL text of the QUERY event at bytes `at` to `end` (exclusive).

    `end` must exclude the checksum.
    """
    _, _, schema_length, _, variables = _QUERY_HEAD.unpack_from(data, at + HEADER.size)
    start = at + HEADER.size + _QUERY_HEAD.size + variables
    schema = data[start : start + schema_length]
    text = data[start + schema_length + 1 : end]
    return schema.decode("utf-8", "replace"), text.decode("utf-8", "replace")


def announces_checksums(data: bytes, end: int) -> bool:
    """Whether a file's events have checksums, according to its FORMAT event, which ends at `end`.

    The FORMAT event itself always ends with four bytes for a checksum.
    """
    return data[end - CHECKSUM_BYTES - 1] == 1


def xid_text(format_id: int, gtrid: bytes, bqual: bytes) -> str:
    """The identifier of an XA transaction as text: its format and two parts in hexadecimal."""
    return f"{format_id}:{gtrid.hex()}:{bqual.hex()}"


class PositionTracker:
    """Tracks the position in a stream of events.

    `between`: the position is between two transactions. `checksums`: events end with a checksum of
    four bytes. `group`: where the current transaction begins. `name`: the XA transaction or
    savepoint of the last step. `binlog`: identifies the file, after its first event. `gtid`: the
    last event with a GTID, until it is set to None.
    """

    def __init__(self, start: BinlogPosition, checksums: bool) -> None:
        self.file, self.pos = start.file, start.pos
        self.between = True
        self.checksums = checksums
        self.group = start
        self.name = ""
        self.binlog: BinlogIdentity | None = None
        self.gtid: bytes | None = None
        self._begun = False
        self._own_xid: str | None = None

    @property
    def position(self) -> BinlogPosition:
        """Where the next event begins."""
        return BinlogPosition(self.file, self.pos)

    @property
    def trailer(self) -> int:
        """The size of the checksum at the end of each event, in bytes; 0 without checksums."""
        return CHECKSUM_BYTES if self.checksums else 0

    def take(self, data: bytes, at: int) -> Step | None:
        """Advance past the event that starts at `at`; its step, if it has one."""
        seconds, kind, server, size, log_pos, _ = HEADER.unpack_from(data, at)
        step = None
        if kind == ROTATE:
            self._rotate(data, at, at + size)
            return None
        if kind == FORMAT:
            self.checksums = announces_checksums(data, at + size)
            self.binlog = BinlogIdentity(seconds, server)
        elif kind in HEARTBEATS:
            # While the server opens the next file, it sends heartbeats of the previous one. The
            # name of the file is the heartbeat's body, or a field of it.
            name, body = self.file.encode(), data[at + HEADER.size : at + size - self.trailer]
            if not self.between or (body != name and bytes([len(name)]) + name not in body):
                return None
        else:
            step = self._group(kind, data, at, at + size - self.trailer)
        if log_pos > self.pos:
            self.pos = log_pos
        return step

    def _rotate(self, data: bytes, at: int, end: int) -> None:
        start = at + HEADER.size
        name = data[start + 8 : end - self.trailer].decode()
        # Each connection starts with a ROTATE event that only names the current file.
        if name != self.file:
            pos = int.from_bytes(data[start : start + 8], "little")
            self.file, self.pos, self.binlog = name, max(pos, BINLOG_START), None
        self.between, self._begun, self.gtid = True, False, None

    def _begin(self, begun: bool) -> None:
        self.group = self.position
        self.between, self._begun, self._own_xid = False, begun, None

    def _end(self, step: Step) -> Step:
        self.between, self._begun = True, False
        return step

    def _group(self, kind: int, data: bytes, at: int, end: int) -> Step | None:
        if kind in GTIDS:
            self.gtid = data[at:end]
        if kind in MYSQL_GTIDS:
            self._begin(False)
        elif kind == MARIADB_GTID:
            self._begin(not data[at + HEADER.size + 12] & _STANDALONE)
        elif kind == XID:
            return self._end(Step.COMMIT)
        elif kind == STOP:
            return self._end(Step.ROLLBACK)
        elif kind == XA_PREPARE:
            return self._prepare(data, at)
        elif kind == QUERY:
            return self._query(query_of(data, at, end)[1].strip())
        return None

    def _prepare(self, data: bytes, at: int) -> Step:
        one_phase, format_id, first, second = _XA_PREPARED.unpack_from(data, at + HEADER.size)
        if one_phase:
            return self._end(Step.COMMIT)
        start = at + HEADER.size + _XA_PREPARED.size
        parts = data[start : start + first + second]
        self.name = xid_text(format_id, parts[:first], parts[first:])
        return self._end(Step.PREPARE)

    def _query(self, text: str) -> Step | None:
        word = text[:9].upper()
        if word == "BEGIN":
            if self.between:
                self._begin(True)
            self._begun = True
            return Step.BRACKET
        if word.startswith("XA"):
            return self._xa(text)
        if not self._begun:
            if self.between:
                self._begin(False)
            return self._end(Step.STATEMENT)
        if word in ("COMMIT", "ROLLBACK"):
            return self._end(Step[word.strip()])
        if word.startswith("SAVEPOINT") and (match := _SAVEPOINT.match(text)):
            self.name = _unquoted(match[1])
            return Step.SAVEPOINT
        if word.startswith("ROLLBACK") and (match := _ROLLBACK_TO.match(text)):
            self.name = _unquoted(match[1])
            return Step.ROLLBACK_TO
        return None

    def _xa(self, text: str) -> Step | None:
        match = _XA.match(text)
        if match is None:
            raise ConnectError(
                f"the binlog has an XA statement that cannot be followed at {self.position}: "
                f"{text[:60]}"
            )
        verb = match[1].upper()
        xid = xid_text(int(match[4]), bytes.fromhex(match[2]), bytes.fromhex(match[3]))
        if verb in ("START", "BEGIN"):
            if self.between:
                self._begin(True)
            self._begun, self._own_xid = True, xid
            return Step.BRACKET
        if verb in ("END", "PREPARE"):
            return Step.BRACKET
        if self._own_xid == xid or text.upper().endswith("ONE PHASE"):
            # MySQL: the transaction was not prepared, and its changes are in the same group.
            return self._end(Step[verb])
        if self.between:
            self._begin(False)
        self.name = xid
        return self._end(Step[f"XA_{verb}"])


def _unquoted(name: str) -> str:
    """A savepoint's name without quotes; names are compared without case."""
    if name[0] in '`"':
        name = name[1:-1].replace(name[0] * 2, name[0])
    return name.casefold()
