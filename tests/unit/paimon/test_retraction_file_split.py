"""Changes of a key give the same row, whether one write has them all or each has one."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pytest
from tests.unit.paimon.written_table import Row, WrittenTable

from streamhouse.errors import TableError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.sql.plan import Column

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
SEEDS = range(*map(int, os.environ.get("STREAMHOUSE_RETRACTION_SEEDS", "0:20").split(":")))
"""The soaked seeds, each with 50 histories of each kind of table."""
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
    "aggregation, sequence": {
        "merge-engine": "aggregation",
        "fields.s.aggregate-function": "last_value",
        "fields.v.aggregate-function": "sum",
        "sequence.field": "w",
    },
    "aggregation, removing": {
        **SUMS,
        "fields.v.aggregate-function": "sum",
        "aggregation.remove-record-on-delete": "true",
    },
}


PAIRED = ("removing",)
"""Tables into which no `-U` may come without its `+U` in the same commit.

There a `-U` alone is a row that has left the query's result, so it removes the record. An update
is one binlog event or one snapshot of its source, and sources read these whole, so both rows of an
update are in one commit.
"""
_KEYS = 2


class Written(WrittenTable):
    def __init__(self, warehouse: Warehouse, name: str, options: dict[str, str]) -> None:
        super().__init__(warehouse, name, COLUMNS, SCHEMA, options)

    def rows(self) -> list[Row]:
        found = [row for batch in self.table.read() for row in batch.to_pylist()]
        return sorted(found, key=lambda row: row["k"])


def history(draw: random.Random, number: int) -> list[list[Row]]:
    """Changes of two keys: pairs of `-U` and `+U`, a `-D` of what is there, rows over others."""
    there: dict[int, Row] = {}
    found: list[list[Row]] = []
    for instant in range(draw.randint(3, 12)):
        key = _KEYS * number + draw.randrange(_KEYS)
        new = {"k": key, "v": draw.randrange(1, 50), "w": instant, "s": f"t{instant}"}
        for name in ("s", "v"):
            if draw.random() < 0.3:
                new[name] = None
        old = there.pop(key, None)
        if old is not None and draw.random() < 0.3:
            found.append([{**old, "rowkind": "-D"}])
            continue
        if old is None or draw.random() < 0.1:
            found.append([{**new, "rowkind": "+I"}])
        else:
            found.append([{**old, "rowkind": "-U"}, {**new, "rowkind": "+U"}])
        there[key] = new
    return found


def _flat(changes: Iterable[Sequence[Row]]) -> list[Row]:
    return [row for change in changes for row in change]


def _mixed(draw: random.Random, histories: Sequence[Sequence[list[Row]]]) -> list[list[Row]]:
    """The changes of all histories, those of each in their order."""
    order = [number for number, changes in enumerate(histories) for _ in changes]
    draw.shuffle(order)
    remaining = [iter(changes) for changes in histories]
    return [next(remaining[number]) for number in order]


def _put_apart(table: Written, histories: Sequence[Sequence[list[Row]]]) -> None:
    """Commits with one change of each history."""
    for changes in itertools.zip_longest(*histories, fillvalue=[]):
        table.put(_flat(changes))


def _put_together(
    table: Written, histories: Sequence[Sequence[list[Row]]], draw: random.Random
) -> None:
    """Three commits of several batches."""
    cuts = [sorted(draw.randrange(len(one) + 1) for _ in range(2)) for one in histories]
    bounds = [[0, *cut, len(one)] for cut, one in zip(cuts, histories, strict=True)]
    for part in range(3):
        now = [one[at[part] : at[part + 1]] for one, at in zip(histories, bounds, strict=True)]
        rows = _flat(_mixed(draw, now))
        ends = sorted(draw.randrange(len(rows) + 1) for _ in range(2))
        batches = [rows[a:b] for a, b in itertools.pairwise([0, *ends, len(rows)])]
        table.put(*(batch for batch in batches if batch))


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(
    ("seed", "count"),
    [(0, 10), *(pytest.param(one, 50, marks=pytest.mark.soak) for one in SEEDS)],
)
def test_one_write_or_many_make_the_same_rows(
    warehouse: Warehouse, kind: str, seed: int, count: int
) -> None:
    draw = random.Random(f"{kind} {seed}")
    histories = [history(draw, number) for number in range(count)]
    apart, together = (Written(warehouse, name, TABLES[kind]) for name in ("apart", "together"))
    alone = [[[row] for row in _flat(one)] for one in histories]
    _put_apart(apart, histories if kind in PAIRED else alone)
    _put_together(together, histories, draw)
    wanted, found = ({row["k"]: row for row in table.rows()} for table in (apart, together))
    for number, changes in enumerate(histories):
        for key in range(_KEYS * number, _KEYS * (number + 1)):
            assert found.get(key) == wanted.get(key), changes


@pytest.mark.parametrize("kind", ["removing", "aggregation, removing"])
def test_a_record_that_was_removed_starts_again(warehouse: Warehouse, kind: str) -> None:
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


@pytest.mark.parametrize("kind", ["aggregation last_non_null_value", "group last_non_null_value"])
def test_a_value_that_was_taken_back_is_null(warehouse: Warehouse, kind: str) -> None:
    table = Written(warehouse, "nulled", TABLES[kind])
    old: Row = {"k": 1, "v": 6, "w": 1, "s": "a"}
    new: Row = {**old, "v": None, "w": 2}
    table.put([{**old, "rowkind": "+I"}])
    assert table.put([{**old, "rowkind": "-U"}, {**new, "rowkind": "+U"}]) == 2
    assert [row["v"] for row in table.rows()] == [None]


def test_few_rows_need_files_of_their_own(warehouse: Warehouse) -> None:
    options = {
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
        "fields.w.aggregate-function": "max",
        "fields.w.ignore-retract": "true",
    }
    table = Written(warehouse, "few", options)
    versions: list[Row] = [{"k": 1, "v": 1, "w": n, "s": f"t{n}"} for n in range(50)]
    updates = [
        {**row, "rowkind": kind}
        for old, new in itertools.pairwise(versions)
        for kind, row in (("-U", old), ("+U", new))
    ]
    other: Row = {"k": 2, "v": 1, "w": 0, "s": "other", "rowkind": "+I"}
    assert table.put([{**versions[0], "rowkind": "+I"}, other]) == 1
    assert table.put(updates[:40], updates[40:]) == 1
    deleted: Row = {**versions[-1], "rowkind": "-D"}
    added: Row = {"k": 2, "v": 5, "w": 1, "s": "later", "rowkind": "+I"}
    # As the only row of its key, a `-D` keeps its kind; after other rows it does not.
    assert table.put([deleted, added]) == 1
    again: Row = {**versions[0], "rowkind": "+I"}
    assert table.put([again, {**again, "rowkind": "-D"}, added]) == 2
    assert [(row["v"], row["s"]) for row in table.rows()] == [(0, None), (11, "later")]


def test_retractions_of_a_sequence_are_not_merged(warehouse: Warehouse) -> None:
    """A row that is written after a retraction may be merged before it, by its sequence."""
    options = {
        "merge-engine": "aggregation",
        "sequence.field": "w",
        "fields.v.aggregate-function": "last_non_null_value",
    }
    table = Written(warehouse, "late", options)
    old: Row = {"k": 1, "v": 6, "w": 4, "s": "a"}
    late: Row = {**old, "v": 7, "w": 3}
    table.put([{**old, "rowkind": "+I"}])
    assert table.put([{**old, "rowkind": "-D"}, {**late, "rowkind": "+I"}]) == 2
    assert [row["v"] for row in table.rows()] == [None]
    newer: Row = {**old, "v": 8, "w": 5}
    assert table.put([{**old, "rowkind": "-D"}, {**newer, "rowkind": "+I"}]) == 1
    assert [row["v"] for row in table.rows()] == [8]
