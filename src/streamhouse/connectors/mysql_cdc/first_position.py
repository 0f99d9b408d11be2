"""The position where a stream begins, at which the columns of its tables are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from streamhouse.connectors.mysql_cdc.binlog.binlog_identity import BinlogIdentity
from streamhouse.connectors.mysql_cdc.server.position import BinlogState, Position

_ATTEMPTS = 20
_Columns = TypeVar("_Columns")


def first_position(
    binlog: BinlogIdentity,
    current: Callable[[], Position],
    columns_at: Callable[[Position], _Columns],
    complete: Callable[[_Columns], bool],
) -> tuple[Position, BinlogState, _Columns]:
    """Where a stream begins, with what is known there of the binlog and of the columns.

    An ALTER TABLE at the same time can hide the columns at a position; this then takes a later one.
    Without their types an ALTER TABLE that changes a column could not be judged.
    """
    for _ in range(_ATTEMPTS):
        position, known = binlog.settled_position(current)
        columns = columns_at(position)
        if complete(columns):
            break
    return position, known, columns
