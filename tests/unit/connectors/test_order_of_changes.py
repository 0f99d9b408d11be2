"""Sorts the changes of several tables into the order of the binlog."""

from __future__ import annotations

import pyarrow as pa

from streamhouse.connectors.mysql_cdc.database.part_reader import in_order


def batch(**columns: list[object]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_tables_with_the_same_columns_become_one_batch() -> None:
    one, other = batch(id=[1, 4], kind=["+I", "-D"]), batch(id=[2, 3, 5], kind=["-U", "+U", "+I"])
    (rows,) = in_order([(other, [1, 2, 4]), (one, [0, 3])])
    assert rows.to_pydict() == {"id": [1, 2, 3, 4, 5], "kind": ["+I", "-U", "+U", "-D", "+I"]}


def test_tables_with_other_columns_become_runs() -> None:
    narrow, wide = batch(id=[1, 2, 5]), batch(id=[3, 4, 6], v=["a", "b", "c"])
    again = batch(id=[7])
    runs = list(in_order([(narrow, [0, 1, 4]), (wide, [2, 3, 5]), (again, [6])]))
    assert [run.column("id").to_pylist() for run in runs] == [[1, 2], [3, 4], [5], [6], [7]]
    assert [run.schema.names for run in runs] == [["id"], ["id", "v"], ["id"], ["id", "v"], ["id"]]
