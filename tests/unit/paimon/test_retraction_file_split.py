"""Changes of a key come to the same row whether one write holds them or each has its own."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from streamhouse.errors import TableError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.write.commit import TableCommitter, TableWriter
from streamhouse.sql.plan import Column

Row = dict[str, Any]
COLUMNS = (Column("k", "INT"), Column("v", "BIGINT"), Column("w", "INT"), Column("s", "STRING"))
SCHEMA = pa.schema(
    [("k", pa.int32()), ("v", pa.int64()), ("w", pa.int32()), ("s", pa.string()),
     ("rowkind", pa.string())]
)  # fmt: skip
GROUP = {"merge-engine": "partial-update", "fields.w.sequence-group": "v,s"}
SUMS = {
    "merge-engine": "aggregation",
    "fields.s.aggregate-function": "last_value",
    "fields.w.aggregate-function": "last_value",
}
TABLES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "sequence": {"sequence.field": "w"},
    "removing": {
        "merge-engine": "partial-update",
        "partial-update.remove-record-on-delete": "true",
    },
    "group": GROUP,
    **{
        f"{name} {function}": {**options, "fields.v.aggregate-function": function}
        for name, options in (("group", GROUP), ("aggregation", SUMS))
        for function in ("sum", "last_value", "last_non_null_value")
    },
    "aggregation, removing": {
        **SUMS,
        "fields.v.aggregate-function": "sum",
        "aggregation.remove-record-on-delete": "true",
    },
}


class Written:
    """A table, and how it is written."""

    def __init__(self, warehouse: Warehouse, name: str, options: dict[str, str]) -> None:
        self._warehouse, self._name = warehouse, f"db.{name}"
        warehouse.create_table("db", name, COLUMNS, ["k"], [], {"bucket": "1", **options})
        self._user, self._commits = str(uuid.uuid4()), 0

    def put(self, *writes: Sequence[Row]) -> None:
        """One commit of batches."""
        self._commits += 1
        writer = TableWriter(self._warehouse.options, self._name, self._user)
        try:
            for rows in writes:
                writer.write(pa.RecordBatch.from_pylist(list(rows), schema=SCHEMA))
            messages = writer.prepare(self._commits)
        finally:
            writer.close()
        committer = TableCommitter(self._warehouse.options, self._name, self._user)
        committer.commit(self._commits, messages)

    def rows(self) -> list[Row]:
        table = self._warehouse.table(self._name)
        return sorted((r for b in table.read() for r in b.to_pylist()), key=lambda row: row["k"])


def history(draw: random.Random) -> list[Row]:
    """Changes of two keys: `-U` and `+U` in pairs, a `-D` of what is there."""
    there: dict[int, Row] = {}
    found: list[Row] = []
    for moment in range(draw.randint(3, 12)):
        key = draw.randrange(2)
        new = {"k": key, "v": draw.randrange(1, 50), "w": moment, "s": f"t{moment}"}
        if draw.random() < 0.3:
            new["s"] = None
        old = there.pop(key, None)
        if old is not None and draw.random() < 0.3:
            found.append({**old, "rowkind": "-D"})
            continue
        if old is not None:
            found.append({**old, "rowkind": "-U"})
        found.append({**new, "rowkind": "+I" if old is None else "+U"})
        there[key] = new
    return found


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(
    ("seed", "histories"),
    [(0, 1), *(pytest.param(one, 3, marks=pytest.mark.soak) for one in range(20))],
)
def test_one_write_or_many_make_the_same_rows(
    warehouse: Warehouse, kind: str, seed: int, histories: int
) -> None:
    draw = random.Random(f"{kind} {seed}")
    for number in range(histories):
        changes = history(draw)
        apart = Written(warehouse, f"apart{number}", TABLES[kind])
        at_once = Written(warehouse, f"once{number}", TABLES[kind])
        for change in changes:
            apart.put([change])
        first = draw.randrange(len(changes))
        for change in changes[:first]:
            at_once.put([change])
        cut = draw.randrange(first, len(changes))
        at_once.put(*(part for part in (changes[first:cut], changes[cut:]) if part))
        assert at_once.rows() == apart.rows(), changes


@pytest.mark.parametrize("kind", ["removing", "aggregation, removing"])
def test_a_record_that_was_removed_starts_anew(warehouse: Warehouse, kind: str) -> None:
    old = {"k": 1, "v": 6, "w": 1, "s": "a"}
    new = {"k": 1, "v": 2, "w": 2, "s": None}
    apart, at_once = (Written(warehouse, name, TABLES[kind]) for name in ("apart", "once"))
    changes: list[Row] = [
        {**old, "rowkind": "+I"}, {**old, "rowkind": "-D"}, {**new, "rowkind": "+I"}
    ]  # fmt: skip
    for change in changes:
        apart.put([change])
    at_once.put(changes[:1])
    at_once.put(changes[1:])
    assert apart.rows() == at_once.rows() == [new]


def test_a_factor_is_not_taken_back(warehouse: Warehouse) -> None:
    options = {**SUMS, "fields.v.aggregate-function": "product"}
    table = Written(warehouse, "product", options)
    old = {"k": 1, "v": 6, "w": 1, "s": "a"}
    table.put([{**old, "rowkind": "+I"}, {**old, "v": 2, "rowkind": "+I"}])
    update = [{**old, "rowkind": "-U"}, {**old, "v": 14, "rowkind": "+U"}]
    with pytest.raises(TableError, match="'v' is merged by product.*'fields.v.ignore-retract'"):
        table.put(update)
    assert [row["v"] for row in table.rows()] == [12]

    options["fields.v.ignore-retract"] = "true"
    keeping = Written(warehouse, "keeping", options)
    keeping.put([{**old, "rowkind": "+I"}])
    keeping.put(update)
    assert [row["v"] for row in keeping.rows()] == [84]
