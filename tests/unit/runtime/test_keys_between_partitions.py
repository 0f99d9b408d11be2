"""Statements on tables whose primary key lacks the partition key: each key keeps one row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamhouse.errors import SqlError, TableError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime.audit.audit import ExpectedRows
from streamhouse.runtime.execute import execute

Rows = list[tuple[int, ...]]


@pytest.fixture
def lake(tmp_path: Path) -> str:
    execute(str(tmp_path), "CREATE DATABASE d")
    return str(tmp_path)


def make(lake: str, engine: str, more: str = "") -> None:
    execute(
        lake,
        "CREATE TABLE d.t (k INT, p INT, v INT, PRIMARY KEY (k) NOT ENFORCED) PARTITIONED BY (p) "
        f"WITH ('merge-engine' = '{engine}'{more}); INSERT INTO d.t VALUES (1, 1, 3), (2, 2, 2)",
    )


def rows(lake: str) -> list[tuple[Any, ...]]:
    batches = Warehouse(lake).table("d.t").read()
    return sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist())


@pytest.mark.parametrize(
    ("engine", "sql", "left"),
    [
        ("deduplicate", "UPDATE d.t SET v = 5 WHERE k = 1", [(1, 1, 5), (2, 2, 2)]),
        ("deduplicate", "UPDATE d.t SET v = v + 1", [(1, 1, 4), (2, 2, 3)]),
        (
            "deduplicate",
            "MERGE INTO d.t USING (SELECT * FROM (VALUES (1, 7), (2, 8), (3, 9)) AS x (k, v)) AS n "
            "ON t.k = n.k WHEN MATCHED THEN UPDATE SET v = n.v "
            "WHEN NOT MATCHED THEN INSERT (k, p, v) VALUES (n.k, 1, n.v)",
            [(1, 1, 7), (2, 2, 8), (3, 1, 9)],
        ),
        ("deduplicate", "INSERT INTO d.t VALUES (1, 2, 5)", [(1, 2, 5), (2, 2, 2)]),
        ("partial-update", "INSERT INTO d.t VALUES (1, 2, 5)", [(1, 1, 5), (2, 2, 2)]),
        ("first-row", "INSERT INTO d.t VALUES (1, 2, 5)", [(1, 1, 3), (2, 2, 2)]),
        ("aggregation", "INSERT INTO d.t VALUES (1, 2, 5)", [(1, 1, 8), (2, 2, 2)]),
    ],
)
def test_a_written_key_keeps_one_row(lake: str, engine: str, sql: str, left: Rows) -> None:
    make(lake, engine, ", 'fields.v.aggregate-function' = 'sum'" * (engine == "aggregation"))
    execute(lake, sql)
    assert rows(lake) == left


@pytest.mark.parametrize(
    ("engine", "sql"),
    [
        ("deduplicate", "DELETE FROM d.t WHERE k = 1"),
        ("aggregation", "UPDATE d.t SET v = 5 WHERE k = 1"),
        ("aggregation", "DELETE FROM d.t WHERE k = 1"),
    ],
)
def test_what_would_take_a_row_back_changes_nothing(lake: str, engine: str, sql: str) -> None:
    """The core writes no `-U` here, so a new value would be added to a sum as a whole."""
    make(lake, engine, ", 'fields.v.aggregate-function' = 'sum'" * (engine == "aggregation"))
    with pytest.raises(TableError, match="can only upsert its rows, but 1 row.* the key {'k': 1}"):
        execute(lake, sql)
    assert rows(lake) == [(1, 1, 3), (2, 2, 2)]


def test_the_partition_is_changed_by_insert(lake: str) -> None:
    make(lake, "deduplicate")
    with pytest.raises(SqlError, match="'p' is a partition key .* by UPDATE; INSERT the row again"):
        execute(lake, "UPDATE d.t SET p = 5 WHERE k = 1")


@pytest.mark.parametrize(
    ("engine", "target"),
    [
        ("deduplicate", "d.t"),
        ("deduplicate", "d.t PARTITION (p = 2)"),
        ("partial-update", "d.t /*+ OPTIONS('dynamic-partition-overwrite' = 'false') */"),
    ],
)
def test_an_overwrite_that_would_reach_other_partitions_is_refused(
    lake: str, engine: str, target: str
) -> None:
    """Key 1 is in partition 1, and key 3 would go with it."""
    make(lake, engine)
    execute(lake, "INSERT INTO d.t VALUES (3, 1, 3)")
    values = "SELECT 1, 9" if "PARTITION (" in target else "VALUES (1, 2, 9)"
    with pytest.raises(TableError, match="an overwrite would replace rows of other .* TRUNCATE"):
        execute(lake, f"INSERT OVERWRITE {target} {values}")
    assert rows(lake) == [(1, 1, 3), (2, 2, 2), (3, 1, 3)]
    execute(lake, "TRUNCATE TABLE d.t; INSERT INTO d.t VALUES (1, 2, 9)")
    assert rows(lake) == [(1, 2, 9)]


def test_an_overwrite_may_replace_the_whole_table(lake: str) -> None:
    make(lake, "deduplicate")
    whole = "/*+ OPTIONS('dynamic-partition-overwrite' = 'false') */"
    execute(lake, f"INSERT OVERWRITE d.t {whole} VALUES (1, 2, 9), (7, 2, 9)")
    assert rows(lake) == [(1, 2, 9), (7, 2, 9)]
    execute(lake, "INSERT INTO d.t VALUES (2, 1, 5), (7, 1, 5), (1, 1, 6)")
    assert rows(lake) == [(1, 1, 6), (2, 1, 5), (7, 1, 5)]


def test_an_audit_merges_them_with_their_partitions(lake: str) -> None:
    make(lake, "deduplicate")
    table = Warehouse(lake).table("d.t")
    with ExpectedRows(table) as expected:
        for given in ([(1, 1, 3), (2, 2, 2)], [(1, 2, 4)]):
            made = [dict(zip(("k", "p", "v"), one, strict=True)) for one in given]
            expected.write(pa.Table.from_pylist(made, schema=table.arrow_schema))
        found = expected.merged().to_pylist()
    assert sorted(tuple(row.values()) for row in found) == [(1, 2, 4), (2, 2, 2)]
