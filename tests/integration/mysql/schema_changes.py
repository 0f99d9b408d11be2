"""Random schema changes of MySQL tables, with writes between them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pymysql
from tests.integration.mysql.history import apply
from tests.integration.runtime.concurrent_steps import ConcurrentSteps

from streamhouse.demo.mariadb import MariaDB
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.stream_source import PaimonSource

KEPT = {
    "bucket": "1", "changelog-producer": "input", "snapshot.num-retained.min": "1000000",
    "snapshot.num-retained.max": "1000000",
}  # fmt: skip
"""Options of tables whose whole changelog is read."""

TYPES = {
    "SMALLINT": "INT", "INT": "BIGINT", "BIGINT": "VARCHAR(30)", "VARCHAR(8)": "VARCHAR(20)",
    "VARCHAR(20)": "TEXT", "TEXT": "TEXT", "DECIMAL(6,2)": "DECIMAL(10,3)",
    "DECIMAL(10,3)": "DECIMAL(12,3)", "DATE": "DATE", "DATETIME(1)": "DATETIME(3)",
    "DATETIME(3)": "DATETIME(6)", "DOUBLE": "DOUBLE", "ENUM('a','b')": "ENUM('a','b','c')",
}  # fmt: skip
"""Types, and a wider one of each."""
DEFAULTS = {
    "SMALLINT": "7", "INT": "-1", "BIGINT": "9", "VARCHAR(8)": "'d'", "DATE": "'2020-02-02'",
    "DECIMAL(6,2)": "1.25", "DATETIME(3)": "'2020-01-01 10:00:00.5'", "ENUM('a','b')": "'b'",
}  # fmt: skip
KEYS = 25
_ERRORS = (
    pymysql.err.OperationalError,
    pymysql.err.IntegrityError,
    pymysql.err.ProgrammingError,
    pymysql.err.DataError,
    pymysql.err.InternalError,
)


class SchemaChanges:
    """Changes the rows and the columns of the tables `t0`, `t1`, … of one database."""

    def __init__(
        self, server: MariaDB, database: str, chance: random.Random, tables: int = 3
    ) -> None:
        self.server, self.database, self._chance = server, database, chance
        self.tables = [f"t{number}" for number in range(tables)]
        self._count = 0
        self.statements: list[str] = []
        for table in self.tables:
            self._create(table)
        for _ in range(30):
            self.write()

    def step(self) -> None:
        """A few changes of rows, and perhaps a schema change."""
        for _ in range(self._chance.randrange(4)):
            self.write()
        if self._chance.random() < 0.5:
            self.alter()

    def write(self) -> None:
        chance = self._chance
        table = chance.choice(self.tables)
        columns = self.columns(table)
        if not columns:
            return
        key = chance.randrange(KEYS)
        kind = chance.random()
        chosen = [column for column in columns if column != "id" and chance.random() < 0.7]
        if kind < 0.6:
            names = ", ".join(["id", *(f"`{one}`" for one in chosen)])
            values = ", ".join([str(key), *(self._value(columns[one]) for one in chosen)])
            self.run(f"REPLACE INTO {table} ({names}) VALUES ({values})")
        elif kind < 0.8 and chosen:
            sets = ", ".join(f"`{one}` = {self._value(columns[one])}" for one in chosen)
            self.run(f"UPDATE {table} SET {sets} WHERE id <= {key}")
        elif kind < 0.9:
            self.run(f"UPDATE IGNORE {table} SET id = id + 1 WHERE id = {key}")
        else:
            self.run(f"DELETE FROM {table} WHERE id = {key}")

    def alter(self) -> None:
        """One schema change, which may fail."""
        table = self._chance.choice(self.tables)
        kinds: list[tuple[float, Callable[[str], None]]] = [
            (0.3, self._add), (0.15, self._drop), (0.15, self._rename), (0.13, self._widen),
            (0.08, self._reorder), (0.05, self._several), (0.04, self._truncate),
            (0.03, self._again), (0.02, self._away_and_back), (0.05, self._swap),
        ]  # fmt: skip
        weights, methods = zip(*kinds, strict=True)
        self._chance.choices(methods, weights)[0](table)

    # -- schema changes

    def _add(self, table: str) -> None:
        self.run(f"ALTER TABLE {table} ADD COLUMN {self._new_column()} {self._place(table)}")

    def _drop(self, table: str) -> None:
        column = self._some(table)
        if column:
            self.run(f"ALTER TABLE {table} DROP COLUMN {column[0]}")

    def _rename(self, table: str) -> None:
        column = self._some(table)
        if column and self._chance.random() < 0.5:
            self.run(f"ALTER TABLE {table} RENAME COLUMN {column[0]} TO {self._name()}")
        elif column:
            self.run(f"ALTER TABLE {table} CHANGE {column[0]} {self._name()} {column[1]}")

    def _widen(self, table: str) -> None:
        column = self._some(table)
        if column and column[1] in TYPES:
            self.run(f"ALTER TABLE {table} MODIFY {column[0]} {TYPES[column[1]]}")

    def _reorder(self, table: str) -> None:
        column = self._some(table)
        if column:
            self.run(f"ALTER TABLE {table} MODIFY {column[0]} {column[1]} {self._place(table)}")

    def _several(self, table: str) -> None:
        parts = [f"ADD COLUMN {self._new_column()}" for _ in range(2)]
        column, name = self._some(table), self._name()
        if column and self._chance.random() < 0.3:
            parts += [f"DROP COLUMN {column[0]}", f"ADD COLUMN {column[0]} INT DEFAULT 5"]
        elif column:
            parts += [f"CHANGE {column[0]} {name} {column[1]}", f"ADD COLUMN {column[0]} INT"]
        self.run(f"ALTER TABLE {table} {', '.join(parts)}")

    def _truncate(self, table: str) -> None:
        self.run(f"TRUNCATE TABLE {table}")

    def _again(self, table: str) -> None:
        self.run(f"DROP TABLE IF EXISTS {table}")
        if self._chance.random() < 0.5:
            self.write()
        self._create(table)

    def _away_and_back(self, table: str) -> None:
        self.run(f"RENAME TABLE {table} TO _{table}_away")
        for _ in range(self._chance.randrange(3)):
            self.write()
        self.run(f"RENAME TABLE _{table}_away TO {table}")

    def _swap(self, table: str) -> None:
        """What gh-ost and pt-online-schema-change do, without the writes beside it."""
        new, old = self._chance.choice([("gho", "del"), ("new", "old")])
        columns = self.columns(table)
        names = ", ".join(f"`{column}`" for column in columns)
        self.run(f"DROP TABLE IF EXISTS _{table}_{new}", f"DROP TABLE IF EXISTS _{table}_{old}")
        self.run(f"CREATE TABLE _{table}_{new} LIKE {table}")
        self.run(f"ALTER TABLE _{table}_{new} ADD COLUMN {self._new_column()}")
        self.run(f"INSERT IGNORE INTO _{table}_{new} ({names}) SELECT {names} FROM {table}")
        self.run(f"RENAME TABLE {table} TO _{table}_{old}, _{table}_{new} TO {table}")
        if self._chance.random() < 0.5:
            self.run(f"DROP TABLE IF EXISTS _{table}_{old}")

    def _create(self, table: str) -> None:
        kinds = self._chance.sample(sorted(TYPES), 3)
        columns = ", ".join(f"{self._name()} {kind}" for kind in kinds)
        self.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, {columns})")

    # -- parts of statements

    def _name(self) -> str:
        self._count += 1
        return f"c{self._count}"

    def _new_column(self) -> str:
        kind = self._chance.choice(sorted(TYPES))
        default = ""
        if kind in DEFAULTS and self._chance.random() < 0.4:
            null = self._chance.choice(["", "NOT NULL"])
            default = f"{null} DEFAULT {DEFAULTS[kind]}"
        return f"{self._name()} {kind} {default}"

    def _place(self, table: str) -> str:
        column = self._some(table)
        return self._chance.choice(["", "FIRST", f"AFTER {column[0]}" if column else ""])

    def _some(self, table: str) -> tuple[str, str] | None:
        columns = self.columns(table)
        columns.pop("id", None)
        return self._chance.choice(sorted(columns.items())) if columns else None

    def columns(self, table: str) -> dict[str, str]:
        """The columns of a table with their types, in order."""
        rows = self.server.execute(
            "SELECT column_name, column_type FROM information_schema.columns WHERE table_schema = "
            f"'{self.database}' AND table_name = '{table}' ORDER BY ordinal_position"
        )
        return {str(name): _plain(str(kind)) for name, kind in rows}

    def _value(self, kind: str) -> str:
        chance, name = self._chance, kind.split("(")[0]
        if chance.random() < 0.15:
            return "NULL"
        number = chance.randrange(-999, 999)
        values = {
            "DATE": f"'20{chance.randrange(10, 30)}-01-{chance.randrange(10, 28)}'",
            "DATETIME": f"'2024-05-06 07:08:{chance.randrange(10, 60)}.1'",
            "ENUM": chance.choice(["'a'", "'b'"]),
            "DOUBLE": f"{number} / 8",
            "DECIMAL": f"{number} / 100",
        }
        texts = f"'{chance.choice(['ä', 'x', '', 'yz'])}{abs(number)}'"
        plain = texts if name in ("VARCHAR", "TEXT") else str(number)
        return values.get(name, plain)

    def run(self, *statements: str) -> None:
        """Run statements, of which each may fail."""
        connection = self.server.connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"USE {self.database}")
                for statement in statements:
                    self.statements.append(statement)
                    try:
                        cursor.execute(statement)
                    except _ERRORS as error:
                        self.statements[-1] += f"  -- {error.args[-1]}"
        finally:
            connection.close()


def _plain(kind: str) -> str:
    """The type as `TYPES` writes it."""
    name, sizes, rest = kind.partition("(")
    upper = name.upper()
    return upper if upper in ("SMALLINT", "INT", "BIGINT") else upper + sizes + rest


class Altering(ConcurrentSteps):
    """The changes, until the `with` ends."""

    def __init__(self, changes: SchemaChanges, pause_s: float) -> None:
        super().__init__(pause_s)
        self._changes = changes

    def step(self) -> None:
        self._changes.step()


def mysql_rows(server: MariaDB, table: str) -> list[dict[str, Any]]:
    """All rows in MySQL."""
    connection = server.connect()
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table}")
        names = [one[0] for one in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    connection.close()
    return _ordered(rows)


def paimon_rows(warehouse: Warehouse, table: str) -> list[dict[str, Any]]:
    """All rows in Paimon."""
    opened = warehouse.table(table)
    return _ordered([row for batch in opened.read() for row in batch.to_pylist()])


def replayed(warehouse: Warehouse, table: str) -> list[dict[str, Any]]:
    """What all changes of a table add up to; each must fit the table before it."""
    options = {"scan.mode": "from-snapshot", "scan.snapshot-id": "1"}
    source = PaimonSource(warehouse.options, table, options=options)
    state: dict[tuple[Any, ...], dict[str, Any]] = {}
    key = list(warehouse.table(table).primary_key)
    offset = source.initial_offset()
    while (end := source.latest_offset(offset)) != offset:
        for partition in source.partitions(offset, end):
            for batch in source.read(partition):
                apply(state, batch.to_pylist(), key)
        offset = end
    source.close()
    return _ordered(list(state.values()))


def _ordered(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: str([row.get("id"), sorted(map(str, row.items()))]))


def check(warehouse: Warehouse, changes: SchemaChanges) -> None:
    """Each table has MySQL's columns and rows, and so has what its changes add up to."""
    for table in changes.tables:
        there = mysql_rows(changes.server, f"{changes.database}.{table}")
        assert paimon_rows(warehouse, f"ods.{table}") == there, table
        assert replayed(warehouse, f"ods.{table}") == there, table
        columns = [column.name for column in warehouse.table(f"ods.{table}").columns]
        assert columns == [*changes.columns(table)], table


