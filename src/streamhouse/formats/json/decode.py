"""Decodes JSON records: column by column, and value by value where a column needs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, TypeAlias

import orjson
import pyarrow as pa

from streamhouse.formats.base import Decoded, ParsedRows, null_rows
from streamhouse.formats.json.columns import RegularDecoder, column
from streamhouse.formats.json.exact import JsonOptions, NeedsText, converter, parse_exactly

Rows: TypeAlias = Callable[[Any], list[tuple[str, Any]]]
"""The rows of a record, as row kind and object; `ValueError` for a record of another shape."""


@dataclass
class Objects(ParsedRows):
    """JSON objects; `rows_of` gives the rows of a record again, `kinds` are their row kinds.

    `kinds` are set if `records` is.
    """

    rows_of: Rows = field(kw_only=True)
    kinds: list[str] = field(default_factory=list)


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
        return Objects(objects, None, rows_of=_inserts)
    return parsed_singly(records, _inserts, ignore)


def parsed_singly(records: Sequence[bytes | None], rows: Rows, ignore: bool) -> Objects:
    """The objects of records, of which `rows` gives the rows; for `ignore` see `parsed`."""
    found = Objects([], [], rows_of=rows)
    assert found.records is not None
    for index, record in enumerate(records):
        try:
            own = [] if record is None else rows(orjson.loads(record))
        except ValueError as error:
            if not ignore:
                found.bad[index] = f"not a JSON object: {error}"
            continue
        found.kinds += [kind for kind, _ in own]
        found.rows += [one for _, one in own]
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
        name, convert = field.name, self._converters[number]
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

    def _exactly(self, name: str, found: Objects, records: Sequence[bytes | None], row: int) -> Any:
        record = records[found.record(row)]
        assert record is not None
        first = row
        while first and found.record(first - 1) == found.record(row):
            first -= 1
        return found.rows_of(parse_exactly(record))[row - first][1][name]


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
        return found.decoded(arrays, self._schema, self._options.ignore_parse_errors)
