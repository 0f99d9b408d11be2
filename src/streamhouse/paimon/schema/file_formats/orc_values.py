"""Values that ORC files change, unlike files of other formats (decision 105).

Paimon's Java core writes ORC files, in Flink or in a compaction; the Rust core reads them.

- The Rust core cannot read timestamps outside the years 1677 to 2262. It misreads those before 1900
  if the JVM that wrote them was not in UTC. The Java core itself loses the sign of the last second
  before 1970, and shifts years before 1582 by days each time it rewrites them.
- TIMESTAMP_LTZ is written as the local time of the JVM's time zone unless the table has the option
  `orc.timestamp-ltz.legacy.type` = `false`, as tables created here have.
- CHAR(n) is padded in the file; the Java core reads it without trailing spaces.

So writers refuse values that could not be read back, and readers refuse files that they would
misread.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.errors import StreamhouseError, TableError
from streamhouse.formats.times import PER_SECOND
from streamhouse.paimon.schema import types
from streamhouse.paimon.schema.file_formats.nanosecond_timestamps import LAST_US, bounds, leaves
from streamhouse.paimon.schema.file_formats.orc_zone import writer_zone
from streamhouse.paimon.storage.split_files import SplitFrame

if TYPE_CHECKING:
    from streamhouse.paimon.read.table import Table
    from streamhouse.sql.plan import Column

LTZ_OPTION = "orc.timestamp-ltz.legacy.type"
SUFFIX = b".orc"
_FORMATS = ("file.format", "changelog-file.format", "file.format.per.level")
_FIRST_S = -9_223_286_400
"""1677-09-22, the first whole day in the range of INT64 nanoseconds."""
_ZONE_HISTORY_S = -2_208_902_400
"""1900-01-02: Java's legacy time zones have no offsets for earlier times."""
_UTC = ("UTC", "GMT", "Etc/UTC", "Etc/GMT", "Etc/UCT", "UCT", "Universal", "Etc/Universal", "Zulu")
_CHAR = re.compile(r"(?<![A-Z_])CHAR\(")
_LTZ = re.compile(r"TIMESTAMP_LTZ|WITH LOCAL TIME ZONE")
_MAX_ZONES = 100_000
_zones: dict[str, str | None] = {}
"""Cached results of `writer_zone`, by path; files never change."""


def may_hold_orc(options: Mapping[str, str]) -> bool:
    """Whether a writer or a compaction of a table with these options creates ORC files."""
    return any("orc" in options.get(key, "").lower() for key in _FORMATS)


