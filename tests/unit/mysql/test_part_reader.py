"""The order of the rows of several tables that are read as one stream."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from streamhouse.connectors.mysql_cdc.database.part_reader import in_order


@pytest.mark.parametrize("tables", [0, 1, 2, 5])
def test_rows_of_several_tables_come_in_the_order_of_the_binlog(tables: int) -> None:
    chance = random.Random(tables)
    numbers = list(range(100 if tables else 0))
    of_table: list[list[int]] = [[] for _ in range(tables)]
    for number in numbers:
        of_table[chance.randrange(tables)].append(number)
    batches = []
    for table, own in enumerate(of_table):
        # Tables of two kinds: the rows of one kind have a column more.
        columns = {"id": pa.array(own, pa.int64())}
        if table % 2:
            columns["more"] = pa.array(own, pa.int64())
        batches.append((pa.record_batch(columns), own))
    rows = [row for batch in in_order(batches) for row in batch.to_pylist()]
    assert [row["id"] for row in rows] == numbers
