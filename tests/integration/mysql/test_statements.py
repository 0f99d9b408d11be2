"""Which statements a stream can pass, with a real server as the oracle."""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Sequence
from typing import Any

import pymysql
import pytest
from tests.integration.mysql.history import Database
from tests.integration.mysql.statements import CREATE, PLAIN, ROWS, Grammar
from tests.mysql_server import IS_MYSQL, mariadb_only

from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.dump import BinlogDump
from streamhouse.connectors.mysql_cdc.binlog.format.events import QUERY
from streamhouse.connectors.mysql_cdc.binlog.format.events import ROWS as ROW_EVENTS
from streamhouse.connectors.mysql_cdc.binlog.query import Statement, statement_of
from streamhouse.connectors.mysql_cdc.binlog.statements import StatementCheck
from streamhouse.errors import DataLossError, SchemaChangeError
from streamhouse.mysql.connection import Session
from streamhouse.mysql.options import parse
from streamhouse.mysql.position import BinlogPosition
from streamhouse.mysql.table import Server, load_columns, load_table
from streamhouse.mysql.values.types import MySqlColumn

MODES = ("STRICT_TRANS_TABLES", "", "ANSI_QUOTES", "STRICT_ALL_TABLES,NO_BACKSLASH_ESCAPES")
FALSE_ALARMS = re.compile(
    r"IGNORE|\bSTORED\b|PARTITION|COLUMN|MODIFY|CHANGE|\bDROP\b|CONVERT|TRUNCATE|RENAME|SEQUENCE|VERSIONING",
    re.IGNORECASE,
)
"""Statements that may change rows or the identity of the table, whichever rows it has."""


class Followed:
    """A table with rows, what it is now, and the statements in the binlog since `start`."""

    def __init__(self, database: Database, other: str, create: str) -> None:
        self._database, self._server = database, database.server
        for name in (database.name, other):
            database.server.execute(
                f"CREATE OR REPLACE DATABASE {name} CHARACTER SET utf8mb4",
                *(
                    text.format(name=f"{name}.{table}", n=number)
                    for number, table in enumerate(("t", "u", "T"))
                    for text in (create if table != "u" else PLAIN, ROWS)
                ),
            )
        self.options = parse(database.options("t"))
        self.session = Session(self.options)
        self.table = load_table(self.session, self.options)
        self.captured = CapturedTable(
            self.options,
            self.table,
            self.table.columns,
            Server(not IS_MYSQL, "", logs_names=False),
        )
        file, pos = self._server.execute("SHOW MASTER STATUS")[0][:2]
        self.start = BinlogPosition(file, int(pos))
        self.before = self.state()

    def state(self) -> tuple[Any, ...]:
        """The key, and the rows of the captured columns, read by name; empty if there are none."""
        try:
            keys = self._database.run("SHOW INDEX FROM t WHERE key_name = 'PRIMARY'")
            names = ", ".join(f"`{column.name}`" for column in self.table.columns)
            rows = self._database.run(f"SELECT {names} FROM t ORDER BY id")
        except pymysql.err.MySQLError:
            return ()
        return [row[4] for row in keys], rows

    def logged(self) -> tuple[list[tuple[Statement, BinlogPosition]], bool]:
        """The statements since the start, and whether there are row events."""
        file, pos = self._server.execute("SHOW MASTER STATUS")[0][:2]
        end = BinlogPosition(file, int(pos))
        found, rows = [], False
        if self.start == end:
            return [], False
        dump = BinlogDump(self.options, self.start)
        track = dump.track
        for _, kind, size, _, block, at, _ in dump.up_to(end):
            if kind == QUERY:
                until = at + size - track.trailer
                statement = statement_of(kind, block, at, until, not IS_MYSQL, False)
                if statement is not None:
                    found.append((statement, track.position))
            rows = rows or kind in ROW_EVENTS
        dump.close()
        return found, rows


def _verdict(followed: Followed, logged: Sequence[tuple[Statement, BinlogPosition]]) -> Any:
    check = StatementCheck(followed.captured, followed.table)
    try:
        for statement, where in logged:
            check.take(statement, where)
    except (SchemaChangeError, DataLossError) as error:
        return error
    return check.known


def _fault(followed: Followed, statement: str, verdict: Any, rows: bool) -> str | None:
    """What is wrong with the verdict on the statement, as the server carried it out."""
    after = followed.state()
    if isinstance(verdict, SchemaChangeError | DataLossError):
        harmless = after == followed.before and not FALSE_ALARMS.search(statement)
        return "a false alarm" if harmless else None
    if not rows and after != followed.before:
        return f"not found: {after}, was {followed.before}"
    if verdict is None:
        return None
    columns = load_columns(followed.session, followed.options)
    if [one.name for one in verdict.columns] != [one.name for one in columns]:
        return f"other columns: {[column.name for column in columns]}"
    for known, column in zip(verdict.columns, columns, strict=True):
        if known.data_type not in ("unknown", "longtext") and _facts(known) != _facts(column):
            return f"{known} is {column}"
    return None


def _facts(column: MySqlColumn) -> tuple[Any, ...]:
    members = column.members if column.data_type in ("enum", "set") else []
    text = column.data_type, column.charset, column.unsigned, column.nullable, column.extra
    return *text, members, column.precision if column.data_type == "decimal" else 0


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 8))]
)
def test_statements_that_change_the_table_without_row_events_are_found(
    database: Database, seed: int
) -> None:
    chance = random.Random(seed)
    other = f"{database.name}_t"
    faults: list[str] = []
    passed = refused = 0
    # MySQL refuses more of the statements than MariaDB.
    for _ in range(120 if IS_MYSQL else 60):
        followed = Followed(database, other, chance.choice((CREATE, PLAIN)))
        mode = chance.choice(MODES)
        statement = Grammar(chance, database.name, other).statement()
        if mariadb_only(statement):
            continue
        with contextlib.suppress(pymysql.err.MySQLError):  # it may be logged nevertheless
            database.run(f"SET sql_mode = '{mode}'", statement)
        logged, rows = followed.logged()
        verdict = _verdict(followed, logged)
        fault = _fault(followed, statement, verdict, rows)
        if fault is not None:
            faults.append(f"{mode!r} {statement!r}: {fault}; {verdict}")
        is_refused = isinstance(verdict, SchemaChangeError | DataLossError)
        refused, passed = refused + is_refused, passed + (not is_refused and bool(logged))
        followed.session.close()
    assert not faults, "\n".join(faults)
    assert passed > 5 and refused > 5
