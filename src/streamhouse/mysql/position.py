"""Positions in the binlog, and its state there, as offsets have them."""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import total_ordering
from typing import Any, NamedTuple, Self, TypeAlias

KeyJson: TypeAlias = tuple[Any, ...]
"""A primary key as JSON values; see `mysql.values.types` for their form."""

START_AGAIN = "start again with a new checkpoint (run it once with --from-scratch)"
"""What a user can do if an offset cannot be continued; for messages."""

BINLOG_START = 4
"""The position of a binlog file's first event."""


@total_ordering
@dataclass(frozen=True)
class BinlogPosition:
    """A binlog file and the byte where its next event starts; later positions are greater."""

    file: str
    pos: int

    def _order(self) -> tuple[int, int]:
        # Numbers grow past six digits: 'binlog.1000000' comes after 'binlog.999999'.
        return int(self.file.rpartition(".")[2]), self.pos

    def __lt__(self, other: "BinlogPosition") -> bool:
        return self._order() < other._order()

    def __str__(self) -> str:
        return f"{self.file}:{self.pos}"


@dataclass(frozen=True)
class Skip:
    """The changes that a stream leaves out after its startup position.

    `gtids`: transactions, as MySQL or MariaDB write a set of GTIDs. `events`: row events up to this
    position; of the first row event after it, which ends at `row_event`, the first `rows` rows.
    Nothing is left out after the position `until`; None: that is not known.
    """

    gtids: str | None = None
    until: BinlogPosition | None = None
    events: BinlogPosition | None = None
    row_event: BinlogPosition | None = None
    rows: int = 0

    def after(self, position: BinlogPosition) -> Self | None:
        """What remains to be left out after a position."""
        return None if self.until is not None and self.until <= position else self


class BinlogIdentity(NamedTuple):
    """Identifies a binlog file: when it was created (seconds since 1970), and the server's id.

    After RESET MASTER, or on another server, a file can have the same name, but not the same
    identity.
    """

    created: int
    server: int

    def __str__(self) -> str:
        timestamp = datetime.datetime.fromtimestamp(self.created, datetime.UTC)
        return f"created {timestamp:%Y-%m-%d %H:%M:%S} UTC by the server with the id {self.server}"


Prepared: TypeAlias = Mapping[str, BinlogPosition]
"""Where XA transactions begin in the binlog, by their identifier, until they are decided."""


@dataclass(frozen=True)
class BinlogState:
    """The state of the binlog at a position.

    `binlog`: the identity of the file; None if it is not known. `prepared`: the known XA
    transactions that were prepared before the position, and neither committed nor rolled back.
    `skip`: what the stream leaves out after the position. `gtids`: the transactions before the
    position, as MySQL or MariaDB write a set of GTIDs; None if that is not known.
    """

    binlog: BinlogIdentity | None = None
    prepared: Prepared = field(default_factory=dict)
    skip: Skip | None = None
    gtids: str | None = None

    def following(self, before: Self, position: BinlogPosition) -> Self:
        """The state with what remains to be left out after `position`, according to `before`."""
        return replace(self, skip=None if before.skip is None else before.skip.after(position))


NO_BINLOG_STATE = BinlogState()


def position_of(offset: Mapping[str, Any]) -> BinlogPosition | None:
    """The position in an offset; None before anything has been read."""
    return BinlogPosition(offset["file"], int(offset["pos"])) if "file" in offset else None
