"""Chooses where a relay log starts from the positions of its queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from streamhouse.connectors.mysql_cdc.relay.relay import relay_startup
from streamhouse.mysql.connection import Session
from streamhouse.mysql.position import BinlogPosition
from streamhouse.mysql.table import Server


class Files(Session):
    """A server with the binlog files 2 to 4, of 1,000 bytes each; it is at 4:600."""

    def __init__(self) -> None:
        pass

    def rows(
        self, statement: str | bytes, arguments: Sequence[Any] = (), raw: bool = False
    ) -> list[tuple[Any, ...]]:
        if statement == "SHOW BINARY LOGS":
            return [(f"binlog.{number:06d}", 1000) for number in (2, 3, 4)]
        return [("binlog.000004", 600)]


def at(number: int, pos: int) -> BinlogPosition:
    return BinlogPosition(f"binlog.{number:06d}", pos)


NOW = at(4, 600)


@pytest.mark.parametrize(
    ("positions", "most", "start"),
    [
        # A new query begins at the end.
        ([], 500, (NOW, None)),
        ([NOW], 500, (NOW, None)),
        ([at(4, 200), None], 500, (at(4, 200), None)),
        ([at(3, 900)], 800, (at(3, 900), None)),
        # Too far behind: it reads from the server, unless all are there.
        ([at(2, 4), None], 500, (NOW, None)),
        ([at(2, 4)], 500, (at(2, 4), NOW)),
        ([at(2, 4), at(2, 400)], 500, (at(2, 4), NOW)),
        # One that has caught up does not wait for another.
        ([at(2, 4), at(4, 300)], 500, (at(4, 300), None)),
        ([at(2, 4), NOW], 500, (NOW, None)),
        # The server has removed the file: the query will say so.
        ([at(1, 4)], 500, (NOW, None)),
        ([at(1, 4), at(2, 4)], 500, (NOW, None)),
    ],
)
def test_where_a_log_starts(
    positions: list[BinlogPosition | None],
    most: int,
    start: tuple[BinlogPosition, BinlogPosition | None],
) -> None:
    server = Server(True, "SHOW MASTER STATUS")
    assert relay_startup(Files(), server, positions, most) == start
