"""Computed columns of a sync: the expressions of Paimon's actions, over Arrow arrays.

`TargetRows` completes the rows of a table in MySQL by them, and by metadata columns.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.close_matches import nearest
from streamhouse.connectors.mysql_cdc.binlog.rows.batch_decoder import Seconds, changed_pairs
from streamhouse.connectors.mysql_cdc.database.followed_table import FollowedTable
from streamhouse.connectors.mysql_cdc.database.part_reader import metadata_values
from streamhouse.errors import OptionError, StreamhouseError, TableError
from streamhouse.options import integer
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema import types
from streamhouse.runtime.sync.options import METADATA, SyncOptions
from streamhouse.source import ROW_KIND
from streamhouse.sql.functions.java_times import formatted, parts
from streamhouse.types import arrow_type

NOW = "TIMESTAMP_LTZ(3)"
_FORM = re.compile(r"\s*([^=]+?)\s*=\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)
_FIELDS: Mapping[str, Callable[[pa.Array], pa.Array]] = {
    name: getattr(pc, name) for name in ("year", "month", "day", "hour", "minute", "second")
}
_TEXTS: Mapping[str, Callable[[str], str]] = {
    "upper": str.upper,
    "lower": str.lower,
    # As Java's trim: all characters up to the blank.
    "trim": lambda text: text.strip("".join(map(chr, range(33)))),
}
FUNCTIONS = (*_FIELDS, "date_format", "substring", "truncate", "cast", "now", *_TEXTS)
_UNITS = {"0": "s", "3": "ms", "6": "us", "9": "ns"}
_NANOSECONDS = "9"
_DIGITS = 100


@dataclass(frozen=True)
class ComputedColumn:
    """A column that is computed from another one, or from none (`now()`, `cast`).

    `arguments` come after the column. `type` is the type of the result, in Flink's spelling.
    """

    name: str
    function: str
    column: str | None
    arguments: tuple[str, ...]
    type: str = ""

    def with_type(self, columns: Mapping[str, str]) -> Self:
        """The same with its type; `columns`: the types of the columns it can use."""
        if self.column is not None and self.column not in columns:
            raise OptionError(
                f"--computed-column {self.name}: there is no column '{self.column}'; "
                f"{nearest(self.column, columns)}"
            )
        source = "" if self.column is None else columns[self.column]
        if self.function in _TEXTS and not _is_text(source):
            raise OptionError(
                f"--computed-column {self.name}: {self.function}() needs a text, and column "
                f"'{self.column}' is {source}"
            )
        return replace(self, type=self._type(source))

    def values(self, columns: Mapping[str, pa.Array], rows: int, now_ms: int) -> pa.Array:
        """The values; raises `TableError` for one that the function cannot take."""
        target = types.arrow_type(types.parse(self.type))
        if self.function == "now":
            return pa.repeat(pa.scalar(now_ms, pa.int64()), rows).cast(pa.timestamp("ms", "UTC"))
        if self.function == "cast":
            return pa.repeat(pa.scalar(self.arguments[0]), rows).cast(target)
        assert self.column is not None
        source = columns[self.column]
        try:
            return self._applied(source).cast(target)
        except (pa.ArrowInvalid, ValueError, OverflowError) as error:
            raise TableError(
                f"computed column '{self.name}': {self.function}({self.column}) has no value for a "
                f"row: {str(error).splitlines()[0]}; change the row in MySQL, or start a new sync "
                "with another expression"
            ) from None

    def _type(self, source: str) -> str:
        if self.function == "cast" and len(self.arguments) > 1:
            return self.arguments[1].upper()
        kinds = {**dict.fromkeys(_FIELDS, "INT"), "truncate": source, "now": NOW}
        return kinds.get(self.function, "STRING")

    def _applied(self, source: pa.Array) -> pa.Array:
        if self.function in _FIELDS:
            return _FIELDS[self.function](self._timestamps(source, 0))
        if self.function == "date_format":
            pattern = self.arguments[0]
            if self.arguments[1:] == (_NANOSECONDS,):
                return _mapped(source.cast(pa.int64()), lambda value: _formatted(value, pattern))
            micros = self._timestamps(source, 1).cast(pa.int64())
            return _mapped(micros, lambda value: _formatted(value * 1000, pattern))
        if self.function == "substring":
            first, last = int(self.arguments[0]), self.arguments[1:]
            end = int(last[0]) if last else None
            return _mapped(source.cast(pa.string()), lambda text: _cut(text, first, end))
        if self.function == "truncate":
            return _truncated(source, int(self.arguments[0]))
        return _mapped(source, _TEXTS[self.function])

    def _timestamps(self, source: pa.Array, at: int) -> pa.Array:
        """The column as timestamps; the argument `at` is the unit of epoch times, if any."""
        given = self.arguments[at : at + 1]
        kinds = (pa.types.is_timestamp, pa.types.is_date, pa.types.is_string)
        if given or not any(is_kind(source.type) for is_kind in kinds):
            unit = _UNITS[given[0] if given else "0"]
            source = source.cast(pa.int64()).cast(pa.timestamp(unit))
            if unit == "ns":
                source = pc.floor_temporal(source, unit="microsecond")
        return source.cast(pa.timestamp("us"))


def with_types(columns: Iterable[ComputedColumn], kinds: Mapping[str, str]) -> list[ComputedColumn]:
    """The columns with their types, from `kinds`, those of other columns; raises `OptionError`."""
    known, typed = dict(kinds), []
    for column in columns:
        typed.append(column.with_type(known))
        known[column.name] = typed[-1].type
    return typed


def parsed(texts: Sequence[str], spelt: Callable[[str], str] = str) -> list[ComputedColumn]:
    """The computed columns, each after those that it uses; raises `OptionError`.

    `spelt`: returns a column's name as the catalog spells it.
    """
    columns = [_parsed(text, spelt) for text in texts]
    by_name = {column.name: column for column in columns}
    if len(by_name) < len(columns):
        raise OptionError("--computed-column: a name is given twice")
    ordered: dict[str, ComputedColumn] = {}

    def place(column: ComputedColumn, above: tuple[str, ...]) -> None:
        if column.name in above:
            raise OptionError(f"--computed-column {column.name}: it is computed from itself")
        if column.column in by_name:
            place(by_name[column.column], (*above, column.name))
        ordered[column.name] = column

    for column in columns:
        place(column, ())
    return list(ordered.values())


def _parsed(text: str, spelt: Callable[[str], str]) -> ComputedColumn:
    match = _FORM.fullmatch(text)
    if match is None:
        raise OptionError(
            f"--computed-column: '{text}' is not of the form 'name=function(column, …)', such as "
            "'day=date_format(created, yyyy-MM-dd)'"
        )
    name, function, inner = spelt(match[1]), match[2].lower(), match[3]
    if function not in FUNCTIONS:
        raise OptionError(
            f"--computed-column {name}: there is no function '{function}'; "
            f"{nearest(function, FUNCTIONS)}"
        )
    arguments = [part.strip() for part in inner.split(",")] if inner.strip() else []
    takes_column = function not in ("now", "cast")
    column = spelt(arguments.pop(0)) if takes_column and arguments else None
    _check(name, function, column, arguments)
    return ComputedColumn(name, function, column, tuple(arguments))


def _check(name: str, function: str, column: str | None, arguments: Sequence[str]) -> None:
    where = f"--computed-column {name}"
    least, most = {
        "date_format": (1, 2), "substring": (1, 2), "truncate": (1, 1), "cast": (1, 2),
        "now": (0, 0), **dict.fromkeys(_FIELDS, (0, 1)), **dict.fromkeys(_TEXTS, (0, 0)),
    }[function]  # fmt: skip
    if (column is None) != (function in ("now", "cast")) or not least <= len(arguments) <= most:
        raise OptionError(f"{where}: {function}() does not take these arguments")
    try:
        if function == "date_format":
            parts(arguments[0])
        if function == "cast" and len(arguments) > 1:
            kind = types.arrow_type(types.parse(arguments[1].upper()))
            pa.array([arguments[0]]).cast(kind)
    except (StreamhouseError, ValueError, pa.ArrowException) as error:
        raise OptionError(f"{where}: {error}") from None
    if function in ("substring", "truncate"):
        numbers = [integer(where, text, 0) for text in arguments]
        if function == "truncate" and numbers[0] < 1:
            raise OptionError(f"{where}: the width of truncate() is at least 1")
        if len(numbers) == 2 and numbers[1] <= numbers[0]:
            raise OptionError(f"{where}: the end of substring() is after its begin")
    unit = arguments[1:] if function == "date_format" else arguments
    if (function in _FIELDS or function == "date_format") and unit:
        if unit[0] not in _UNITS:
            raise OptionError(
                f"{where}: '{unit[0]}' is not a precision; write 0 (epoch seconds), 3 "
                "(milliseconds), 6 (microseconds) or 9 (nanoseconds)"
            )


def _is_text(kind: str) -> bool:
    return kind == "STRING" or kind.startswith(("VARCHAR", "CHAR"))


def _mapped(values: pa.Array, function: Callable[[Any], str]) -> pa.Array:
    """The function of each value; computed once for equal values."""
    encoded = values.dictionary_encode()
    texts = [None if value is None else function(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(encoded.indices)


def _formatted(nanos: int, pattern: str) -> str:
    text = formatted(nanos // 1000, nanos % 1000, pattern)
    if text is None:
        raise ValueError(f"{nanos} ns since 1970 cannot be formatted as '{pattern}'")
    return text


def _cut(text: str, first: int, end: int | None) -> str:
    if first > len(text) or (end is not None and end > len(text)):
        raise ValueError(f"'{text}' has only {len(text)} characters")
    return text[first:end]


def _truncated(values: pa.Array, width: int) -> pa.Array:
    if pa.types.is_string(values.type):
        return _mapped(values, lambda text: _cut(text, 0, width))
    step: Any = width
    if pa.types.is_decimal(values.type):
        step = Decimal(width).scaleb(-values.type.scale)
    elif not pa.types.is_integer(values.type):
        raise ValueError(f"a {values.type} has no truncate()")
    with localcontext(prec=_DIGITS):
        # The sum: a decimal's remainder has the sign of its value, and the result is rounded down.
        cut = [None if v is None else v - (v % step + step) % step for v in values.to_pylist()]
    return pa.array(cut, values.type)


class TargetRows:
    """Adds the computed and metadata columns to the rows of one table.

    An update that changes the target's key or partition becomes `-D` and `+I`: Paimon would keep
    the old row otherwise. `now_ms`: the time of the batch.
    """

    def __init__(
        self, options: SyncOptions, source: FollowedTable, target: Table, now_ms: int
    ) -> None:
        self._options, self._source, self._now_ms = options, source, now_ms
        kinds = {options.spelt(name): kind for name, kind in source.columns}
        self._computed = with_types(parsed(options.computed_columns, options.spelt), kinds)
        own = {options.spelt(column.name) for column in source.definition.key}
        keys = dict.fromkeys((*target.primary_key, *target.partition_keys))
        self._append = not target.primary_key
        self._keys_not_in_source = [name for name in keys if name not in own]

    def rows(self, batch: pa.RecordBatch, seconds: Seconds | None) -> pa.RecordBatch:
        """The rows with all columns; `seconds`: when each was changed, None in a snapshot."""
        spelt = self._options.spelt
        columns = {
            spelt(name): batch.column(name) for name in batch.schema.names if name != ROW_KIND
        }
        for column in self._computed:
            columns[column.name] = column.values(columns, batch.num_rows, self._now_ms)
        for name, own in self._options.metadata_names.items():
            values = metadata_values(self._source.names, batch, seconds, name)
            columns[own] = values.cast(arrow_type(METADATA[name]))
        kinds = batch.column(ROW_KIND)
        if self._append and not pc.all(pc.equal(kinds, "+I")).as_py():
            raise TableError(
                f"it has an update or a delete, and {self._source.target} has no primary key to "
                "find the row by; give --primary-keys and a new table, or exclude the table"
            )
        if seconds is not None and self._keys_not_in_source:
            kinds = split_key_updates(kinds, [columns[name] for name in self._keys_not_in_source])
        return pa.record_batch([*columns.values(), kinds], names=[*columns, ROW_KIND])


def split_key_updates(kinds: pa.Array, columns: Sequence[pa.Array]) -> pa.Array:
    """The kinds, with `-D` and `+I` for an update (two rows in a row) that changes a column."""
    befores = np.flatnonzero(np.asarray(pc.equal(kinds, "-U")))
    moved = changed_pairs(columns, befores)
    if not moved.any():
        return kinds
    values = np.array(kinds.to_pylist(), dtype=object)
    values[befores[moved]] = "-D"
    values[befores[moved] + 1] = "+I"
    return pa.array(values.tolist(), pa.string())
