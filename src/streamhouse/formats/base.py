"""The interface of formats: records as bytes, rows as Arrow columns.

A record is what a message of Kafka, or a line of a file, holds: bytes, or None for a message
without a value. Options have Flink's names without the format's prefix: `ignore-parse-errors` is
`json.ignore-parse-errors` in a table over `'format' = 'json'`, and `value.json.ignore-parse-errors`
over `'value.format' = 'json'`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.close_matches import nearest
from streamhouse.errors import OptionError
from streamhouse.errors import RecordError as RecordError
from streamhouse.options import Option, OptionValues
from streamhouse.types import flink_type

_MODULES = {
    "avro": "avro.codec:FORMAT",
    "avro-confluent": "avro.confluent:FORMAT",
    "canal-json": "json.formats:CANAL",
    "csv": "csv.format:FORMAT",
    "debezium-json": "json.formats:DEBEZIUM",
    "json": "json.formats:FORMAT",
    "raw": "raw:FORMAT",
}


@dataclass(frozen=True)
class BadRecord:
    """A record that could not be decoded: its index in the decoded sequence, and the reason."""

    index: int
    reason: str


@dataclass(frozen=True)
class Decoded:
    """The rows of a sequence of records, in order.

    `rows` have the decoder's columns and, for a changelog, a last column `rowkind`. `records` has
    for each row the index of its record; None: row `i` is that of record `i`. A record can have no
    row (a message without a value), or several (an update of debezium-json).
    """

    rows: pa.RecordBatch
    records: np.ndarray[Any, np.dtype[np.int64]] | None = None
    bad: Sequence[BadRecord] = field(default_factory=tuple)


class Decoder(Protocol):
    """Decodes records; not thread-safe."""

    def decode(self, records: Sequence[bytes | None]) -> Decoded:
        """The rows of the records; never raises for the contents of a record."""


class Encoder(Protocol):
    """Encodes rows; not thread-safe."""

    def encode(self, rows: pa.RecordBatch) -> pa.BinaryArray:
        """One record for each row, which may have a last column `rowkind`; null for no record.

        Raises `RecordError` for a value that the format cannot express.
        """


@dataclass(frozen=True)
class Format:
    """A format by its Flink name, and its options.

    `new_decoder` and `new_encoder` make its codecs for columns and checked options. `changelog`:
    whether its records express updates and deletes; `Decoded.rows` then end with `rowkind`, and
    else all rows that are encoded must be inserts.
    """

    name: str
    options: tuple[Option, ...]
    new_decoder: Callable[[pa.Schema, OptionValues], Decoder]
    new_encoder: Callable[[pa.Schema, OptionValues], Encoder]
    changelog: bool = False


class ValueMismatch(Exception):
    """A value that does not fit its column; the message has no column yet."""


@dataclass
class ParsedRows:
    """The values of each row, such as an object or a list of fields.

    `records` has the index of each row's record; None if it is that of the row. `bad` are the
    records that cannot be decoded, with the first reason of each.
    """

    rows: list[Any]
    records: list[int] | None
    bad: dict[int, str] = field(default_factory=dict)

    def read(
        self,
        records: Sequence[bytes | None],
        rows_of: Callable[[bytes], Sequence[Any]],
        problem: str = "",
    ) -> None:
        """Append the rows of records; a record for which `rows_of` raises `ValueError` is bad.

        `problem`: how the reason begins.
        """
        assert self.records is not None
        for index, record in enumerate(records):
            try:
                own = () if record is None else rows_of(record)
            except ValueError as error:
                self.bad[index] = f"{problem}{error}"
                continue
            self.rows += own
            self.records += [index] * len(own)

    def record(self, row: int) -> int:
        """The index of a row's record."""
        return row if self.records is None else self.records[row]

    def report(self, row: int, reason: str) -> None:
        """Note that the record of a row is bad."""
        self.bad.setdefault(self.record(row), reason)

    def converted(
        self, column: pa.Field, values: Sequence[Any], convert: Callable[[int, Any], Any]
    ) -> pa.Array:
        """A column by `convert`, which gets the row and its value; what does not fit is null.

        Such values raise `ValueMismatch` or `ValueError`, and their records are reported as bad.
        """
        found: list[Any] = []
        for row, value in enumerate(values):
            try:
                found.append(convert(row, value))
            except (ValueMismatch, ValueError) as error:
                self.report(row, f"column '{column.name}': {error}")
                found.append(None)
            except RecursionError:
                self.report(row, f"column '{column.name}' is nested too deeply")
                found.append(None)
        return pa.array(found, column.type)

    def check_nulls(self, column: pa.Field, array: pa.Array, what: str = "null or missing") -> None:
        """Report the records whose value of a NOT NULL column is null."""
        if not column.nullable:
            for row in null_rows(array):
                kind = flink_type(column.type)
                self.report(row, f"column '{column.name}' is {kind} NOT NULL, but {what}")

    def decoded(self, arrays: Sequence[pa.Array], schema: pa.Schema, ignore: bool) -> Decoded:
        """The rows of all records that are not bad; `ignore`: bad records are not reported."""
        rows = pa.RecordBatch.from_arrays(list(arrays), schema=schema)
        if not arrays:
            # As of a Kafka record whose columns are all in its key.
            rows = pa.RecordBatch.from_struct_array(pa.array([{}] * len(self.rows), pa.struct([])))
        records = None if self.records is None else np.array(self.records, np.int64)
        if self.bad:
            of_rows = np.arange(rows.num_rows) if records is None else records
            kept = np.flatnonzero(~np.isin(of_rows, list(self.bad)))
            rows, records = rows.take(pa.array(kept)), of_rows[kept]
        bad = [] if ignore else [BadRecord(*item) for item in sorted(self.bad.items())]
        return Decoded(rows, records, bad)


