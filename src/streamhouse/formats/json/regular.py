"""Decodes many JSON objects at once by PyArrow's reader of JSON lines.

`decode` handles what this does not: values that do not fit their column as they are, escapes, other
types. The result is the same as that of `decode`, without a Python object for each value.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyarrow import json

from streamhouse.formats import times

LEAST = 64
"""Fewer records are decoded one by one as fast."""


class RegularDecoder:
    """Decodes records of one schema. `columns` returns None if they are to be decoded singly."""

    def __init__(self, schema: pa.Schema, standard: str) -> None:
        self._schema, self._standard = schema, standard
        self._usable = len(schema) > 0 and all(_is_usable(field.type) for field in schema)
        read = pa.schema([pa.field(field.name, _read_type(field.type)) for field in schema])
        self._parse = json.ParseOptions(
            explicit_schema=read, newlines_in_values=False, unexpected_field_behavior="ignore"
        )

    def columns(self, records: Sequence[bytes | None]) -> list[pa.Array] | None:
        """The columns, none of which has a null; None if the records are to be decoded singly."""
        if not self._usable or len(records) < LEAST or None in records:
            return None
        lines = b"\n".join([record.strip() for record in records if record is not None])
        if b"\\" in lines or not _are_objects(lines, len(records)):
            return None
        read = json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
        try:
            lines.decode()
            table = json.read_json(pa.py_buffer(lines), read, self._parse)
            found = [self._column(table.column(field.name), field.type) for field in self._schema]
        except (pa.ArrowInvalid, UnicodeDecodeError):
            return None
        if table.num_rows != len(records):
            return None
        arrays = [array for array in found if array is not None and not array.null_count]
        return arrays if len(arrays) == len(found) else None

    def _column(self, read: pa.ChunkedArray, kind: pa.DataType) -> pa.Array | None:
        array = read.combine_chunks()
        if pa.types.is_timestamp(kind):
            return times.parse_timestamps(array, kind, self._standard)
        return array.cast(kind)


def _read_type(kind: pa.DataType) -> pa.DataType:
    """The type in which PyArrow reads a column that `_column` converts."""
    if pa.types.is_timestamp(kind):
        return pa.string()  # What a time looks like depends on the standard.
    # PyArrow does not check the precision of what it reads, but that of a cast.
    return pa.decimal128(38, kind.scale) if pa.types.is_decimal(kind) else kind


def _is_usable(kind: pa.DataType) -> bool:
    """Whether PyArrow accepts only values of a type for which `decode` returns the same."""
    exact = pa.types.is_string(kind) or pa.types.is_signed_integer(kind)
    return bool(exact or pa.types.is_decimal128(kind) or pa.types.is_timestamp(kind))


def _are_objects(lines: bytes, count: int) -> bool:
    """Whether each of `count` records begins and ends as an object, on a line of its own.

    Then no object begins in one record and ends in another: after `}` of an object that is not
    complete, the next record would be an error. So `count` rows are one of each record.
    """
    return (
        lines[:1] == b"{"
        and lines[-1:] == b"}"
        and lines.count(b"\n") == lines.count(b"}\n{") == count - 1
    )
