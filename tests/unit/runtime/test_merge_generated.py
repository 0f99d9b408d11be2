"""MERGE against a plain model: any clauses and conditions, tables with and without a key."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import streamhouse
from streamhouse.errors import StreamhouseError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.sql.plan import Column

USER = "0f8fad5b-d9cb-469f-a165-70867728950e"

Row = tuple[int | None, int | None]
"""`id` and `v`."""


@dataclass(frozen=True)
class Clause:
    """WHEN …: `side` is matched, missing (in the target) or orphan (not in the source)."""

    side: str
    action: str
    """update, delete or insert."""
    limit: int | None
    """The clause is for rows whose `v`, of the target if it is an orphan, is at most this."""

    def sql(self) -> str:
        when = {
            "matched": "MATCHED",
            "missing": "NOT MATCHED",
            "orphan": "NOT MATCHED BY SOURCE",
        }[self.side]
        alias = "t" if self.side == "orphan" else "s"
        condition = "" if self.limit is None else f" AND {alias}.v <= {self.limit}"
        what = {
            "update": f"UPDATE SET v = {'-1' if self.side == 'orphan' else 's.v'}",
            "delete": "DELETE",
            "insert": "INSERT (id, v) VALUES (s.id, s.v)",
        }[self.action]
        return f"WHEN {when}{condition} THEN {what}"

    def applies(self, side: str, v: int | None) -> bool:
        return side == self.side and (self.limit is None or (v is not None and v <= self.limit))


def merged(target: list[Row], source: list[Row], clauses: list[Clause]) -> Counter[Row] | None:
    """The target afterwards; None if a row would be changed twice."""
    left: list[Row] = []
    for row in target:
        found = [other for other in source if row[0] is not None and other[0] == row[0]]
        side = "matched" if found else "orphan"
        acting = [
            (clause.action, other[1])
            for other in found or [row]
            if (clause := next((c for c in clauses if c.applies(side, other[1])), None))
        ]
        if len(acting) > 1:
            return None
        if not acting:
            left.append(row)
        elif acting[0][0] == "update":
            left.append((row[0], -1 if side == "orphan" else acting[0][1]))
    known = {row[0] for row in target} - {None}
    for row in source:
        if row[0] not in known and any(c.applies("missing", row[1]) for c in clauses):
            left.append(row)
    return Counter(left)


numbers = st.none() | st.integers(0, 9)
clause = st.builds(
    Clause, st.just("matched"), st.sampled_from(["update", "delete"]), numbers
) | st.builds(Clause, st.just("missing"), st.just("insert"), numbers)
orphan = st.builds(Clause, st.just("orphan"), st.sampled_from(["update", "delete"]), numbers)
rows = st.lists(st.tuples(st.none() | st.integers(0, 4), numbers), max_size=6)
keyed_rows = st.lists(
    st.tuples(st.integers(0, 4), numbers), max_size=5, unique_by=lambda row: row[0]
)


def ordered(clauses: list[Clause]) -> list[Clause]:
    """A clause without a condition is the last of its side: others after it would be refused."""
    found: list[Clause] = []
    for one in clauses:
        if not any(other.side == one.side and other.limit is None for other in found):
            found.append(one)
    return found


def make(warehouse: Warehouse, name: str, keyed: bool, given_rows: list[Row]) -> None:
    """The table anew, with these rows: of SQL, only the MERGE is under test."""
    warehouse.drop_table("default", name, if_exists=True)
    key = ["id"] if keyed else []
    warehouse.create_table("default", name, [Column("id", "INT"), Column("v", "INT")], key)
    if given_rows:
        table = warehouse.table(f"default.{name}")
        ids, numbers = zip(*given_rows, strict=True)
        columns = [pa.array(ids, pa.int32()), pa.array(numbers, pa.int32())]
        writer = TableWriter(warehouse.options, table.identifier, USER)
        writer.write(pa.RecordBatch.from_arrays(columns, schema=table.arrow_schema))
        messages = writer.prepare(1)
        writer.close()
        TableCommitter(warehouse.options, table.identifier, USER).commit(1, messages)


def play(folder: Path, keyed: bool, target: list[Row], source: list[Row], clauses: str) -> object:
    """The rows of the target after the MERGE, or the error."""
    warehouse = Warehouse(str(folder))
    warehouse.create_database("default", if_not_exists=True)
    make(warehouse, "t", keyed, target)
    make(warehouse, "s", keyed, source)
    try:
        streamhouse.execute(str(folder), f"MERGE INTO t USING s ON t.id = s.id {clauses}")
    except StreamhouseError as error:
        return error
    batches = Warehouse(str(folder)).table("default.t").read()
    return Counter((row["id"], row["v"]) for batch in batches for row in batch.to_pylist())


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "append"])
@pytest.mark.parametrize("examples", [25, pytest.param(400, marks=pytest.mark.soak)])
def test_merge_equals_the_model(
    keyed: bool, examples: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("merge")

    @settings(max_examples=examples)
    @given(
        target=keyed_rows if keyed else rows,
        source=keyed_rows if keyed else rows,
        clauses=st.lists(clause | orphan, min_size=1, max_size=4).map(ordered),
    )
    @example(
        target=[(1, 1)],
        source=[(1, 5), (2, 9)],
        clauses=[Clause("matched", "update", None), Clause("missing", "insert", 5)],
    )
    def check(target: list[Row], source: list[Row], clauses: list[Clause]) -> None:
        text = " ".join(one.sql() for one in clauses)
        wanted = merged(target, source, clauses)
        found = play(folder, keyed, target, source, text)
        if wanted is None:
            assert isinstance(found, StreamhouseError), found
            assert "several" in str(found)
        else:
            assert found == wanted, text

    check()
