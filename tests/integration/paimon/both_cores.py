"""Random writes and compactions of one table by both cores, compared after each."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from tests.integration.paimon import java_rows

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.stream_source import PaimonSource
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.read.rust_core import lookup_merge
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.visibility import hides_new_rows
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.sql.plan import Column

KEYS = 40
NAMES = ("k", "p", "v", "w", "g")
TYPES = ("STRING", "INT", "BIGINT", "INT", "INT")
CONDITIONS: tuple[dict[str, Any], ...] = (
    {"method": "equal", "field": "k", "literals": ["k7"]},
    {"method": "greaterThan", "field": "v", "literals": [3]},
    {
        "method": "and",
        "children": [
            {"method": "in", "field": "k", "literals": [f"k{n}" for n in range(9)]},
            {"method": "lessThan", "field": "v", "literals": [5]},
        ],
    },
)


class Game:
    """Random writes and compactions of one table; after each, both cores agree on its rows."""

    def __init__(
        self,
        warehouse: Warehouse,
        java: Sidecar,
        name: str,
        options: Mapping[str, str],
        kinds: str,
        seed: int,
    ) -> None:
        self._warehouse, self._java = warehouse, java
        self._random = random.Random(f"{name} {seed}")
        self._kinds = kinds.split()
        self._batch = 0
        self._only_java = False
        self.layered = 0
        self.identifier = f"db.{name}"
        partitioned = self._random.random() < 0.5
        made = {"bucket": str(self._random.choice((1, 2))), **options}
        columns = [Column(name, type_) for name, type_ in zip(NAMES, TYPES, strict=True)]
        parts, key = ["p"] if partitioned else [], [] if made["bucket"] == "-1" else ["k", "p"]
        warehouse.create_table("db", name, columns, key, parts, made)

    @property
    def table(self) -> Table:
        return self._warehouse.table(self.identifier)

    def play(self, steps: int) -> None:
        for number in range(steps):
            try:
                self.step()
            except Exception as error:
                raise AssertionError(f"{self.identifier}, step {number}") from error
        self.check_everything()

    def step(self) -> None:
        self._batch += 1
        rows = [self._row() for _ in range(self._random.choice((1, 3, 30)))]
        if self._only_java or self._random.random() < 0.5 or not self._written(rows):
            java_rows.write(self._java, self.identifier, rows, self._batch)
        self.check()
        if self._random.random() < 0.9:
            self._java.compact(self.identifier, full=self._random.random() < 0.08)
            self.check()

    def _row(self) -> tuple[str, java_rows.JavaRow]:
        number = self._random.randrange(KEYS)
        row: java_rows.JavaRow = {"k": f"k{number}", "p": str(number % 2)}
        for name in ("v", "w", "g"):
            null = self._random.random() < 0.2
            row[name] = None if null else str(self._random.randrange(10))
        return self._random.choice(self._kinds), row

    def _written(self, rows: Sequence[tuple[str, java_rows.JavaRow]]) -> bool:
        """Write by the Rust core, which takes most tables."""
        try:
            self._write(rows)
        except StreamhouseError as error:
            if "not supported" not in str(error):
                raise
            self._only_java = True
        return not self._only_java

    def _write(self, rows: Sequence[tuple[str, java_rows.JavaRow]]) -> None:
        batch = java_rows.arrow(self.table, rows)
        writer = TableWriter(self._warehouse.options, self.identifier, "we")
        writer.write(batch)
        TableCommitter(self._warehouse.options, self.identifier, "we").commit(
            self._batch, writer.prepare(self._batch)
        )
        writer.close()

    def check(self) -> None:
        table = self.table
        self.layered += any(map(lookup_merge.has_levels, table.splits()))
        expected = sorted_rows(java_rows.read(self._java, self.identifier))
        assert self._ours(table) == expected
        assert self._ours(table, ["w", "v"]) == sorted_rows(
            [{name: row[name] for name in ("w", "v")} for row in expected]
        )
        for condition in CONDITIONS:
            wanted = [row for row in expected if meets(row, condition)]
            found = self._ours(table, filter=condition)
            assert [row for row in found if meets(row, condition)] == wanted
            # A condition may let others pass, but never rows that are not there.
            assert [row for row in found if row not in expected] == []
        kinds = java_rows.ours(table.read(row_kind=True))
        assert sorted_rows(kinds) == sorted_rows([{**row, "rowkind": "+I"} for row in expected])

    def check_everything(self) -> None:
        """Also what reads the table in other ways: system tables, streams, earlier snapshots."""
        table = self.table
        for system in ("audit_log", "ro"):
            name = f"{self.identifier}${system}"
            found = java_rows.ours(self._warehouse.readable(name).read())
            expected = java_rows.read(self._java, name)
            if system == "audit_log" and (hides_new_rows(table) or "merge-engine" in table.options):
                # Where rows are merged, or deleted by vectors, Java shows the kind that a single
                # record of a key was written with.
                for row in expected:
                    row["rowkind"] = row["rowkind"].replace("+U", "+I")
            assert sorted_rows(found) == sorted_rows(expected)
        for snapshot in range(1, (table.latest_snapshot_id() or 0) + 1):
            options = {"scan.snapshot-id": str(snapshot)}
            expected = sorted_rows(java_rows.read(self._java, self.identifier, options))
            assert sorted_rows(java_rows.ours(table.read(snapshot=snapshot))) == expected
        if table.options.get("changelog-producer") == "lookup":
            self._java.compact(self.identifier)
            self._check_streamed()

    def _check_streamed(self) -> None:
        source = PaimonSource(self._warehouse.options, self.identifier)
        end = source.latest_offset({})
        partitions = source.partitions({}, end)
        found = java_rows.ours(
            batch for partition in partitions for batch in source.read(partition)
        )
        rows = [{name: row[name] for name in NAMES} for row in found]
        assert sorted_rows(rows) == sorted_rows(java_rows.read(self._java, self.identifier))

    def _ours(
        self,
        table: Table,
        columns: Sequence[str] | None = None,
        filter: Mapping[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        return sorted_rows(java_rows.ours(table.read(columns, filter=filter)))


def sorted_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: [(value is not None, value) for value in row.values()])


def meets(row: Mapping[str, Any], condition: Mapping[str, Any]) -> bool:
    if condition["method"] == "and":
        return all(meets(row, child) for child in condition["children"])
    value, literals = row[condition["field"]], condition["literals"]
    if condition["method"] in ("equal", "in"):
        return value in literals
    if value is None:
        return False
    if condition["method"] == "greaterThan":
        return bool(int(value) > literals[0])
    return bool(int(value) < literals[0])
