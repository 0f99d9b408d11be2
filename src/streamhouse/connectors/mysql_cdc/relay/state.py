"""The state of a relay log, which its writer publishes and readers poll."""

import json
import os
import struct
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from streamhouse.connectors.json_records import from_json, to_json
from streamhouse.connectors.mysql_cdc.relay.files import segments
from streamhouse.machine import machine
from streamhouse.mysql.position import BinlogIdentity, BinlogPosition, BinlogState

KEPT_STATEMENTS = 16
"""How many positions of statements about a table a log keeps: those of the last ones."""
_SUM = struct.Struct("<II")
_STATE = "state"
_MACHINE = "machine"
_STATE_BYTES = 1 << 20
_SILENT_S = 5.0
"""The server sends a heartbeat each second."""
_WAIT_S, _POLL_S = 10.0, 0.002
_FAR_BYTES = 32 * 1024 * 1024
_MAX_UNREAD = 1_000


class RelayState(NamedTuple):
    """The end of a log, and the last changes of its tables.

    `changed`: where the last change of each `database.table` ends. `altered`: where the last
    statements about it begin, such as ALTER TABLE; batches end before them. `prepared`: where XA
    transactions begin that are neither committed nor rolled back. `binlogs`: the identities of the
    last binlog files. `times`: when the server executed each table's last change (epoch seconds),
    and when the change arrived (epoch milliseconds). `gtids`: the transactions up to `end`, as in
    `BinlogState`; '' for none.
    """

    end: BinlogPosition
    changed: Mapping[str, BinlogPosition]
    altered: Mapping[str, Sequence[BinlogPosition]]
    prepared: Mapping[str, BinlogPosition]
    binlogs: Mapping[str, BinlogIdentity]
    times: Mapping[str, tuple[int, int]] = {}
    gtids: str | None = None

    def binlog_state_at(self, end: BinlogPosition) -> BinlogState:
        """The state of the binlog at a position in the log, as of when it was written."""
        prepared = {xid: at for xid, at in self.prepared.items() if at < end}
        gtids = self.gtids if end == self.end else None
        return BinlogState(self.binlogs.get(end.file), prepared, gtids=gtids)

    def may_have_statements(self, table: str, start: BinlogPosition, end: BinlogPosition) -> bool:
        """Whether a statement about a table may begin from `start` on and before `end`."""
        kept = self.altered.get(table, ())
        # Only the last statements are known.
        unknown = len(kept) >= KEPT_STATEMENTS and start < kept[0]
        return unknown or any(start <= at < end for at in kept)

    def is_far(self, position: BinlogPosition) -> bool:
        """Whether the server's binlog has at least 32 MB from a position to the log's end."""
        same = position.file == self.end.file
        return self.end.pos - (position.pos if same else 0) >= _FAR_BYTES


class StateWriter:
    """Publishes the state to the readers."""

    def __init__(self, folder: Path) -> None:
        (folder / _MACHINE).write_text(machine())
        self._handle = os.open(folder / _STATE, os.O_WRONLY | os.O_CREAT, 0o600)

    def write(self, state: RelayState | None) -> None:
        """Publish the state; None means that the log has ended."""
        # In place, with a checksum: replacing the file each time would write to the disk each time.
        text = json.dumps(state and to_json(state)).encode()
        os.pwrite(self._handle, _SUM.pack(len(text), zlib.crc32(text)) + text, 0)

    def heard(self) -> None:
        """Publish that the server has sent something, at least a heartbeat."""
        os.utime(self._handle)

    def close(self) -> None:
        os.close(self._handle)


class RelayView:
    """A reader's view of a relay log, in any process on the writer's machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._raw = b""
        self._state: RelayState | None = None
        self._handle = -1

    def state(self) -> RelayState | None:
        """The current state; None if the log is missing, of another machine, or has ended."""
        if self._handle < 0:
            try:
                if (self.folder / _MACHINE).read_text() != machine():
                    return None
                self._handle = os.open(self.folder / _STATE, os.O_RDONLY)
            except OSError:
                return None
        while (raw := os.pread(self._handle, _STATE_BYTES, 0)) != self._raw:
            size, total = _SUM.unpack_from(raw) if raw else (0, 0)
            text = raw[_SUM.size : _SUM.size + size]
            # A wrong checksum: this has read during a write, so read again.
            if text and zlib.crc32(text) == total:
                parsed = json.loads(text)
                self._raw, self._state = raw, parsed and from_json(RelayState, parsed)
        return self._state

    def silent_s(self) -> float:
        """For how many seconds the server has sent nothing; 0 if it sends its heartbeats.

        Whether there are changes in this time is not known, so a lag is at least as long.
        """
        if self.state() is None:
            return 0.0
        silent = time.time() - os.fstat(self._handle).st_mtime
        return silent if silent > _SILENT_S else 0.0

    def continues(self, binlog: BinlogIdentity | None, start: BinlogPosition) -> bool:
        """Whether the log is of the binlog whose file at `start` has this identity (None: any).

        It knows the last files only: what is further behind is read from the server.
        """
        state = self.state()
        return state is not None and (binlog is None or state.binlogs.get(start.file) == binlog)

    def has(self, binlog: BinlogIdentity | None, position: BinlogPosition) -> bool:
        """Whether the log's binlog is known to be that of a position, and has the position."""
        state = self.state()
        return state is not None and position <= state.end and self.continues(binlog, position)

    def current(self, server_end: Callable[[], BinlogPosition]) -> RelayState | None:
        """The state of a log that has the binlog up to now; None if it is behind.

        A binlog that ends before the log does was reset, which the writer of the log reports.
        """
        before, end, state = self.state(), server_end(), self.state()
        if before is None or state is None or end < before.end or state.end < end:
            return None
        return state

    def begin(self) -> BinlogPosition | None:
        """The oldest position from which the log has all changes; None if there is no log."""
        if self.state() is None:
            return None
        try:
            return segments(self.folder)[0].start
        except (OSError, IndexError):
            return None

    def has_changes(self, tables: Iterable[str], start: BinlogPosition) -> bool:
        """Whether the log has all changes of tables, named `database.table`, from a position on."""
        begin, state = self.begin(), self.state()
        if begin is None or state is None or start < begin:
            return False
        return all(name in state.changed for name in tables)

    def reaches(self, end: BinlogPosition) -> bool:
        """Whether the log reaches `end` within 10 s; waits until it does."""
        deadline = time.monotonic() + _WAIT_S
        while (state := self.state()) is not None:
            if end <= state.end:
                return True
            if time.monotonic() >= deadline:
                break
            time.sleep(_POLL_S)
        return False


class UnreadChanges:
    """Records since when a reader has changes that it has not read; `clock` in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, BinlogPosition]] = deque()

    def observe(self, position: BinlogPosition, changed: BinlogPosition) -> None:
        """Record that the reader is at `position`, and the last known change ends at `changed`."""
        if position < changed and len(self._seen) < _MAX_UNREAD:
            if not self._seen or self._seen[-1][1] < changed:
                self._seen.append((self._clock(), changed))
        while self._seen and not position < self._seen[0][1]:
            self._seen.popleft()

    @property
    def seconds(self) -> float:
        """For how long there have been changes that are not read yet; 0 if there are none."""
        return self._clock() - self._seen[0][0] if self._seen else 0.0
