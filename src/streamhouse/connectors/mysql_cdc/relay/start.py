"""Decides where a relay log starts, and until where it waits for its readers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from streamhouse.connectors.mysql_cdc.binlog.limits import log_files
from streamhouse.connectors.mysql_cdc.server.connection import Session
from streamhouse.connectors.mysql_cdc.server.position import Position
from streamhouse.connectors.mysql_cdc.server.table import Server


class Start(NamedTuple):
    """Where a log starts, and up to which position it drops no events that a reader needs.

    `held` is None if it drops them from the start on.
    """

    position: Position
    held: Position | None = None


def start_of(
    session: Session,
    server: Server,
    resume_positions: Sequence[Position],
    most_bytes: int | None,
    all_known: bool = False,
) -> Start:
    """The oldest position after which the binlog has at most `most_bytes`; None: any number.

    With `all_known`, no query begins elsewhere. If all are behind by more than `most_bytes`, and
    near each other, the log starts at the first of them: then no query waits for one that has more
    to read, and tasks can share what one connection has read.
    """
    current = server.position(session)
    files = _Files(log_files(session))
    behind = [at for at in sorted(resume_positions) if files.has(at) and at < current]
    if not behind:
        return Start(current)
    first = behind[0]
    if most_bytes is None or files.bytes_between(first, current) <= most_bytes:
        return Start(first)
    together = all_known and len(behind) == len(resume_positions)
    if together and files.bytes_between(first, behind[-1]) <= most_bytes:
        return Start(first, held=current)
    near = [at for at in behind if files.bytes_between(at, current) <= most_bytes]
    return Start(near[0] if near else current)


class _Files:
    """The server's binlog files with their sizes, oldest first."""

    def __init__(self, files: Sequence[tuple[str, int]]) -> None:
        self._names = [name for name, _ in files]
        self._sizes = [size for _, size in files]

    def has(self, position: Position) -> bool:
        return position.file in self._names

    def bytes_between(self, start: Position, end: Position) -> int:
        first, last = self._names.index(start.file), self._names.index(end.file)
        return sum(self._sizes[first:last]) - start.pos + end.pos
