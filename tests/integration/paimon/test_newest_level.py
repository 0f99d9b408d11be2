"""Tables that look keys up merge only the newest compacted row of a key, as the Java core does."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from tests.integration.paimon import java_rows

from streamhouse.errors import OptionError
from streamhouse.paimon import newest_level
from streamhouse.paimon.catalog import Warehouse
from streamhouse.paimon.commit import TableCommitter, TableWriter
from streamhouse.paimon.sidecar import Sidecar
from streamhouse.paimon.source import PaimonSource
from streamhouse.paimon.system_tables import open_table
from streamhouse.paimon.table import Table
from streamhouse.sql.changes import SetTableOption
from streamhouse.sql.plan import Column

SEED = int(os.environ.get("STREAMHOUSE_LEVELS_SEED", "1"))
STEPS = 6
SOAK_STEPS = 60
KEYS = 40
NAMES = ("k", "p", "v", "w", "g")
TYPES = ("STRING", "INT", "BIGINT", "INT", "INT")
SUM = {
    "merge-engine": "aggregation",
    "fields.v.aggregate-function": "sum",
    "fields.w.aggregate-function": "last_value",
}
PARTS = {"merge-engine": "partial-update"}
LOOKUP = {"changelog-producer": "lookup"}
FORCED = {"force-lookup": "true"}
REMOVED = "remove-record-on-delete"
KINDS: dict[str, tuple[dict[str, str], str]] = {
    # The options of a table, and the kinds of rows that it takes.
    "sums": ({**SUM, **LOOKUP}, "+I +I -D"),
    "forced": ({**SUM, **FORCED}, "+I +U -U"),
    "late": ({**SUM, **LOOKUP, "sequence.field": "g"}, "+I"),
    "removed": ({**SUM, **LOOKUP, f"aggregation.{REMOVED}": "true"}, "+I +I -D"),
    "ignored": ({**SUM, **LOOKUP, "ignore-delete": "true"}, "+I -D"),
    "added": (
        {
            **PARTS,
            **FORCED,
            "fields.g.sequence-group": "v",
            "fields.v.aggregate-function": "sum",
        },
        "+I",
    ),
    "grouped": ({**PARTS, **LOOKUP, "fields.g.sequence-group": "v,w"}, "+I"),
    "cut": ({**PARTS, **LOOKUP, f"partial-update.{REMOVED}": "true"}, "+I +I -D"),
    "waiting": ({**SUM, **LOOKUP, "lookup-wait": "false", "lookup-compact": "gentle"}, "+I -D"),
    "plain": ({**SUM, "changelog-producer": "input"}, "+I -D"),
    "newest": ({**LOOKUP, "merge-engine": "deduplicate", "sequence.field": "g"}, "+I -D"),
    "vectors": ({**SUM, "deletion-vectors.enabled": "true"}, "+I -D"),
}
LAYERED = [kind for kind in KINDS if kind not in ("plain", "newest", "vectors")]
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

    def __init__(self, warehouse: Warehouse, java: Sidecar, kind: str, seed: int) -> None:
        self._warehouse, self._java = warehouse, java
        self._random = random.Random(f"{kind} {seed}")
        options, kinds = KINDS[kind]
        self._kinds = kinds.split()
        self._batch = 0
        self.layered = 0
        self.identifier = f"db.{kind}"
        partitioned = self._random.random() < 0.5
        made = {"bucket": str(self._random.choice((1, 2))), **options}
        columns = [Column(name, type_) for name, type_ in zip(NAMES, TYPES, strict=True)]
        parts = ["p"] if partitioned else []
        warehouse.create_table("db", kind, columns, ["k", "p"], parts, made)

    @property
    def table(self) -> Table:
        return self._warehouse.table(self.identifier)

    def step(self) -> None:
        self._batch += 1
        rows = [self._row() for _ in range(self._random.choice((1, 3, 30)))]
        # The Rust core writes no table that aggregates under deletion vectors.
        if "deletion-vectors.enabled" in self.table.options or self._random.random() < 0.5:
            java_rows.write(self._java, self.identifier, rows, self._batch)
        else:
            self._write(rows)
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
        self.layered += any(map(newest_level.has_levels, table.splits()))
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
            found = java_rows.ours(open_table(self._warehouse, name).read())
            assert sorted_rows(found) == sorted_rows(java_rows.read(self._java, name))
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
        pieces = source.partitions({}, end)
        found = java_rows.ours(batch for piece in pieces for batch in source.read(piece))
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


@pytest.fixture
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    made = Warehouse(str(tmp_path_factory.mktemp("levels")))
    made.create_database("db")
    return made


@pytest.fixture
def java(warehouse: Warehouse) -> Iterator[Sidecar]:
    with java_rows.utc_sidecar(warehouse.options) as sidecar:
        yield sidecar


def play(warehouse: Warehouse, java: Sidecar, kind: str, steps: int) -> int:
    game = Game(warehouse, java, kind, SEED)
    for number in range(steps):
        try:
            game.step()
        except Exception as error:
            raise AssertionError(f"{kind}, seed {SEED}, step {number}") from error
    game.check_everything()
    return game.layered


def test_both_cores_agree_on_what_levels_hold(warehouse: Warehouse, java: Sidecar) -> None:
    layered = {kind: play(warehouse, java, kind, STEPS) for kind in LAYERED}
    assert all(layered.values()), layered


def test_a_change_of_the_rule_needs_files_of_one_level(warehouse: Warehouse, java: Sidecar) -> None:
    game = Game(warehouse, java, "sums", SEED)
    while not game.layered:
        game.step()
    to_input = SetTableOption("changelog-producer", "input")
    with pytest.raises(OptionError, match="compact it in full: CALL sys.compact"):
        warehouse.alter_table(game.identifier, to_input)
    java.compact(game.identifier, full=True)
    warehouse.alter_table(game.identifier, to_input)
    game.check()


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_both_cores_agree_for_long(warehouse: Warehouse, java: Sidecar, kind: str) -> None:
    play(warehouse, java, kind, SOAK_STEPS)
