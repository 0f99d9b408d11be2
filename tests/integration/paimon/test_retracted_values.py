"""Retracted values do not reappear, whichever files a compaction picks, in both cores."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from tests.java_reads import java_buckets, java_rows

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.java import bucket_compaction
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.procedures.compaction.compact import compact
from streamhouse.procedures.context import Context
from streamhouse.sql.plan import Column

Change: TypeAlias = tuple[str, int, str | None, Any]
"""Row kind, key, text, number or list of numbers."""
COLUMNS = [Column("k", "INT"), Column("s", "STRING"), Column("n", "INT")]
COLLECTING = {
    "merge-engine": "aggregation",
    "fields.n.aggregate-function": "collect",
    "fields.s.aggregate-function": "last_value",
}
LIST = [*COLUMNS[:2], Column("n", "ARRAY<INT>")]
TABLES = {
    "last_non_null_value": {
        "merge-engine": "aggregation",
        "fields.n.aggregate-function": "sum",
    },
    "input": {
        "merge-engine": "aggregation",
        "fields.n.aggregate-function": "sum",
        "changelog-producer": "input",
    },
    "lookup": {
        "merge-engine": "aggregation",
        "fields.n.aggregate-function": "sum",
        "changelog-producer": "lookup",
    },
    "removing": {
        "merge-engine": "partial-update",
        "partial-update.remove-record-on-delete": "true",
    },
}
WAYS: dict[str, Callable[[Context, str], object]] = {
    "maintenance": lambda context, table: context.sidecar.compact(table),
    "open writer": lambda context, table: context.sidecar.compact(table, keep=True),
    "procedure": lambda context, table: compact(context, table, compact_strategy="minor"),
}
numbers = itertools.count()


class Written:
    """A table with a large file, and small ones above it."""

    def __init__(self, context: Context, options: dict[str, str]) -> None:
        self.name, self._context = f"db.t{next(numbers)}", context
        self._user, self._commits = str(uuid.uuid4()), 0
        collecting = "collect" in options.values()
        columns = LIST if collecting else COLUMNS
        self._type = pa.list_(pa.int32()) if collecting else pa.int32()
        one = [1] if collecting else 1
        context.warehouse.create_table(
            "db", self.name.partition(".")[2], columns, ["k"], [], {"bucket": "1", **options}
        )
        self.commit(*(("+I", key, f"t{key}", one) for key in range(20_000)))
        context.sidecar.compact(self.name, full=True)

    def commit(self, *changes: Change) -> None:
        names = ("rowkind", "k", "s", "n")
        rows = [dict(zip(names, change, strict=True)) for change in changes]
        schema = pa.schema([("rowkind", pa.string()), ("k", pa.int32()), ("s", pa.string()),
                            ("n", self._type)])  # fmt: skip
        options = self._context.warehouse.options
        self._commits += 1
        writer = TableWriter(options, self.name, self._user)
        writer.write(pa.RecordBatch.from_pylist(rows, schema=schema))
        messages = writer.prepare(self._commits)
        writer.close()
        TableCommitter(options, self.name, self._user).commit(self._commits, messages)

    def row(self, key: int) -> object:
        """The row of a key, as both cores read it."""
        table = self._context.warehouse.table(self.name)
        ours = [r for b in table.read() for r in b.to_pylist() if r["k"] == key]
        java = [r for r in java_rows(self._context.sidecar, self.name).to_pylist() if r["k"] == key]
        assert ours == java
        return ours[0]

    @property
    def files(self) -> int:
        return java_buckets(self._context.sidecar, self.name)[0].files


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Context]:
    folder = tmp_path_factory.mktemp("retracted")
    Warehouse(str(folder)).create_database("db")
    with Context(str(folder)) as made:
        yield made


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", TABLES)
def test_a_compaction_of_new_files_keeps_a_null(context: Context, kind: str, way: str) -> None:
    table = Written(context, TABLES[kind])
    if kind == "removing":
        table.commit(("-D", 7, "t7", 1), ("+I", 7, None, 1))
    else:
        table.commit(("-U", 7, "t7", 1), ("+U", 7, None, 1))
    wanted = {"k": 7, "s": None, "n": 1}
    assert table.row(7) == wanted
    for _ in range(6):
        table.commit(("+I", 8, "again", 1))
    before = table.files
    WAYS[way](context, table.name)
    assert table.files < before
    assert table.row(7) == wanted
    context.sidecar.compact(table.name, full=True)
    assert table.row(7) == wanted


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("producer", ["none", "lookup"])
def test_a_compaction_of_new_files_keeps_elements_out(
    context: Context, producer: str, way: str
) -> None:
    producing = {"changelog-producer": producer} if producer != "none" else {}
    table = Written(context, {**COLLECTING, **producing})
    table.commit(("-U", 7, "t7", [1]), ("+U", 7, "u7", [2]), ("+I", 7, "v7", [3]))
    wanted = {"k": 7, "s": "v7", "n": [2, 3]}
    assert table.row(7) == wanted
    for _ in range(6):
        table.commit(("+I", 8, "again", [1]))
    before = table.files
    WAYS[way](context, table.name)
    assert table.files < before
    assert table.row(7) == wanted
    context.sidecar.compact(table.name, full=True)
    assert table.row(7) == wanted


@pytest.mark.parametrize("way", WAYS)
def test_without_retractions_a_large_file_stays(context: Context, way: str) -> None:
    table = Written(context, TABLES["last_non_null_value"])
    for _ in range(6):
        table.commit(("+I", 8, "again", 1))
    WAYS[way](context, table.name)
    assert table.files == 2


def test_retractions_that_arrive_during_a_compaction(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Java writer picks from the newest files, which may be newer than those looked at."""
    table = Written(context, TABLES["last_non_null_value"])
    for _ in range(6):
        table.commit(("+I", 8, "again", 1))
    looked = bucket_compaction._with_retractions

    def late(jvm: Any, java: Any) -> Any:
        found = looked(jvm, java)
        table.commit(("-U", 7, "t7", 1), ("+U", 7, None, 1))
        return found

    monkeypatch.setattr(bucket_compaction, "_with_retractions", late)
    context.sidecar.compact(table.name)
    assert table.files == 1
    assert table.row(7) == {"k": 7, "s": None, "n": 1}
