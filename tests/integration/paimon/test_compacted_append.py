"""A stream's first read of an append table that the real Java core has compacted."""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.changelog.snapshot_units import has_compacted_files
from streamhouse.paimon.changelog.stream_source import PaimonSource
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.read.table import Table

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
COMMITS = 8


def numbers(lake: Any, table: Table) -> list[int]:
    """The first read, as all batches of a new stream."""
    source = PaimonSource(lake.options, table.identifier)
    start, found = source.initial_offset(), []
    while (end := source.latest_offset(start)) != start:
        for partition in source.partitions(start, end):
            found += [n for batch in source.read(partition) for n in batch.column("n").to_pylist()]
        start = end
    return found


def test_it_follows_the_commits_while_all_exist(lake: Any, java: Sidecar) -> None:
    name = lake.create("notes", {"bucket": "-1", "compaction.min.file-num": "4"}, SCHEMA, [])
    for number in range(COMMITS):
        # Compaction merges small files first, so the oldest row comes last.
        text = os.urandom(1000 * (COMMITS - number)).hex()
        lake.commit(name, number, pa.record_batch([[number], [text]], schema=SCHEMA))
    table = Warehouse(lake.options).table(name)
    assert not has_compacted_files(table.splits(COMMITS))
    assert numbers(lake, table) == list(range(COMMITS))
    assert java.compact(name)
    assert has_compacted_files(table.splits(COMMITS + 1))
    assert numbers(lake, table) == list(range(COMMITS))
    os.remove(f"{table.location}/snapshot/snapshot-1")
    by_files = numbers(lake, table)
    assert by_files != list(range(COMMITS)) and sorted(by_files) == list(range(COMMITS))
