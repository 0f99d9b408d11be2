"""Sums that exceed their column's type are refused, however their rows arrive."""

from __future__ import annotations

import random
import uuid
from collections import defaultdict
from decimal import Decimal
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pytest

from streamhouse.errors import TableError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.storage.data_files import data_files
from streamhouse.paimon.write.commit import TableCommitter, overwrite_table
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.sql.plan import Column
from streamhouse.sql.schema_changes import AddColumn, SetType

SUMS = {
    "merge-engine": "aggregation",
    "fields.v.aggregate-function": "sum",
    "bucket": "2",
}
LIMITS = {
    "TINYINT": 2**7 - 1,
    "SMALLINT": 2**15 - 1,
    "INT": 2**31 - 1,
    "BIGINT": 2**63 - 1,
    "DECIMAL(5, 2)": 10**5 - 1,
    "DECIMAL(18, 0)": 10**18 - 1,
    "DECIMAL(20, 3)": 10**20 - 1,
    "DECIMAL(38, 10)": 10**38 - 1,
}


class Sums:
    """A table of sums by key, with a writer and a committer for each of several users."""

    def __init__(self, warehouse: Warehouse, kind: str, **options: str) -> None:
        self.warehouse = warehouse
        columns = [Column("k", "INT"), Column("p", "INT"), Column("v", kind)]
        given = {**SUMS, **{key.replace("_", "-"): value for key, value in options.items()}}
        warehouse.create_table("db", "sums", columns, ["k", "p"], ["p"], given)
        self._committers: dict[str, TableCommitter] = {}
        self._batch = 0

    def put(self, rows: list[dict[str, Any]], user: str = "a", overwrite: bool = False) -> None:
        user = str(uuid.uuid5(uuid.NAMESPACE_OID, user))
        options, name = self.warehouse.options, "db.sums"
        table = self.warehouse.table(name)
        schema = table.arrow_schema
        if rows and "rowkind" in rows[0]:
            schema = schema.append(pa.field("rowkind", pa.string()))
        if user not in self._committers:
            self._committers[user] = TableCommitter(options, name, user)
        writer = TableWriter(options, name, user, overwrite=overwrite)
        self._batch += 1
        try:
            for row in rows:
                writer.write(pa.RecordBatch.from_pylist([row], schema=schema))
            messages = writer.prepare(self._batch)
        finally:
            writer.close()
        if overwrite:
            overwrite_table(table, user, messages)
        else:
            self._committers[user].commit(self._batch, messages)

    def renew(self) -> None:
        self._committers.clear()

    def read(self) -> dict[int, Any]:
        rows = [
            row for batch in self.warehouse.table("db.sums").read() for row in batch.to_pylist()
        ]
        return {row["k"]: row["v"] for row in rows}


def value(kind: str, number: int) -> int | Decimal:
    """A number of a column's type from the unscaled one."""
    if not kind.startswith("DECIMAL"):
        return number
    scale = int(kind.rstrip(")").rsplit(",", 1)[1])
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


def reach(kind: str, values: list[int]) -> int:
    """What the type has to hold: a DECIMAL that became NULL on the way does not come back."""
    sums = list(accumulate(values, initial=0))
    return max(sums) - min(sums) if kind.startswith("DECIMAL") else abs(sums[-1])