def implied_options(columns: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    """Options that a new table with these columns (name to type) needs in addition."""
    if not may_hold_orc(options) or LTZ_OPTION in options:
        return {}
    return {LTZ_OPTION: "false"} if any(map(_LTZ.search, columns.values())) else {}


def check_keys(where: str, columns: Mapping[str, str], keys: Sequence[str]) -> None:
    """Raise `TableError` for a CHAR key of a table of ORC files."""
    for key in keys:
        if _CHAR.match(columns[key]):
            raise TableError(
                f"{where}: the key '{key}' is {columns[key]}, which ORC files pad with spaces, so "
                "keys would not match; make it a STRING, or set 'file.format' to 'parquet'"
            )


class OrcValues:
    """Checks and converts rows before they are written into a table that `may_hold_orc`."""

    def __init__(self, table: Table) -> None:
        columns = {column.name: column.type for column in table.columns}
        self._where = f"table {table.identifier}"
        check_keys(self._where, columns, [*table.primary_key, *table.partition_keys])
        self._chars = _chars(columns)
        self._first_s = _FIRST_S if _in_utc() else _ZONE_HISTORY_S
        # The end of the last second before 1970, in UTC and in the local time of this machine.
        self._signless = {0, time.localtime(0).tm_gmtoff}

    def fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with CHAR trimmed; `TableError` for a value that could not be read back."""
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            for timestamps in leaves(array):
                self._check(name, timestamps)
        return trimmed(batch, self._chars)

    def _check(self, column: str, timestamps: pa.Array) -> None:
        unit = PER_SECOND[timestamps.type.unit]
        first, last = bounds(timestamps)
        if first is None or last is None:
            return
        if first < self._first_s * unit or last > LAST_US // 10**6 * unit:
            raise TableError(
                f"{self._where}: column '{column}' got a timestamp before "
                f"{time.strftime('%Y-%m-%d', time.gmtime(self._first_s))} or after 2262-04-11, "
                "which cannot be read back from ORC files; set the table's 'file.format' to "
                "'parquet', which holds all years"
            )
        for end in self._signless:
            if first < end * unit and last > (end - 1) * unit:
                self._check_sign(column, timestamps.view(pa.int64()), (end - 1) * unit, end * unit)

    def _check_sign(self, column: str, ticks: pa.Array, above: int, below: int) -> None:
        lost = pc.and_(pc.greater(ticks, above), pc.less(ticks, below))
        if pc.any(lost).as_py():
            raise TableError(
                f"{self._where}: column '{column}' got a timestamp within the last second before "
                "1970, which ORC files return as one after 1970; set the table's 'file.format' to "
                "'parquet'"
            )


class OrcReader:
    """Checks and converts rows that the Rust core reads from splits with ORC files."""

    def __init__(self, table: Table, splits: Sequence[bytes]) -> None:
        self._table, self._splits = table, splits
        columns = {column.name: column.type for column in table.columns}
        self._chars = _chars(columns)
        self._legacy = table.options.get(LTZ_OPTION, "").strip().lower()
        zoned = {name for name, data_type in columns.items() if _LTZ.search(data_type)}
        self._zoned = set() if self._legacy == "false" else zoned

    def check(self, columns: Sequence[str]) -> None:
        """Raise `StreamhouseError` if local times of other zones would be read as UTC."""
        if not self._zoned.intersection((*columns, *self._table.primary_key)):
            return
        for path, zone in self._files_not_in_utc():
            if not zone and self._legacy == "true":
                continue
            origin = f"was written in the time zone {zone or '(unknown)'}"
            raise StreamhouseError(
                f"table {self._table.identifier}: {path} {origin}, and TIMESTAMP_LTZ in ORC files "
                f"is shifted by the writer's time zone unless '{LTZ_OPTION}' is 'false'; copy the "
                "rows to a new table with that option by INSERT INTO … SELECT in Flink, leave "
                f"{', '.join(sorted(self._zoned))} out of the query, or, if all of its writers "
                f"run in UTC, SET ('{LTZ_OPTION}' = 'true')"
            )

    def read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows as the Java core reads them; `StreamhouseError` for times that may be wrong."""
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            for timestamps in leaves(array):
                first, _ = bounds(timestamps)
                if first is None or timestamps.type.tz is not None:
                    continue
                if first < _ZONE_HISTORY_S * PER_SECOND[timestamps.type.unit]:
                    self._check_history(name)
        return trimmed(batch, self._chars)

    def _check_history(self, column: str) -> None:
        for path, zone in self._files_not_in_utc():
            raise StreamhouseError(
                f"table {self._table.identifier}: column '{column}' has a timestamp before 1900 in "
                f"{path}, an ORC file written in the time zone {zone or '(unknown)'}: its shift "
                "is unknown; have Flink write it in UTC, or into Parquet files"
            )

    def _files_not_in_utc(self) -> Iterator[tuple[str, str]]:
        """The ORC files not known to be written in UTC, and their zones (empty: unknown)."""
        for split in self._splits:
            for path in SplitFrame.parse(split).paths():
                if path.endswith(SUFFIX.decode()):
                    zone = self._zone(path)
                    if zone is not None and zone not in _UTC:
                        yield path, zone

    def _zone(self, path: str) -> str | None:
        if path not in _zones:
            with self._table.files.open_input(path) as file:
                zone = writer_zone(file)
            if len(_zones) >= _MAX_ZONES:
                _zones.clear()
            _zones[path] = zone
        return _zones[path]


def trimmed(batch: pa.RecordBatch, chars: Mapping[str, types.JsonType]) -> pa.RecordBatch:
    """The batch without trailing spaces in the columns `chars` (name to type), nested ones too."""
    for name, kind in chars.items():
        index = batch.schema.get_field_index(name)
        if index >= 0:
            field = batch.schema.field(index)
            batch = batch.set_column(index, field, _trimmed(batch.column(index), kind))
    return batch


def _trimmed(array: Any, kind: types.JsonType) -> Any:
    if isinstance(kind, str):
        return pc.utf8_rtrim(array, " ") if _CHAR.match(kind) else array
    # The copy has no slice offset and no values under nulls, which the child arrays would expose.
    array = array.take(pa.array(range(len(array)), pa.int32()))
    nulls = array.is_null()
    if pa.types.is_map(array.type):
        # A MULTISET is a map of its elements to their counts.
        keys = _trimmed(array.keys, kind["key"] if "key" in kind else kind["element"])
        items = _trimmed(array.items, kind["value"] if "value" in kind else "INT")
        return pa.MapArray.from_arrays(array.offsets, keys, items, array.type, mask=nulls)
    if "element" in kind:
        values = _trimmed(array.values, kind["element"])
        return pa.ListArray.from_arrays(array.offsets, values, array.type, mask=nulls)
    fields = [_trimmed(array.field(i), field["type"]) for i, field in enumerate(kind["fields"])]
    return pa.StructArray.from_arrays(fields, fields=list(array.type), mask=nulls)


def char_columns(columns: Sequence[Column]) -> frozenset[str]:
    """The CHAR columns; no filters on them are pushed down, since ORC files hold padded values."""
    return frozenset(column.name for column in columns if _CHAR.match(column.type))


def _chars(columns: Mapping[str, str]) -> dict[str, types.JsonType]:
    return {name: types.parse(kind) for name, kind in columns.items() if _CHAR.search(kind)}


def _in_utc() -> bool:
    """Whether this machine's time zone has no offset from UTC, neither now nor before 1900."""
    return all(
        time.localtime(second).tm_gmtoff == 0 for second in (_ZONE_HISTORY_S - 10**8, time.time())
    )
