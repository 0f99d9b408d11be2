"""Keys of a target that move between rows of the source within a batch: no row is lost."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.runtime.batch_query import BatchQuery
from tests.unit.sql.conftest import Catalog

from streamhouse.connectors.specs import SourceSpec
from streamhouse.runtime.audit.recompute import Recomputation
from streamhouse.runtime.audit.recorded_batches import RecordedBatches
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.runtime.state import pending_rows
from streamhouse.runtime.state.recorded_query import definition_json
from streamhouse.runtime.streaming.tasks import task_run as tasks_of
from streamhouse.runtime.streaming.tasks.task import current_rows_last
from streamhouse.source import ROW_KIND

TABLES = """
CREATE TABLE people (id INT PRIMARY KEY NOT ENFORCED, email STRING, v INT, ref INT)
  WITH ('changelog-producer' = 'input');
CREATE TABLE dim (ref INT PRIMARY KEY NOT ENFORCED, name STRING);
"""
TARGET = "CREATE TABLE by_email (email STRING PRIMARY KEY NOT ENFORCED, id INT, v INT, name STRING)"
JOIN = "JOIN dim FOR SYSTEM_TIME AS OF PROCTIME() AS d ON p.ref = d.ref"
HINT = (
    "/*+ LOOKUP('table'='d', 'retry-predicate'='lookup_miss', 'retry-strategy'='fixed_delay', "
    "'fixed-delay'='1ms', 'max-attempts'='1000') */"
)
QUERIES = {
    "copied": "SELECT email, id, v, CAST(NULL AS STRING) FROM people",
    "filtered": "SELECT email, id, v, 'x' FROM people WHERE v < 3",
    "nested": "SELECT e, i, v, 'x' FROM (SELECT id AS i, LOWER(email) AS e, v FROM people) AS q",
    "joined": f"SELECT p.email, p.id, p.v, d.name FROM people AS p LEFT {JOIN}",
    "inner": f"SELECT p.email, p.id, p.v, d.name FROM people AS p {JOIN}",
    "waits": f"SELECT {HINT} p.email, p.id, p.v, d.name FROM people AS p {JOIN}",
    "united": "SELECT email, id, v, 'low' FROM people WHERE v < 2 "
    "UNION ALL SELECT email, id, v, 'high' FROM people WHERE v >= 2",
}
ENGINES = {
    "deduplicate": "",
    "input": "'changelog-producer' = 'input'",
    "partial-update": "'merge-engine' = 'partial-update', "
    "'partial-update.remove-record-on-delete' = 'true'",
}
INT = pa.int32()
PEOPLE = pa.schema(
    [("id", INT), ("email", pa.string()), ("v", INT), ("ref", INT), (ROW_KIND, pa.string())]
)
DIM = pa.schema([("ref", INT), ("name", pa.string())])
REFS = 3
Row = tuple[Any, ...]


class Query(BatchQuery):
    """One query over the changelog of `people`, run batch by batch in this process."""

    def __init__(self, folder: Path, name: str, engine: str, buckets: int) -> None:
        super().__init__(folder)
        catalog = Catalog()
        more = ENGINES[engine]
        catalog.add(f"{TABLES} {TARGET} WITH ({more});" if more else f"{TABLES} {TARGET};")
        for table_name, table in catalog.tables.items():
            options = {**table.options, "bucket": str(buckets)}
            key = table.primary_key
            self.warehouse.create_table("default", table_name, table.columns, key, (), options)
        query = catalog.stream(f"INSERT INTO by_email {QUERIES[name]}")
        target, waits = self._address("by_email"), name == "waits"
        waiting, lost = target.auxiliary_table("pending"), target.auxiliary_table("unmatched")
        if waits:
            pending_rows.create_tables(waiting, lost, query.source.columns, changelog=True)
        spec = QuerySpec(
            query,
            SourceSpec("paimon", {}, query.source.columns, self._address("people")),
            tuple(self._address("dim") for _ in query.lookups),
            target,
            "q",
            4,
        )
        self._start(spec)
        self._name = name
        self._changes: dict[int, list[Row]] = {}
        self._names: dict[int, str] = {}
        self.people: dict[int, Row] = {}

    def change(self, key: int, row: Row | None) -> None:
        """Insert, update or delete (None) a row (email, v, ref) of `people`; see `commit`."""
        changes, before = self._changes.setdefault(key, []), self.people.get(key)
        if before is not None:
            changes.append((key, *before, "-D" if row is None else "-U"))
        if row is None:
            self.people.pop(key, None)
        else:
            changes.append((key, *row, "+I" if before is None else "+U"))
            self.people[key] = row

    def commit(self) -> None:
        """Write the changes to `people`, as a compaction would write them: key by key."""
        rows = [row for key in sorted(self._changes) for row in self._changes[key]]
        self._changes = {}
        if rows:
            named = [dict(zip(PEOPLE.names, row, strict=True)) for row in rows]
            self._write("people", named, PEOPLE)

    def name(self, ref: int) -> None:
        self._names[ref] = f"name {ref}"
        self._write("dim", [{"ref": ref, "name": self._names[ref]}], DIM)

    def waiting(self) -> int:
        return 0 if self.spec.pending is None else len(self.rows("by_email__pending"))

    def found(self) -> list[Row]:
        return sorted(tuple(row.values()) for row in self.rows("by_email"))

    def expected(self) -> list[Row]:
        """The rows of the query over the rows of `people` now."""
        rows = []
        for key, (email, v, ref) in self.people.items():
            name = {
                "copied": None,
                "united": "low" if v < 2 else "high",
                "joined": self._names.get(ref),
                "inner": self._names.get(ref),
                "waits": self._names.get(ref),
            }.get(self._name, "x")
            absent = (self._name == "filtered" and v >= 3) or (
                self._name in ("inner", "waits") and name is None
            )
            if not absent:
                rows.append((email, key, v, name))
        return sorted(rows)

    def recomputed(self) -> tuple[list[Row], Counter[Row]]:
        """The target as the audit computes it, and how often each row was added and not removed."""
        there: dict[str, Row] = {}
        counts: Counter[Row] = Counter()
        definitions = {"f": definition_json(self.spec)}
        audit = Recomputation(RecordedBatches(self.spec.target, (), definitions))
        for step in audit.steps(self._batches):
            for row in step.rows.to_pylist():
                kind, values = row.pop(ROW_KIND), tuple(row.values())
                removes = kind in ("-U", "-D")
                counts[values] += -1 if removes else 1
                if removes:
                    there.pop(values[0], None)
                else:
                    there[values[0]] = values
        return sorted(there.values()), +counts


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(tasks_of, "CHUNK_ROWS", 2)
    yield tmp_path


@pytest.mark.parametrize("name", QUERIES)
def test_two_rows_swap_their_keys_in_one_batch(folder: Path, name: str) -> None:
    query = Query(folder, name, "deduplicate", 1)
    query.name(1)
    query.change(1, ("a", 1, 1))
    query.change(2, ("b", 2, 1))
    query.commit()
    query.batch()
    query.change(1, ("b", 1, 1))
    query.change(2, ("a", 2, 1))
    query.commit()
    query.batch()
    assert query.found() == query.expected()
    assert [row[0] for row in query.found()] == ["a", "b"]


SEEDS = [
    *((name, "deduplicate", seed) for seed, name in enumerate(QUERIES)),
    *(
        (name, engine, 10)
        for name in ("copied", "joined")
        for engine in ("input", "partial-update")
    ),
]


@pytest.mark.parametrize(
    ("name", "engine", "seed"),
    [
        *SEEDS,
        *(
            pytest.param(name, engine, seed, marks=pytest.mark.soak)
            for name in QUERIES
            for engine in ENGINES
            for seed in range(100, 120)
        ),
    ],
)
def test_all_moves_of_keys(folder: Path, name: str, engine: str, seed: int) -> None:
    """Emails are unique whenever a batch is planned, as in a table with a unique index."""
    draw = random.Random(seed)
    query = Query(folder, name, engine, draw.choice((1, 1, 3)))
    names = name != "joined" and name != "inner"
    for ref in range(0 if name == "waits" else REFS):
        query.name(ref)
    spare = list("abcdefg")
    for _ in range(60):
        key = draw.randrange(5)
        other = draw.choice([*query.people, key])
        row = query.people.get(key)
        action = draw.choice(("swap", "swap", "move", "move", "value", "leave", "batch", "name"))
        if action == "swap" and row and key != other:
            taken = query.people[other]
            query.change(key, (f"temporary {key}", *row[1:]))
            query.change(other, (row[0], *taken[1:]))
            query.change(key, (taken[0], *row[1:]))
        elif action == "move" and spare:
            email = spare.pop(draw.randrange(len(spare)))
            if row:
                spare.append(row[0])
            query.change(key, (email, draw.randrange(5), draw.randrange(REFS)))
        elif action == "value" and row:
            query.change(key, (row[0], draw.randrange(5), row[2]))
        elif action == "leave" and row:
            spare.append(row[0])
            query.change(key, None)
        elif action == "batch":
            query.commit()
            query.batch()
        elif action == "name" and names:
            query.name(draw.randrange(REFS))
    query.commit()
    for ref in range(REFS):
        query.name(ref)
    for _ in range(50):
        time.sleep(0.003)
        if not query.batch() and not query.waiting():
            break
    assert query.found() == query.expected()
    recomputed, added = query.recomputed()
    assert recomputed == query.found()
    assert added == Counter(query.found())


def test_rows_keep_their_order_before_the_current_ones() -> None:
    rows = [(1, "-U"), (1, "+U"), (1, "-U"), (1, "+U"), (2, "-D"), (3, "+I"), (3, "-D"), (4, "+I")]
    changes = pa.table(
        {
            "id": [key for key, _ in rows],
            ROW_KIND: [kind for _, kind in rows],
            "place": list(range(len(rows))),
        }
    )
    ordered = current_rows_last(changes, ["id"])
    assert ordered.column("place").to_pylist() == [0, 1, 2, 4, 5, 6, 3, 7]
