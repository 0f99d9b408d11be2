"""Deletions reach a target with the source's key, whatever became of the looked-up rows."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.unit.runtime.batch_query import BatchQuery
from tests.unit.sql.conftest import Catalog

from streamhouse.connectors.specs import SourceSpec
from streamhouse.lookup.strategies.selection import BUCKET, FULL, PARTIAL, Choice
from streamhouse.runtime.audit.recompute import Recomputation
from streamhouse.runtime.audit.recorded_batches import RecordedBatches
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.state import pending_rows
from streamhouse.runtime.state.recorded_query import definition_json
from streamhouse.runtime.streaming.tasks import task_run as tasks_of
from streamhouse.source import ROW_KIND

TABLES = """
CREATE TABLE src (id INT PRIMARY KEY NOT ENFORCED, v INT, ref INT);
CREATE TABLE dim (ref INT PRIMARY KEY NOT ENFORCED, name STRING);
CREATE TABLE out_ (id INT PRIMARY KEY NOT ENFORCED, v INT, name STRING NOT NULL)
"""
DIM = "JOIN dim FOR SYSTEM_TIME AS OF PROCTIME() AS d ON s.ref = d.ref"
ITEMS = "s.id, s.v, COALESCE(d.name, '-') AS name"
HINT = (
    "/*+ LOOKUP('table'='d', 'retry-predicate'='lookup_miss', 'retry-strategy'='fixed_delay', "
    "'fixed-delay'='1ms', 'max-attempts'='{}') */"
)
SHAPES = {
    "left": f"SELECT {ITEMS} FROM src AS s LEFT {DIM}",
    "inner": f"SELECT s.id, s.v, d.name FROM src AS s {DIM}",
    "where": f"SELECT {ITEMS} FROM src AS s LEFT {DIM} WHERE d.name <> 'b' AND s.v % 7 > 0",
    "inner where": f"SELECT s.id, s.v, d.name FROM src AS s {DIM} WHERE d.name <> 'b'",
    "nested": "SELECT id, v, name FROM (SELECT i AS id, v, UPPER(name) AS name FROM (SELECT "
    f"s.id AS i, s.v, d.name FROM src AS s {DIM}) AS p) AS q WHERE name <> 'B' AND v % 7 > 0",
    "twice": f"SELECT s.id, s.v, d.name FROM src AS s {DIM} JOIN dim FOR SYSTEM_TIME AS OF "
    "PROCTIME() AS e ON d.name = e.name AND e.ref < 9",
    "united": f"SELECT {ITEMS} FROM src AS s {DIM} WHERE d.name = 'a' UNION ALL "
    f"SELECT s.id, s.v, d.name FROM src AS s {DIM} WHERE d.name > 'a'",
    "waits": f"SELECT {HINT.format(1000)} s.id, s.v, d.name FROM src AS s {DIM}",
    "gives up": f"SELECT {HINT.format(1)} s.id, s.v, d.name FROM src AS s {DIM}",
    "waits left": f"SELECT {HINT.format(1000)} {ITEMS} FROM src AS s LEFT {DIM}",
}
ENGINES = {
    "deduplicate": "",
    "sequence": "WITH ('sequence.field' = 'v')",
    "input": "WITH ('changelog-producer' = 'input')",
    "partial-update": "WITH ('merge-engine' = 'partial-update', "
    "'partial-update.remove-record-on-delete' = 'true')",
}
INT = pa.int32()
SRC = pa.schema([("id", INT), ("v", INT), ("ref", INT), (ROW_KIND, pa.string())])
DIMENSION = pa.schema([("ref", INT), ("name", pa.string()), (ROW_KIND, pa.string())])
KEYS, REFS = 3, 2


class Query(BatchQuery):
    """One query over changing rows, with a lookup of changing rows."""

    def __init__(self, folder: Path, shape: str, engine: str, strategy: str) -> None:
        super().__init__(folder)
        catalog = Catalog()
        catalog.add(f"{TABLES} {ENGINES[engine]};")
        for name, table in catalog.tables.items():
            options = {**table.options, "bucket": "2"}
            key = table.primary_key
            self.warehouse.create_table("default", name, table.columns, key, (), options)
        self._shape = shape
        query = catalog.stream(f"INSERT INTO out_ {SHAPES[shape]}")
        target, waits = self._address("out_"), query.misses_sql is not None
        waiting, lost = target.auxiliary_table("pending"), target.auxiliary_table("unmatched")
        if waits:
            pending_rows.create_tables(waiting, lost, query.source.columns, changelog=True)
        spec = QuerySpec(
            query,
            SourceSpec("paimon", {}, query.source.columns, self._address("src")),
            tuple(self._address("dim") for _ in query.lookups),
            target,
            "q",
            4,
        )
        first, *others = query.lookups
        keyed = strategy != PARTIAL or "ref" in first.key_columns
        choices = (Choice(strategy if keyed else FULL, "", 2), *(Choice(FULL, "") for _ in others))
        if shape == "united":
            choices = tuple(Choice(FULL, "") for _ in query.lookups)
        self._start(replace(spec, choices=choices))
        self.current: dict[int, tuple[int, int]] = {}
        self.names: dict[int, str] = {}
        self._changed: set[int] = set()
        self.expected: dict[int, tuple[int, str]] = {}

    def put(self, key: int, ref: int) -> None:
        row = (self._commits, ref)
        self._write("src", [{"id": key, "v": row[0], "ref": ref, ROW_KIND: "+I"}], SRC)
        self.current[key] = row
        self._changed.add(key)

    def delete(self, key: int) -> None:
        v, ref = self.current.pop(key)
        self._write("src", [{"id": key, "v": v, "ref": ref, ROW_KIND: "-D"}], SRC)
        self._changed.add(key)

    def name(self, ref: int, name: str | None) -> None:
        kind = "-D" if name is None else "+I"
        before = self.names.pop(ref, None)
        if name is not None:
            self.names[ref] = name
        elif before is None:
            return
        self._write("dim", [{"ref": ref, "name": name or before, ROW_KIND: kind}], DIMENSION)

    def run(self) -> None:
        """Run a batch, and the model of it."""
        if self.batch():
            for key in self._changed:
                self.expected.pop(key, None)
                if key in self.current:
                    self._expect(key, *self.current[key])
            self._changed = set()

    def _expect(self, key: int, v: int, ref: int) -> None:
        name = self.names.get(ref)
        if name is None and not self._shape.endswith("left"):
            return
        where = self._shape in ("where", "inner where", "nested") and name == "b"
        if where or (self._shape in ("where", "nested") and v % 7 == 0):
            return
        shown = name or "-"
        self.expected[key] = v, shown.upper() if self._shape == "nested" else shown

    def found(self) -> dict[int, tuple[int, str]]:
        return {row["id"]: (row["v"], row["name"]) for row in self.rows("out_")}

    def recomputed(self) -> dict[int, tuple[int, str]]:
        """The target as the audit computes it."""
        there: dict[int, tuple[int, str]] = {}
        definitions = {"f": definition_json(self.spec)}
        audit = Recomputation(RecordedBatches(self.spec.target, (), definitions))
        for step in audit.steps(self._batches):
            for row in step.rows.to_pylist():
                if row[ROW_KIND] in ("-U", "-D"):
                    there.pop(row["id"], None)
                else:
                    there[row["id"]] = (row["v"], row["name"])
        return there


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(tasks_of, "CHUNK_ROWS", 2)
    yield tmp_path


STRATEGIES = (FULL, PARTIAL, BUCKET)
CASES = [
    *((shape, "deduplicate", STRATEGIES[n % 3], n) for n, shape in enumerate(SHAPES)),
    *(("inner", engine, FULL, 20) for engine in ("sequence", "partial-update")),
]


@pytest.mark.parametrize(
    ("shape", "engine", "strategy", "seed"),
    [
        *CASES,
        *(
            pytest.param(shape, engine, strategy, seed, marks=pytest.mark.soak)
            for shape in SHAPES
            for engine in ENGINES
            for strategy in STRATEGIES
            for seed in range(100, 104)
        ),
    ],
)
def test_all_histories(folder: Path, shape: str, engine: str, strategy: str, seed: int) -> None:
    draw = random.Random(seed)
    query = Query(folder, shape, engine, strategy)
    waits = query.spec.query.misses_sql is not None
    for _ in range(24):
        action = draw.choice(("put", "put", "delete", "name", "name", "batch", "batch"))
        key, ref = draw.randrange(KEYS), draw.randrange(REFS)
        if action == "put":
            query.put(key, ref)
        elif action == "delete" and key in query.current:
            query.delete(key)
        elif action == "name":
            query.name(ref, draw.choice((None, None, "a", "b", "c")))
        elif action == "batch":
            query.run()
            if not waits:
                assert query.found() == query.expected
    if waits:
        for ref in range(REFS):
            query.name(ref, "a")
        query.run()
        for _ in range(30):
            time.sleep(0.003)
            if not query.batch() and not query.rows("out___pending"):
                break
        assert not query.rows("out___pending")
        there = {key: query.current[key][0] for key in query.found()}
        assert {key: v for key, (v, _) in query.found().items()} == there
        if shape != "gives up":
            assert query.found().keys() == query.current.keys()
    else:
        _lose_matches(query)
    assert query.found() == query.recomputed()


def _lose_matches(query: Query) -> None:
    """All rows are joined; then the dimension changes, and the rows are changed and deleted."""
    for ref in range(REFS):
        query.name(ref, "a")
    for key in range(KEYS):
        query.put(key, key % REFS)
    query.run()
    assert len(query.found()) >= KEYS - 1
    query.name(0, None)
    query.name(1, "b")
    query.delete(0)
    query.put(1, 0)
    query.run()
    assert query.found() == query.expected
