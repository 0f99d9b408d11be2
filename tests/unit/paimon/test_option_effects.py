"""ALTER TABLE changes no option by which readers would merge stored rows differently."""

from __future__ import annotations

import random
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamhouse.errors import OptionError, StreamhouseError
from streamhouse.paimon.catalog.alter_table import drafted
from streamhouse.paimon.catalog.immutable_options import NEVER, ONCE_FILLED, merged_columns
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.schema import types
from streamhouse.paimon.schema.options.table_options import (
    FIELD_TYPES,
    FLINK_KEYS,
    TYPES,
    value_type,
)
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.sql.plan import Column
from streamhouse.sql.schema_changes import (
    AddColumn,
    RenameColumn,
    ResetTableOption,
    SetTableOption,
    SetType,
)

FIXED = """
aggregation.remove-record-on-delete blob-descriptor-field blob-field branch bucket
bucket-function.type bucket-key changelog-producer data-evolution.enabled
data-file.path-directory deletion-vectors.enabled dynamic-bucket.initial-buckets
fields.default-aggregate-function force-lookup ignore-delete ignore-update-before
index-file-in-data-file-dir merge-engine orc.timestamp-ltz.legacy.type
partial-update.remove-record-on-delete partial-update.remove-record-on-sequence-group partition
partition.default-name partition.legacy-name path pk-clustering-override primary-key
row-tracking.enabled rowkind.field sequence.field sequence.field.sort-order type
"""
"""Options that decide which rows are read from the files there are."""

SOMETIMES = """
changelog-producer deletion-vectors.enabled ignore-delete ignore-update-before
orc.timestamp-ltz.legacy.type
"""
"""Those for which `check_option` has rules: they can be changed while no file is read otherwise."""

EACH_READ = ("scan.", "incremental-", "batch-scan-mode", "stream-scan-mode", "consumer")
"""Options of reads rather than of files: they say which snapshots are read."""
RETAINED = ("record-level.",)
"""Rows expire with time, without a snapshot, whenever the options were set."""
ELSEWHERE = ("data-file.external-paths", "global-index.external-path", "commit.callbacks")
"""Options that name places or classes, which a generated value does not."""
VALUES = {
    "BOOLEAN": ["true", "false"], "INT": ["1", "3", "7"], "BIGINT": ["1", "1000"],
    "DOUBLE": ["0.5"], "MEMORY SIZE": ["1 mb", "64 mb"], "DURATION": ["1 s", "1 h"],
}  # fmt: skip
COLUMNS = [Column("k", "INT"), Column("s", "INT"), Column("v", "INT"), Column("w", "STRING")]
USER = str(uuid.uuid4())


class Filled:
    """A table of two commits, with two rows of each key."""

    def __init__(self, lake: Path, options: dict[str, str]) -> None:
        self.warehouse = Warehouse(str(lake))
        self.warehouse.create_database("db", if_not_exists=True)
        self.warehouse.create_table("db", "t", COLUMNS, ["k"], options={"bucket": "1", **options})
        for number in range(2):
            self.put(number, [{"k": k, "s": 9 - number, "v": k + number} for k in range(3)])

    def put(self, number: int, rows: list[dict[str, Any]]) -> None:
        columns = [(c.name, c.type) for c in self.warehouse.table("db.t").columns]
        kinds = [(name, types.arrow_type(types.parse(kind))) for name, kind in columns]
        batch = pa.RecordBatch.from_pylist(rows, schema=pa.schema(kinds))
        writer = TableWriter(self.warehouse.options, "db.t", USER)
        messages = writer.write_all([batch], number)
        TableCommitter(self.warehouse.options, "db.t", USER).commit(number, messages)

    def set(self, **options: str) -> None:
        changes = [SetTableOption(key, value) for key, value in options.items()]
        self.warehouse.alter_table("db.t", *changes)

    def rows(self) -> list[tuple[Any, ...]]:
        read = self.warehouse.table("db.t").read()
        return sorted(tuple(row.values()) for batch in read for row in batch.to_pylist())


def test_each_option_is_fixed_or_not() -> None:
    """A new option in `table_options` needs a decision here, and in `immutable_options`."""
    fixed = {*NEVER, *ONCE_FILLED, *SOMETIMES.split()} & {*TYPES, *FLINK_KEYS}
    assert fixed == set(FIXED.split())
    free = {what for what in FIELD_TYPES if not merged_columns(f"fields.v.{what}", None, "x")}
    assert free == {"stats-mode"}


ENGINES = {
    "deduplicate": {"sequence.field": "s"},
    "aggregation": {"fields.v.aggregate-function": "sum"},
    "partial-update": {"fields.s.sequence-group": "v"},
}


