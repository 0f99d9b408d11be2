"""The formats `json`, `debezium-json` and `canal-json`; decodes records column by column."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeAlias

import orjson
import pyarrow as pa

from streamhouse.errors import OptionError
from streamhouse.formats.base import Decoded, Format, ParsedRows, null_rows
from streamhouse.formats.json.columns import RegularDecoder, column
from streamhouse.formats.json.encode import JsonEncoder
from streamhouse.formats.json.exact import (
    OPTIONS,
    Convert,
    JsonOptions,
    NeedsText,
    converter,
    parse_exactly,
)
from streamhouse.options import OptionValues, choice, options_of, table_of
from streamhouse.source import ROW_KIND, with_kinds

Rows: TypeAlias = Callable[[Any], list[tuple[str, Any]]]
"""The rows of a record, as row kind and object; `ValueError` for a record of another shape."""


_TABLE = table_of(__package__, "changelogs.toml")
_JSON = tuple(option for option in OPTIONS if option.key != "fail-on-missing-field")
_ADDED = ("+I", "+U")
_KIND = pa.field(ROW_KIND, pa.string())
_SCHEMA, _SKIPPED = "schema-include", "skipped-operations"
_UNSUPPORTED = {
    "t": f"a TRUNCATE (to skip it and keep the rows: '{_SKIPPED}' = 't')",
    "m": f"a logical decoding message (to skip it: '{_SKIPPED}' = 'm')",
}
_STATEMENTS = (
    "CREATE", "ALTER", "ERASE", "QUERY", "TRUNCATE", "RENAME", "CINDEX", "DINDEX", "GTID",
    "XACOMMIT", "XAROLLBACK", "MHEARTBEAT",
)  # fmt: skip
"""Types of records that change no row, except TRUNCATE, which Flink skips, too."""


def _inserts(value: Any) -> list[tuple[str, Any]]:
    rows = [row for row in (value if isinstance(value, list) else [value]) if row is not None]
    for row in rows:
        check_object(row)
    return [("+I", row) for row in rows]


def check_object(value: Any) -> None:
    """Raise `ValueError` if a JSON value is not an object."""
    if not isinstance(value, dict):
        raise ValueError(f"found {type(value).__name__} instead")


class JsonDecoder:
    """A `Decoder` of JSON objects, whose fields are columns by their names.

    A JSON array has a row for each of its objects. Records that are None or JSON's null have no
    row, others that are not objects are bad. With `changes`, which gives the rows of a record, the
    records are changes.
    """

    def __init__(
        self, schema: pa.Schema, options: JsonOptions, changes: Rows | None = None
    ) -> None:
        self._table, self._options = schema, options
        self._changelog, self._rows_of = changes is not None, changes or _inserts
        self._schema = schema.append(_KIND) if self._changelog else schema
        self._converters = [converter(field.type, options) for field in schema]
        self._regular = RegularDecoder(schema, options.standard)

    def decode(self, records: Sequence[bytes | None]) -> Decoded:
        if self._changelog:
            # Like null, an empty message says no more than that a key has ended.
            records = [record or None for record in records]
        else:
            regular = self._regular.columns(records)
            if regular is not None:
                return Decoded(pa.RecordBatch.from_arrays(regular, schema=self._table))
        found, kinds = self._parsed(records)
        arrays = [
            self._column(field, convert, found, records)
            for field, convert in zip(self._table, self._converters, strict=True)
        ]
        arrays += [pa.array(kinds, pa.string())] if self._changelog else []
        return found.decoded(arrays, self._schema, self._options.ignore_parse_errors)

    def _parsed(self, records: Sequence[bytes | None]) -> tuple[ParsedRows, list[str]]:
        """The objects of the rows, and their row kinds, which only changes need."""
        if not self._changelog:
            try:
                objects = list(map(orjson.loads, records))  # type: ignore[arg-type]
            except orjson.JSONDecodeError:
                objects = [None]
            if set(map(type, objects)) <= {dict}:
                return ParsedRows(objects, None), []
        found = ParsedRows([], [])
        found.read(
            records, lambda record: self._rows_of(orjson.loads(record)), "not a JSON object: "
        )
        kinds = [kind for kind, _ in found.rows]
        found.rows = [row for _, row in found.rows]
        return found, kinds

    def _column(
        self,
        field: pa.Field,
        convert: Convert,
        found: ParsedRows,
        records: Sequence[bytes | None],
    ) -> pa.Array:
        """A column of all rows; reports what does not fit, and puts null in its place."""
        name = field.name
        try:
            values = list(map(itemgetter(name), found.rows))
        except KeyError:
            values = [record.get(name) for record in found.rows]
        array = column(values, field.type, self._options.standard)

        def exact(row: int, value: Any) -> Any:
            try:
                return convert(value)
            except NeedsText:
                return convert(self._exactly(name, found, records, row))

        if array is None:
            array = found.converted(field, values, exact)
        if self._options.fail_on_missing_field:
            for row in null_rows(array):
                if name not in found.rows[row]:
                    found.report(row, f"column '{name}' is missing")
        found.check_nulls(field, array)
        return array

    def _exactly(
        self, name: str, found: ParsedRows, records: Sequence[bytes | None], row: int
    ) -> Any:
        """The value of a row, with the texts of its numbers."""
        record = records[found.record(row)]
        assert record is not None
        first = row
        while first and found.record(first - 1) == found.record(row):
            first -= 1
        return self._rows_of(parse_exactly(record))[row - first][1][name]


FORMAT = Format(
    "json",
    OPTIONS,
    lambda schema, values: JsonDecoder(schema, JsonOptions.parse(values)),
    lambda schema, values: JsonEncoder(schema, JsonOptions.parse(values)),
)


class ChangelogEncoder:
    """An `Encoder` of changes; `written` makes the record of a row that was added or removed."""

    def __init__(
        self, schema: pa.Schema, options: JsonOptions, written: Callable[[bool, Any], Any]
    ) -> None:
        self._objects = JsonEncoder(schema, options)
        self._written = written

    def encode(self, rows: pa.RecordBatch) -> pa.BinaryArray:
        kinds = with_kinds(rows).column(ROW_KIND).to_pylist()
        objects = map(orjson.Fragment, self._objects.encode(rows).to_pylist())
        records = [
            orjson.dumps(self._written(kind in _ADDED, record))
            for kind, record in zip(kinds, objects, strict=True)
        ]
        return pa.array(records, pa.binary())


def _debezium_decoder(schema: pa.Schema, values: OptionValues) -> JsonDecoder:
    skipped = [text.strip() for text in values[_SKIPPED].split(",") if text.strip()]
    for operation in skipped:
        choice(values.before + _SKIPPED, operation, tuple(_UNSUPPORTED))
    rows = DebeziumRows(values[_SCHEMA], frozenset(skipped))
    return JsonDecoder(schema, JsonOptions.parse(values), rows)


def _debezium_encoder(schema: pa.Schema, values: OptionValues) -> ChangelogEncoder:
    for key in (_SCHEMA, _SKIPPED):
        if key in values and (key == _SKIPPED or values[key]):
            raise OptionError(
                f"option '{values.before}{key}' applies only to a source; leave it out"
            )
    return ChangelogEncoder(schema, JsonOptions.parse(values), _debezium_record)


@dataclass(frozen=True)
class DebeziumRows:
    """The rows of a record of Debezium: `before` and `after`, by `op`."""

    with_schema: bool = False
    skipped: frozenset[str] = frozenset()

    def __call__(self, value: Any) -> list[tuple[str, Any]]:
        if value is None:
            return []
        check_object(value)
        change = value.get("payload") if self.with_schema else value
        if change is None and self.with_schema:
            return []
        check_object(change)
        operation = change.get("op")
        if operation in ("c", "r"):
            return [("+I", _row(change, "after", operation))]
        if operation == "u":
            before = _row(change, "before", operation)
            return [("-U", before), ("+U", _row(change, "after", operation))]
        if operation == "d":
            return [("-D", _row(change, "before", operation))]
        if operation in self.skipped:
            return []
        what = f", {_UNSUPPORTED[operation]}" if operation in _UNSUPPORTED else ""
        raise ValueError(f"'op' is {operation!r}{what}, not one of c, r, u, d")


def _row(change: Mapping[str, Any], name: str, operation: str) -> Any:
    row = change.get(name)
    if not isinstance(row, dict):
        help = ""
        if name == "before":
            help = "; let the database log whole rows (PostgreSQL: REPLICA IDENTITY FULL)"
        raise ValueError(f"'{name}' is missing, which 'op' = '{operation}' needs{help}")
    return row


def _debezium_record(added: bool, row: Any) -> Any:
    if added:
        return {"before": None, "after": row, "op": "c"}
    return {"before": row, "after": None, "op": "d"}


_INCLUDED = options_of(_TABLE["canal"])


def _canal_decoder(schema: pa.Schema, values: OptionValues) -> JsonDecoder:
    patterns = {option.key: values[option.key] for option in _INCLUDED}
    for key, pattern in patterns.items():
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise OptionError(f"option '{values.before}{key}': '{pattern}': {error}") from None
    return JsonDecoder(schema, JsonOptions.parse(values), CanalRows(*patterns.values()))


@dataclass(frozen=True)
class CanalRows:
    """The rows of a record of Canal: `data` and `old`, by `type`."""

    database: str | None = None
    table: str | None = None

    def __call__(self, value: Any) -> list[tuple[str, Any]]:
        if value is None:
            return []
        check_object(value)
        for pattern, key in ((self.database, "database"), (self.table, "table")):
            if pattern is not None and not re.fullmatch(pattern, str(value.get(key))):
                return []
        kind, rows = value.get("type"), value.get("data")
        if kind in _STATEMENTS or value.get("isDdl") is True:
            return []
        if kind not in ("INSERT", "UPDATE", "DELETE"):
            raise ValueError(f"'type' is {kind!r}, not one of INSERT, UPDATE, DELETE")
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ValueError(f"'data' is not an array of objects, which 'type' = '{kind}' needs")
        if kind != "UPDATE":
            return [("+I" if kind == "INSERT" else "-D", row) for row in rows]
        old = value.get("old")
        if not isinstance(old, list) or len(old) != len(rows):
            raise ValueError("'old' has not as many objects as 'data'")
        changes = []
        for before, after in zip(old, rows, strict=True):
            changes += [("-U", {**after, **(before or {})}), ("+U", after)]
        return changes


def _canal_record(added: bool, row: Any) -> Any:
    return {"data": [row], "type": "INSERT" if added else "DELETE"}


DEBEZIUM = Format(
    "debezium-json",
    (*_JSON, *options_of(_TABLE["debezium"])),
    _debezium_decoder,
    _debezium_encoder,
    changelog=True,
)
CANAL = Format(
    "canal-json",
    (*_JSON, *_INCLUDED),
    _canal_decoder,
    lambda schema, values: ChangelogEncoder(schema, JsonOptions.parse(values), _canal_record),
    changelog=True,
)