class FewNames(SchemaChanges):
    """Schema changes in which columns take each other's names, also in a circle."""

    NAMES = ("s", "n", "m", "k")

    def alter(self) -> None:
        chance, table = self._chance, self._chance.choice(self.tables)
        columns = [column for column in self.columns(table) if column != "id"]
        free = [name for name in self.NAMES if name not in columns]
        kind = chance.choice(["MODIFY", "ADD", "DROP", "RENAME", "CIRCLE", "CIRCLE"])
        if kind == "CIRCLE" and len(columns) > 1:
            chosen = chance.sample(columns, chance.randrange(2, len(columns) + 1))
            pairs = zip(chosen, [*chosen[1:], chosen[0]], strict=True)
            parts = [f"RENAME COLUMN {old} TO {new}" for old, new in pairs]
        elif kind == "RENAME" and free and columns:
            parts = [f"RENAME COLUMN {chance.choice(columns)} TO {chance.choice(free)}"]
        elif kind == "ADD" and free:
            default = chance.choice(["", "DEFAULT 7"])
            parts = [f"ADD COLUMN {chance.choice(free)} {self._kind()} {default}"]
        elif kind == "DROP" and len(columns) > 1:
            parts = [f"DROP COLUMN {chance.choice(columns)}"]
        else:
            parts = [f"MODIFY {chance.choice(columns)} {self._kind()} {self._place(table)}"]
        if chance.random() < 0.2 and free:
            parts.append(f"ADD COLUMN IF NOT EXISTS {free[-1]} INT")
        self.run(f"ALTER TABLE {table} {', '.join(parts)}")

    def _kind(self) -> str:
        return self._chance.choice(["INT", "BIGINT", "VARCHAR(20)", "SMALLINT"])

    def _create(self, table: str) -> None:
        names = self._chance.sample(self.NAMES, 2)
        columns = ", ".join(f"{name} {self._kind()}" for name in names)
        self.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, {columns})")