@pytest.mark.parametrize("kind", LIMITS)
@pytest.mark.parametrize(
    ("seed", "rounds"),
    # Each round looks at the files of all before it.
    [(1, 20), *(pytest.param(one, 30, marks=pytest.mark.soak) for one in range(10))],
)
def test_a_sum_is_right_or_refused(warehouse: Warehouse, kind: str, seed: int, rounds: int) -> None:
    choice, limit = random.Random(f"{kind} {seed}"), LIMITS[kind]
    sums, model = Sums(warehouse, kind), {key: [0] for key in range(4)}
    sums.put([{"k": key, "p": key % 2, "v": value(kind, 0)} for key in model])
    refused = 0
    for _ in range(rounds):
        size = choice.choice((10, 3, 2, 1))
        rows = [
            (choice.randrange(4), choice.randint(-limit, limit) // size, choice.choice("+-"))
            for _ in range(choice.randint(1, 4))
        ]
        added = defaultdict[int, list[int]](list)
        for key, number, sign in rows:
            added[key].append(number if sign == "+" else -number)
        # The writer adds up its own rows first.
        fits = all(
            reach(kind, numbers) <= limit and reach(kind, [*model[key], sum(numbers)]) <= limit
            for key, numbers in added.items()
        )
        kinds = {"+": "+I", "-": "-D"}
        written = [
            {"k": key, "p": key % 2, "v": value(kind, number), "rowkind": kinds[sign]}
            for key, number, sign in rows
        ]
        if choice.random() < 0.1:
            sums.renew()
        try:
            sums.put(written, choice.choice("ab"))
        except TableError as error:
            assert not fits, (rows, model, str(error))
            assert "exceeds " + kind in str(error)
            refused += 1
        else:
            assert fits, (rows, model)
            for key, numbers in added.items():
                model[key].append(sum(numbers))
        assert sums.read() == {key: value(kind, sum(one)) for key, one in model.items()}
    assert 0 < refused < rounds


def test_the_limits_themselves_fit(warehouse: Warehouse) -> None:
    sums = Sums(warehouse, "BIGINT")
    sums.put([{"k": 1, "p": 0, "v": 2**63 - 2}, {"k": 2, "p": 0, "v": -(2**63) + 1}])
    sums.put([{"k": 1, "p": 0, "v": 1}, {"k": 2, "p": 0, "v": -1}])
    assert sums.read() == {1: 2**63 - 1, 2: -(2**63)}
    with pytest.raises(TableError, match=r"'v' would be 9,223,372,036,854,775,808 where k = 1"):
        sums.put([{"k": 1, "p": 0, "v": 1}])


def test_a_sum_is_refused_if_flink_spelt_the_merge_engine_in_upper_case(
    warehouse: Warehouse,
) -> None:
    sums = Sums(warehouse, "INT", merge_engine="AGGREGATION")
    sums.put([{"k": 1, "p": 1, "v": 2**31 - 1}])
    with pytest.raises(TableError, match="exceeds INT"):
        sums.put([{"k": 1, "p": 1, "v": 1}])
    assert sums.read() == {1: 2**31 - 1}


def test_what_an_overwrite_replaces_does_not_count(warehouse: Warehouse) -> None:
    sums = Sums(warehouse, "TINYINT")
    sums.put([{"k": 1, "p": 0, "v": 100}])
    sums.put([{"k": 1, "p": 0, "v": 120}, {"k": 1, "p": 0, "v": 7}], "o", True)
    with pytest.raises(TableError, match="exceeds TINYINT"):
        sums.put([{"k": 1, "p": 0, "v": 120}, {"k": 1, "p": 0, "v": 8}], "o", True)
    with pytest.raises(TableError, match="exceeds TINYINT"):
        sums.put([{"k": 1, "p": 0, "v": 1}])
    assert sums.read() == {1: 127}


def test_a_refused_overwrite_leaves_no_files(warehouse: Warehouse) -> None:
    sums = Sums(warehouse, "TINYINT")
    table = warehouse.table("db.sums")
    messages = []
    for value in (120, 8):
        writer = TableWriter(warehouse.options, "db.sums", "o", overwrite=True)
        row = {"k": 1, "p": 0, "v": value}
        writer.write(pa.RecordBatch.from_pylist([row], schema=table.arrow_schema))
        messages += writer.prepare(1)
        writer.close()
    assert len(list(data_files(table.files, table.location))) == 2
    with pytest.raises(TableError, match="exceeds TINYINT"):
        overwrite_table(table, "o", messages)
    assert not list(data_files(table.files, table.location))
    assert sums.read() == {}


def test_files_of_earlier_schemas_count(warehouse: Warehouse) -> None:
    sums = Sums(warehouse, "INT")
    sums.put([{"k": 1, "p": 0, "v": 2**31 - 1}])
    warehouse.alter_table("db.sums", AddColumn(Column("note", "STRING")))
    with pytest.raises(TableError, match="exceeds INT"):
        sums.put([{"k": 1, "p": 0, "v": 1}])
    warehouse.alter_table("db.sums", SetType(("v",), "BIGINT"))
    sums.put([{"k": 1, "p": 0, "v": 1}])
    sums.put([{"k": 1, "p": 0, "v": 2**62}])
    with pytest.raises(TableError, match="exceeds BIGINT"):
        sums.put([{"k": 1, "p": 0, "v": 2**62}])
    assert sums.read() == {1: 2**62 + 2**31}


@pytest.mark.parametrize("mode", ["none", "counts"])
def test_files_without_statistics_are_read(warehouse: Warehouse, mode: str) -> None:
    sums = Sums(warehouse, "SMALLINT", **{"metadata.stats-mode": mode})
    sums.put([{"k": 1, "p": 0, "v": 32_000}])
    sums.put([{"k": 1, "p": 0, "v": 767}])
    with pytest.raises(TableError, match="exceeds SMALLINT"):
        sums.put([{"k": 1, "p": 0, "v": 1}])
    assert sums.read() == {1: 32_767}


def test_large_values_of_many_keys_are_no_large_sum(warehouse: Warehouse) -> None:
    sums = Sums(warehouse, "INT")
    for _ in range(2):
        sums.put([{"k": key, "p": 0, "v": 2**30 - 1} for key in range(20)])
    assert sums.read() == dict.fromkeys(range(20), 2**31 - 2)
