"""Decodes JSON records: column by column, and value by value where a column needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
import orjson
import pyarrow as pa

from streamhouse.formats.base import BadRecord, Decoded
from streamhouse.formats.json.columns import RegularDecoder, column
from streamhouse.formats.json.exact import (
    NeedsText,
    ValueMismatch,
    converter,
    mismatch_reason,
    parse_exactly,
)
from streamhouse.formats.json.options import JsonOptions
from streamhouse.types import flink_type

Rows: TypeAlias = Callable[[Any], list[tuple[str, Any]]]
"""The rows of a record, as row kind and object; `ValueError` for a record of another shape."""


@dataclass
class Objects:
    """JSON objects, one for each row; `records`: the record of each, None if it is the same index.

    `rows` gives the rows of a record again. `kinds` are the row kinds, if `records` is set. `bad`
    are the records that cannot be read, with the first reason of each.
    """

    objects: list[Any]
    records: list[int] | None
    rows: Rows
    kinds: list[str] = field(default_factory=list)
    bad: dict[int, str] = field(default_factory=dict)

    def record(self, row: int) -> int:
        """The index of a row's record."""
        return row if self.records is None else self.records[row]

    def report(self, row: int, reason: str) -> None:
        """Note that the record of a row is bad."""
        self.bad.setdefault(self.record(row), reason)


def parsed(records: Sequence[bytes | None], ignore: bool = False) -> Objects:
    """The objects of records; a JSON array has one row for each of its objects.

    Records that are None or JSON's null have no row. `ignore`: others that are not objects have
    none either, instead of being reported as bad.
    """
    loads = orjson.loads
    try:
        objects = [loads(record) for record in records]  # type: ignore[arg-type]
    except orjson.JSONDecodeError:
        return parsed_singly(records, _inserts, ignore)
    if set(map(type, objects)) <= {dict}:
        return Objects(objects, None, _inserts)
    return parsed_singly(records, _inserts, ignore)


def parsed_singly(records: Sequence[bytes | None], rows: Rows, ignore: bool) -> Objects:
    """The objects of records, of which `rows` gives the rows; for `ignore` see `parsed`."""
    found = Objects([], [], rows)
    assert found.records is not None
    for index, record in enumerate(records):
        try:
            own = [] if record is None else rows(orjson.loads(record))
        except ValueError as error:
            if not ignore:
                found.bad[index] = f"not a JSON object: {error}"
            continue
        found.kinds += [kind for kind, _ in own]
        found.objects += [one for _, one in own]
        found.records += [index] * len(own)
    return found


def _inserts(value: Any) -> list[tuple[str, Any]]:
    rows = value if isinstance(value, list) else [value]
    for row in rows:
        if row is not None:
            check_object(row)
    return [("+I", row) for row in rows if row is not None]


def check_object(value: Any) -> None:
    """Raise `ValueError` if a JSON value is not an object."""
    if not isinstance(value, dict):
        raise ValueError(f"found {type(value).__name__} instead")


class Columns:
    """Converts objects to the columns of a schema."""

    def __init__(self, schema: pa.Schema, options: JsonOptions) -> None:
        self._schema = schema
        self._options = options
        self._converters = [converter(field.type, options) for field in schema]

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._schema

    def arrays(self, found: Objects, records: Sequence[bytes | None]) -> list[pa.Array]:
        """The columns of all rows; reports what does not fit, and puts null in its place."""
        return [
            self._column(number, field, found, records) for number, field in enumerate(self._schema)
        ]

    def _column(
        self, number: int, field: pa.Field, found: Objects, records: Sequence[bytes | None]
    ) -> pa.Array:
        name = field.name
        try:
            values = list(map(itemgetter(name), found.objects))
        except KeyError:
            values = [record.get(name) for record in found.objects]
        array = column(values, field.type, self._options.standard)
        if array is None:
            array = self._singly(number, field, values, found, records)
        if array.null_count and (not field.nullable or self._options.fail_on_missing_field):
            self._check_nulls(field, array, found)
        return array

    def _singly(
        self,
        number: int,
        field: pa.Field,
        values: Sequence[Any],
        found: Objects,
        records: Sequence[bytes | None],
    ) -> pa.Array:
        convert = self._converters[number]
        converted: list[Any] = []
        for row, value in enumerate(values):
            try:
                try:
                    one = convert(value)
                except NeedsText:
                    one = convert(self._exactly(field.name, found, records, row))
            except ValueMismatch as error:
                found.report(row, mismatch_reason(field.name, error))
                one = None
            except RecursionError:
                found.report(row, f"column '{field.name}' is nested too deeply")
                one = None
            converted.append(one)
        return pa.array(converted, field.type)

    def _exactly(self, name: str, found: Objects, records: Sequence[bytes | None], row: int) -> Any:
        record = records[found.record(row)]
        assert record is not None
        first = row
        while first and found.record(first - 1) == found.record(row):
            first -= 1
        return found.rows(parse_exactly(record))[row - first][1][name]

    def _check_nulls(self, field: pa.Field, array: pa.Array, found: Objects) -> None:
        for row in np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist():
            if self._options.fail_on_missing_field and field.name not in found.objects[row]:
                found.report(row, f"column '{field.name}' is missing")
            elif not field.nullable:
                kind = flink_type(field.type)
                found.report(row, f"column '{field.name}' is {kind} NOT NULL, but null or missing")


def without_bad(
    arrays: Sequence[pa.Array], schema: pa.Schema, found: Objects, ignore: bool
) -> Decoded:
    """The rows of all records that are not bad; `ignore`: bad records are not reported."""
    rows = pa.RecordBatch.from_arrays(list(arrays), schema=schema)
    records = None if found.records is None else np.array(found.records, np.int64)
    if found.bad:
        of_rows = np.arange(rows.num_rows) if records is None else records
        kept = np.flatnonzero(~np.isin(of_rows, list(found.bad)))
        rows, records = rows.take(pa.array(kept)), of_rows[kept]
    return Decoded(rows, records, () if ignore else bad_records(found.bad.items()))


def bad_records(found: Iterable[tuple[int, str]]) -> list[BadRecord]:
    """Bad records in the order of their records."""
    return [BadRecord(index, reason) for index, reason in sorted(found)]


class JsonDecoder:
    """A `Decoder` of JSON objects, whose fields are columns by their names."""

    changelog = False

    def __init__(self, schema: pa.Schema, options: JsonOptions) -> None:
        self._schema, self._options = schema, options
        self._columns: Columns | None = None
        self._regular: RegularDecoder | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_columns": None, "_regular": None}

    def decode(self, records: Sequence[bytes | None]) -> Decoded:
        if self._columns is None or self._regular is None:
            self._columns = Columns(self._schema, self._options)
            self._regular = RegularDecoder(self._schema, self._options.standard)
        regular = self._regular.columns(records)
        if regular is not None:
            return Decoded(pa.RecordBatch.from_arrays(regular, schema=self._schema))
        found = parsed(records, self._options.ignore_parse_errors)
        arrays = self._columns.arrays(found, records)
        return without_bad(arrays, self._schema, found, self._options.ignore_parse_errors)
