"""Rows of a megabyte each, of which few are in memory at a time."""

from __future__ import annotations

import csv
import io
import json
import os
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamhouse.paimon.write.rows import gathered
from streamhouse.serve.formats import row_formats
from streamhouse.serve.formats.row_formats import slices, write_csv, write_rows

MIB = 1 << 20
ROWS = 64


@pytest.fixture(scope="module")
def wide() -> pa.RecordBatch:
    return pa.record_batch({"id": range(ROWS), "text": ["x" * MIB] * ROWS})


def peak(work: Any) -> int:
    """The most memory of Python's own that something takes."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_text_encoding_uses_little_memory(wide: pa.RecordBatch) -> None:
    with open(os.devnull, "wb") as nowhere, open(os.devnull, "w", encoding="utf-8") as text:
        assert peak(lambda: write_rows(nowhere, {}, [wide])) < ROWS * MIB
        assert peak(lambda: write_csv(wide.schema, [wide], text)) < ROWS * MIB


def test_split_batches_give_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"id": i, "tags": [{"n": i, "words": ["a"] * i}], "text": "ü" * i} for i in range(50)]
    batch = pa.RecordBatch.from_pylist(rows)
    monkeypatch.setattr(row_formats, "_TEXT_BYTES", 400)
    out, text = io.BytesIO(), io.StringIO()
    write_rows(out, {"snapshot": 1}, [batch])
    assert json.loads(out.getvalue() + b"}") == {"snapshot": 1, "rows": rows}
    write_csv(batch.schema, [batch, batch.slice(0, 0), batch], text)
    read = list(csv.reader(io.StringIO(text.getvalue())))
    assert read[0] == ["id", "tags", "text"] and len(read) == 101
    assert [line[2] for line in read[1:51]] == [row["text"] for row in rows]


def test_slices_copy_only_their_rows() -> None:
    batch = pa.RecordBatch.from_pylist([{"ids": list(range(100))}] * 100)
    parts = list(slices(batch, 30))
    assert [part.num_rows for part in parts] == [30, 30, 30, 10]
    assert all(len(part.column(0).values) == 100 * part.num_rows for part in parts)
    assert pa.Table.from_batches(parts) == pa.Table.from_batches([batch])


def test_batches_are_combined_up_to_a_size(wide: pa.RecordBatch) -> None:
    ones = [wide.slice(i, 1) for i in range(ROWS)]
    assert [one.num_rows for one in gathered(ones, 1_000, 10 * MIB)] == [10] * 6 + [4]
    assert [one.num_rows for one in gathered(ones, 7, 10 * MIB)] == [7] * 9 + [1]
    assert [one.num_rows for one in gathered(ones, 1_000)] == [ROWS]


def test_row_groups_have_bounded_size(
    wide: pa.RecordBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_formats, "ROW_GROUP_BYTES", 10 * MIB)

    def ones() -> Iterator[pa.RecordBatch]:
        return (wide.slice(i, 1) for i in range(ROWS))

    parquet, stream = io.BytesIO(), io.BytesIO()
    row_formats.write_parquet(parquet, wide.schema, ones(), "zstd")
    file = pq.ParquetFile(io.BytesIO(parquet.getvalue()))
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [10] * 6 + [
        4
    ]
    writer = pa.ipc.new_stream(stream, wide.schema)
    row_formats.write_batches(writer, wide.schema, ones())
    with pa.ipc.open_stream(stream.getvalue()) as reader:
        assert [batch.num_rows for batch in reader] == [8] * 8