def null_rows(array: pa.Array) -> list[int]:
    """The rows whose value is null."""
    if not array.null_count:
        return []
    found: list[int] = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist()
    return found


def joined(records: pa.Array, separator: str | bytes) -> bytes:
    """The texts or bytes of an array without nulls, with a separator between them."""
    whole = pa.ListArray.from_arrays(pa.array([0, len(records)], pa.int32()), records)
    return pc.binary_join(whole, separator)[0].as_buffer().to_pybytes()  # type: ignore[no-any-return]


def names() -> tuple[str, ...]:
    """The names of all formats, sorted."""
    return tuple(sorted(_MODULES))


@cache
def format_of(name: str, key: str = "format") -> Format:
    """The format of that name; `OptionError` names the option `key` if there is none."""
    if name not in _MODULES:
        raise OptionError(f"option '{key}': unknown format '{name}'; {nearest(name, names())}")
    module, _, attribute = _MODULES[name].partition(":")
    found: Format = getattr(import_module(f"streamhouse.formats.{module}"), attribute)
    return found


@dataclass(frozen=True)
class FormatChoice:
    """The format that a table names, its options without `prefix`, and that prefix; picklable."""

    name: str
    options: Mapping[str, str]
    prefix: str

    @classmethod
    def of(cls, options: Mapping[str, str], name: str, before: str = "") -> Self:
        """The format `name` with those of a table's `options` that are its own.

        `before` is `""` for `'format'`, `value.` for `'value.format'`, `key.` for `'key.format'`.
        """
        prefix = f"{before}{name}."
        own = {k.removeprefix(prefix): v for k, v in options.items() if k.startswith(prefix)}
        return cls(name, own, prefix)

    @property
    def changelog(self) -> bool:
        """Whether its records express updates and deletes."""
        return format_of(self.name).changelog

    def values(self) -> OptionValues:
        """The checked options; raises `OptionError`."""
        values = OptionValues(format_of(self.name).options, self.options, self.prefix)
        values.check(f"format {self.name}")
        return values

    def decoder(self, schema: pa.Schema) -> Decoder:
        """A decoder of rows with these columns; raises `OptionError`."""
        return format_of(self.name).new_decoder(schema, self.values())

    def encoder(self, schema: pa.Schema) -> Encoder:
        """An encoder of rows with these columns; raises `OptionError`."""
        return format_of(self.name).new_encoder(schema, self.values())


def declared_options(formats: Iterable[Format], before: str = "") -> tuple[Option, ...]:
    """The options of formats with their prefixes, as a connector declares them."""
    return tuple(
        replace(option, key=f"{before}{known.name}.{option.key}")
        for known in formats
        for option in known.options
    )
