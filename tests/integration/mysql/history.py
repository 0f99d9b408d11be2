"""A database of its own for each test, sources over its tables, and a table kept by changes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.waiting import looks, until

from streamhouse.connectors.jdbc.options import parse as parse_jdbc
from streamhouse.connectors.jdbc.reader import JdbcReader
from streamhouse.connectors.mysql_cdc.relay.relay import Relay
from streamhouse.connectors.mysql_cdc.source import MySqlSource
from streamhouse.demo.mariadb import PASSWORD, USER, MariaDB
from streamhouse.mysql.options import parse
from streamhouse.mysql.position import BinlogPosition, position_of
from streamhouse.source import ROW_KIND, Offset
from streamhouse.sql.plan import Column

_NUMBERS = itertools.count(1)


class Database:
    """A fresh database on the shared server."""

    def __init__(self, server: MariaDB) -> None:
        self.server = server
        self.name = f"cdc_{next(_NUMBERS)}"
        server.execute(f"CREATE DATABASE {self.name}")
        self._sources: list[MySqlSource] = []
        self._relays: list[Relay] = []

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.server.execute(*statements, database=self.name)

    def options(self, table: str, **extra: str) -> dict[str, str]:
        return {
            "hostname": "127.0.0.1",
            "port": str(self.server.port),
            "username": USER,
            "password": PASSWORD,
            "database-name": self.name,
            "table-name": table,
            "connect.max-retries": "0",
        } | extra

    def source(
        self,
        table: str,
        columns: Sequence[Column] | None = None,
        options: dict[str, str] | None = None,
        relay: Path | None = None,
    ) -> MySqlSource:
        source = MySqlSource(self.options(table, **(options or {})), columns, relay)
        self._sources.append(source)
        return source

    def keyed(
        self, table: str, columns: Sequence[Column] | None = None, parameters: str = ""
    ) -> JdbcReader:
        url = f"jdbc:mysql://127.0.0.1:{self.server.port}/{self.name}{parameters}"
        options = {"url": url, "table-name": table, "username": USER, "password": PASSWORD}
        return JdbcReader(parse_jdbc(options).server, columns)

    def relay(self, folder: Path, *tables: str, **settings: Any) -> Relay:
        """A reader of the tables' changes, started."""
        names = [(self.name, table) for table in tables]
        relay = Relay(parse(self.options(tables[0])), names, folder, **settings)
        self._relays.append(relay)
        relay.start()
        assert relay.error is None, relay.error
        return relay

    def end(self) -> BinlogPosition:
        file, pos = self.server.execute("SHOW MASTER STATUS")[0][:2]
        return BinlogPosition(file, int(pos))

    def purge(self) -> None:
        """Remove all binlog files but the newest; the server keeps a file while it sends it."""

        def purged() -> bool:
            self.run(f"PURGE BINARY LOGS TO '{self.end().file}'")
            return len(self.run("SHOW BINARY LOGS")) == 1

        until(purged)

    def close(self) -> None:
        for relay in self._relays:
            relay.close()
        for source in self._sources:
            source.close()


def position(offset: Offset) -> BinlogPosition:
    found = position_of(offset)
    assert found is not None
    return found


def reached(source: MySqlSource, database: Database, start: Offset) -> Offset:
    """The offset after `start` with all changes of now."""
    wanted = database.end()
    for _ in looks():
        if position(end := source.latest_offset(start)) >= wanted:
            break
    return end


def rows_of(
    source: MySqlSource, start: Offset, end: Offset, parts: int = 1
) -> list[dict[str, Any]]:
    """All rows of a range, in order."""
    return [
        row
        for part in source.partitions(start, end, parts)
        for batch in source.read(part)
        for row in batch.to_pylist()
    ]


def catch_up(source: MySqlSource, start: Offset) -> tuple[Offset, list[dict[str, Any]]]:
    """The rows from `start` on until the source has none, and the offset there."""
    rows: list[dict[str, Any]] = []
    for _ in looks():
        while (end := source.latest_offset(start)) != start:
            rows += rows_of(source, start, end)
            start = end
        if source.caught_up(start):
            break
    return start, rows


def apply(
    state: dict[tuple[Any, ...], dict[str, Any]],
    rows: Sequence[dict[str, Any]],
    key: Sequence[str],
) -> None:
    """Apply changes to a table held as a dict; each must fit what the table holds."""
    for row in rows:
        kind = row[ROW_KIND]
        values = {name: value for name, value in row.items() if name != ROW_KIND}
        at = tuple(values[name] for name in key)
        if kind in ("-U", "-D"):
            assert state.pop(at) == values, f"{kind} of another row than the table holds"
        else:
            assert at not in state, f"{kind} of a key that is there already: {values}"
            state[at] = values