@pytest.mark.parametrize("engine", ENGINES)
def test_no_option_changes_what_is_read_without_a_commit(tmp_path: Path, engine: str) -> None:
    """Each option with generated values: refused, or all rows are read as before."""
    filled = Filled(tmp_path, {"merge-engine": engine, **ENGINES[engine]})
    before, table = filled.rows(), filled.warehouse.table("db.t")
    keys = [key for key in TYPES if not key.startswith((*EACH_READ, *RETAINED, *ELSEWHERE))]
    keys += [f"fields.v.{what}" for what in FIELD_TYPES] + ["fields.w.aggregate-function"]
    accepted: dict[str, str] = {}
    for key in random.Random(engine).sample(keys, len(keys)):
        kind = value_type(key)
        words = kind.split(" | ") if " | " in kind else ["s", "v", "sum", "last_value"]
        for value in VALUES.get(kind, words):
            text = value.replace("<length>", "8")
            try:
                drafted(table, [SetTableOption(key, text)])
            except StreamhouseError:
                continue
            accepted[key] = text
    assert len(accepted) > 150
    given = list(accepted.items())
    for start in range(0, len(given), 20):
        options = dict(given[start : start + 20])
        found = filled.warehouse.table("db.t", options).read()
        rows = sorted(tuple(row.values()) for batch in found for row in batch.to_pylist())
        assert rows == before, options


CHANGES = [
    ("deduplicate", "sequence.field", "v"),
    ("deduplicate", "sequence.field.sort-order", "descending"),
    ("aggregation", "fields.v.aggregate-function", "max"),
    ("aggregation", "fields.default-aggregate-function", "min"),
    ("partial-update", "fields.s.sequence-group", "v,w"),
    ("partial-update", "fields.w.sequence-group", "s"),
]


@pytest.mark.parametrize(("engine", "key", "value"), CHANGES)
def test_merging_is_fixed_once_there_are_rows(
    tmp_path: Path, engine: str, key: str, value: str
) -> None:
    filled = Filled(tmp_path, {"merge-engine": engine, **ENGINES[engine]})
    filled.put(2, [{"k": 1, "s": 1, "v": 1, "w": "x"}])
    with pytest.raises(OptionError, match=f"option '{key}' cannot be changed once"):
        filled.set(**{key: value})
    own = next(iter(ENGINES[engine]))
    with pytest.raises(OptionError, match=f"option '{own}' cannot be changed once"):
        filled.warehouse.alter_table("db.t", ResetTableOption(own))


def test_a_new_column_gets_its_merge_function(tmp_path: Path) -> None:
    filled = Filled(tmp_path, {"merge-engine": "aggregation", **ENGINES["aggregation"]})
    filled.warehouse.alter_table("db.t", AddColumn(Column("x", "BIGINT")))
    filled.put(2, [{"k": 7, "s": 1, "v": 1}])
    filled.set(**{"fields.x.aggregate-function": "sum"})
    for number in (3, 4):
        filled.put(number, [{"k": 7, "s": 1, "v": 1, "x": 5}])
    assert filled.rows()[-1][-1] == 10
    with pytest.raises(OptionError, match="once rows have values of 'x'"):
        filled.set(**{"fields.x.aggregate-function": "max"})
    rename = RenameColumn(("x",), "y")
    with pytest.raises(OptionError, match="once rows have values of 'y'"):
        change = SetTableOption("fields.y.aggregate-function", "max")
        filled.warehouse.alter_table("db.t", rename, change)


def test_values_that_were_replaced_count(tmp_path: Path) -> None:
    filled = Filled(tmp_path, {"merge-engine": "deduplicate"})
    assert not filled.warehouse.table("db.t").has_values(["w"])
    filled.put(2, [{"k": 1, "s": 1, "v": 1, "w": "x"}])
    filled.put(3, [{"k": 1, "s": 1, "v": 1, "w": None}])
    assert filled.warehouse.table("db.t").has_values(["w"])


@pytest.mark.parametrize(
    ("engine", "options", "column"),
    [
        ("deduplicate", {"sequence.field": "s"}, "s"),
        ("partial-update", {"fields.s.sequence-group": "v"}, "s"),
        ("aggregation", {"fields.v.aggregate-function": "max"}, "v"),
    ],
)
def test_numbers_that_order_rows_do_not_become_texts(
    tmp_path: Path, engine: str, options: dict[str, str], column: str
) -> None:
    """10 is after 9, and '10' before '9'."""
    filled = Filled(tmp_path, {"merge-engine": engine, **options})
    with pytest.raises(StreamhouseError, match=f"column '{column}' orders the rows"):
        filled.warehouse.alter_table("db.t", SetType((column,), "STRING"))
    filled.warehouse.alter_table("db.t", SetType((column,), "BIGINT"))
