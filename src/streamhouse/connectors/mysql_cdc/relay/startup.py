"""Chooses the startup position of a relay log, and until when the log waits for its readers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from streamhouse.connectors.mysql_cdc.binlog.limits import log_files
from streamhouse.mysql.connection import Session
from streamhouse.mysql.position import BinlogPosition
from streamhouse.mysql.table import Server


class RelayStartup(NamedTuple):
    """The startup position of a relay log.

    Until it has reached the position `waits_until`, it waits for its readers; from there on, it
    drops events if it gets too large. None: it may drop events from its start on.
    """

    position: BinlogPosition
    waits_until: BinlogPosition | None = None


def relay_startup(
    session: Session,
    server: Server,
    resume_positions: Sequence[BinlogPosition],
    most_bytes: int | None,
    all_known: bool = False,
) -> RelayStartup:
    """Start at the oldest of `resume_positions` with at most `most_bytes` of binlog after it.

    `most_bytes` None: any number. `all_known`: `resume_positions` has the positions of all queries.
    If all of these are behind by more than `most_bytes`, but near each other, the log starts at the
    first of them: no query then waits long for another, and one connection reads for all tasks.
    """
    current = server.position(session)
    files = _Files(log_files(session))
    behind = [at for at in sorted(resume_positions) if files.has(at) and at < current]
    if not behind:
        return RelayStartup(current)
    first = behind[0]
    if most_bytes is None or files.bytes_between(first, current) <= most_bytes:
        return RelayStartup(first)
    together = all_known and len(behind) == len(resume_positions)
    if together and files.bytes_between(first, behind[-1]) <= most_bytes:
        return RelayStartup(first, waits_until=current)
    near = [at for at in behind if files.bytes_between(at, current) <= most_bytes]
    return RelayStartup(near[0] if near else current)


class _Files:
    """The server's binlog files with their sizes, oldest first."""

    def __init__(self, files: Sequence[tuple[str, int]]) -> None:
        self._names = [name for name, _ in files]
        self._sizes = [size for _, size in files]

    def has(self, position: BinlogPosition) -> bool:
        return position.file in self._names

    def bytes_between(self, start: BinlogPosition, end: BinlogPosition) -> int:
        first, last = self._names.index(start.file), self._names.index(end.file)
        return sum(self._sizes[first:last]) - start.pos + end.pos
