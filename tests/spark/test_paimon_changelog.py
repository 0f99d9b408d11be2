"""Streams over tables whose changelog the official Java core makes when it compacts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.java_reads import java_rows

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.stream_source import PaimonSource
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.sql.plan import Column

SIGNS = {"+I": 1, "+U": 1, "-U": -1, "-D": -1}


class Sums:
    """A table of sums, and a reader that adds up what the stream says of it."""

    def __init__(self, folder: Path, producer: str) -> None:
        self.warehouse = Warehouse(str(folder))
        self.warehouse.create_database("db")
        options = {
            "bucket": "1",
            "merge-engine": "aggregation",
            "fields.v.aggregate-function": "sum",
            "changelog-producer": producer,
        }
        columns = [Column("k", "INT"), Column("v", "BIGINT")]
        self.warehouse.create_table("db", "t", columns, ["k"], options=options)
        self.batch = 0
        self.seen: dict[int, int] = {}

    def add(self, *rows: tuple[int, int]) -> None:
        self.batch += 1
        writer = TableWriter(self.warehouse.options, "db.t", "user")
        writer.write(pa.RecordBatch.from_pylist([{"k": k, "v": v} for k, v in rows]))
        messages = writer.prepare(self.batch)
        assert TableCommitter(self.warehouse.options, "db.t", "user").commit(self.batch, messages)

    def follow(self, source: PaimonSource, start: dict[str, Any]) -> dict[str, Any]:
        end = source.latest_offset(start)
        for partition in source.partitions(start, end):
            for batch in source.read(partition):
                for row in batch.to_pylist():
                    change = SIGNS[row["rowkind"]] * row["v"]
                    self.seen[row["k"]] = self.seen.get(row["k"], 0) + change
        return end

    def source(self) -> PaimonSource:
        return PaimonSource(self.warehouse.options, "db.t")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "warehouse"


@pytest.mark.parametrize("producer", ["full-compaction", "lookup"])
def test_rows_that_wait_for_compaction_are_reported_once(folder: Path, producer: str) -> None:
    sums = Sums(folder, producer)
    with Sidecar(sums.warehouse.options) as sidecar:
        sums.add((1, 10), (2, 20))
        sidecar.compact("db.t", full=True)
        sums.add((1, 5), (3, 30))
        source = sums.source()
        offset = sums.follow(source, {})
        assert sums.seen == {1: 10, 2: 20}
        assert source.latest_offset(offset) == offset
        sidecar.compact("db.t", full=True)
        offset = sums.follow(source, offset)
        assert sums.seen == {1: 15, 2: 20, 3: 30}
        sums.add((2, 1))
        assert sums.source().latest_offset(offset) == offset
        sidecar.compact("db.t", full=True)
        sums.follow(sums.source(), offset)
        assert sums.seen == {1: 15, 2: 21, 3: 30}


def test_compactions_of_a_table_without_changelog_bring_nothing(folder: Path) -> None:
    sums = Sums(folder, "none")
    with Sidecar(sums.warehouse.options) as sidecar:
        sums.add((1, 10))
        sums.add((1, 1))
        source = sums.source()
        offset = sums.follow(source, {})
        assert sums.seen == {1: 11}
        sidecar.compact("db.t", full=True)
        assert source.latest_offset(offset) == offset
        sums.add((1, 4))
        sums.follow(source, offset)
        assert sums.seen == {1: 15}
        assert java_rows(sidecar, "db.t").to_pylist() == [{"k": 1, "v": 15}]
