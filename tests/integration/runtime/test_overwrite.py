"""INSERT OVERWRITE of tables whose rows need a compaction: readers see one point in time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.java_reads import java_rows

import streamhouse
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.stream_source import PaimonSource
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.runtime.batch import bounded_statements

COLUMNS = "day_ STRING, id BIGINT, v INT, at_ TIMESTAMP(3)"
HIDDEN = (
    "'deletion-vectors.enabled' = 'true', 'changelog-producer' = 'lookup', 'file.format' = 'orc'"
)
TABLES = f"""
CREATE TABLE raw ({COLUMNS}) WITH ('bucket' = '-1');
CREATE TABLE days ({COLUMNS}, PRIMARY KEY (day_, id) NOT ENFORCED) PARTITIONED BY (day_)
  WITH ('bucket' = '2', 'sequence.field' = 'at_', {HIDDEN});
CREATE TABLE firsts (id BIGINT PRIMARY KEY NOT ENFORCED, v INT)
  WITH ('bucket' = '1', 'merge-engine' = 'first-row');
CREATE TABLE lower_ (id BIGINT PRIMARY KEY NOT ENFORCED, v INT)
  WITH ('bucket' = '1', 'overwrite-upgrade' = 'false', {HIDDEN});
"""


class Lab:
    def __init__(self, folder: Path, java: Sidecar) -> None:
        self.warehouse = Warehouse(str(folder))
        self.java = java

    def run(self, sql: str) -> Any:
        return streamhouse.execute(self.warehouse, sql, self.java)

    def latest(self, table: str) -> int:
        return self.warehouse.table(f"default.{table}").latest_snapshot_id() or 0

    def kinds(self, table: str, after: int) -> list[str]:
        """What the snapshots since one were."""
        found = self.warehouse.table(f"default.{table}")
        return [found.snapshot(n).commit_kind for n in range(after + 1, self.latest(table) + 1)]

    def rows(self, table: str, columns: list[str], snapshot: int | None = None) -> list[Any]:
        """Rows as both cores read them."""
        name = f"default.{table}"
        read = self.warehouse.table(name).read(columns, snapshot=snapshot)
        ours = sorted(tuple(row.values()) for batch in read for row in batch.to_pylist())
        theirs = java_rows(self.java, name, snapshot).select(columns).to_pylist()
        assert ours == sorted(tuple(row.values()) for row in theirs)
        return ours


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("overwrite") / "warehouse"
    with Sidecar({"warehouse": str(folder)}) as java:
        made = Lab(folder, java)
        made.run(TABLES)
        yield made


def at(second: int) -> str:
    return f"TIMESTAMP '2026-06-01 08:00:{second:02}'"


def test_days_are_replaced_in_one_snapshot(lab: Lab) -> None:
    """And go on as others do: later rows win by their sequence, and followers see the change."""
    columns = ["day_", "id", "v"]
    lab.run(
        "INSERT INTO days VALUES "
        + ", ".join(f"('d{n % 2 + 1}', {n}, {n}, {at(1)})" for n in range(12))
    )
    lab.run(f"INSERT INTO raw VALUES ('d1', 2, 20, {at(3)}), ('d1', 2, 19, {at(2)}), "
            f"('d1', 4, 4, {at(1)}), ('d1', 99, 99, {at(1)})")  # fmt: skip
    source = PaimonSource(lab.warehouse.options, "default.days", columns, row_kinds=True)
    before, offset = lab.latest("days"), source.latest_offset({})
    lab.run("INSERT OVERWRITE days SELECT * FROM raw")
    assert lab.kinds("days", before) == ["OVERWRITE"]
    second = [("d2", n, n) for n in range(1, 12, 2)]
    replaced = [("d1", 2, 20), ("d1", 4, 4), ("d1", 99, 99)]
    assert lab.rows("days", columns) == [*replaced, *second]
    end = source.latest_offset(offset)
    output = [
        tuple(row.values())
        for partition in source.partitions(offset, end)
        for batch in source.read(partition)
        for row in batch.to_pylist()
    ]
    assert sorted(output) == sorted(
        [("d1", 2, 2, "-U"), ("d1", 2, 20, "+U"), ("d1", 99, 99, "+I")]
        + [("d1", n, n, "-D") for n in (0, 6, 8, 10)]
    )
    # The second is older than what is there.
    lab.run(f"INSERT INTO days VALUES ('d1', 4, 5, {at(4)}), ('d1', 2, 7, {at(1)})")
    assert lab.rows("days", columns)[:2] == [("d1", 2, 20), ("d1", 4, 5)]


def test_a_named_partition_is_replaced_also_by_nothing(lab: Lab) -> None:
    before = lab.latest("days")
    lab.run(
        f"INSERT OVERWRITE days PARTITION (day_ = 'd3') SELECT id, v, at_ FROM (VALUES "
        f"(CAST(1 AS BIGINT), 1, {at(1)}), (CAST(2 AS BIGINT), 2, {at(1)})) AS t (id, v, at_)"
    )
    assert lab.kinds("days", before) == ["OVERWRITE"]
    assert [row for row in lab.rows("days", ["day_", "id", "v"]) if row[0] == "d3"] == [
        ("d3", 1, 1), ("d3", 2, 2)
    ]  # fmt: skip
    lab.run("INSERT OVERWRITE days PARTITION (day_ = 'd3') SELECT id, v, at_ FROM raw WHERE id < 0")
    assert lab.kinds("days", before) == ["OVERWRITE", "OVERWRITE"]
    assert [row for row in lab.rows("days", ["day_", "id", "v"]) if row[0] == "d3"] == []


def test_the_first_of_each_key_shows_at_once(lab: Lab) -> None:
    lab.run("INSERT INTO firsts VALUES (1, 1), (2, 2)")
    before = lab.latest("firsts")
    lab.run("INSERT OVERWRITE firsts VALUES (2, 5), (2, 6), (3, 7)")
    assert lab.kinds("firsts", before) == ["OVERWRITE"]
    assert lab.rows("firsts", ["id", "v"]) == [(2, 5), (3, 7)]
    lab.run("INSERT INTO firsts VALUES (3, 8), (4, 9)")
    assert lab.rows("firsts", ["id", "v"]) == [(2, 5), (3, 7), (4, 9)]


def test_a_table_option_requests_the_compaction(lab: Lab) -> None:
    lab.run("INSERT INTO lower_ VALUES (1, 1)")
    before = lab.latest("lower_")
    lab.run("INSERT OVERWRITE lower_ VALUES (2, 5), (2, 6), (3, 7)")
    assert lab.kinds("lower_", before) == ["OVERWRITE", "COMPACT"]
    assert lab.rows("lower_", ["id", "v"]) == [(2, 6), (3, 7)]


def test_rows_of_several_files_of_a_bucket_are_compacted(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their keys overlap, so they cannot be read as they were written."""
    whole = bounded_statements._Insert.tables

    def few(insert: bounded_statements._Insert) -> Iterator[pa.Table]:
        for rows in whole(insert):
            yield from (rows.slice(first, 10) for first in range(0, rows.num_rows, 10))

    monkeypatch.setattr(bounded_statements._Insert, "tables", few)
    before = lab.latest("days")
    rows = ", ".join(f"('d4', {n % 9}, {n}, {at(n)})" for n in range(40))
    # Each write fills such a buffer.
    hint = "/*+ OPTIONS('write.parquet-buffer-size' = '1 b') */"
    lab.run(f"INSERT OVERWRITE days {hint} VALUES {rows}")
    assert lab.kinds("days", before) == ["OVERWRITE", "COMPACT"]
    newest = {n % 9: n for n in range(40)}
    found = [row for row in lab.rows("days", ["day_", "id", "v"]) if row[0] == "d4"]
    assert found == [("d4", key, value) for key, value in sorted(newest.items())]
