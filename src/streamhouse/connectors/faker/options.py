"""The options of the `faker` connector, under flink-faker's names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.close_matches import nearest
from streamhouse.connectors.datagen.connector import COMMON_OPTIONS
from streamhouse.connectors.datagen.disorder import Disorder
from streamhouse.connectors.datagen.nested import Array, ColumnValues, Map, Row, with_nulls
from streamhouse.connectors.datagen.random_streams import RowNumbers
from streamhouse.connectors.faker.directives import Directive, compute, parse_expression
from streamhouse.connectors.faker.pools import check_locale
from streamhouse.connectors.specs import arrow_schema
from streamhouse.errors import OptionError
from streamhouse.options import DeclaredOptions, check_known, integer
from streamhouse.sql.plan import Column


@dataclass(frozen=True)
class ExpressionValues:
    """An expression; `key`: its option. `length`: the most characters, None: any number."""

    type: pa.DataType
    key: str
    parts: tuple[str | Directive, ...]
    length: int | None
    locale: str

    def values(self, rows: RowNumbers) -> pa.Array:
        try:
            found = self._evaluated(rows)
            return _cast(found, self.type, self.length)
        except (ValueError, pa.ArrowException) as error:
            reason = str(error).splitlines()[0]
            if isinstance(error, pa.ArrowException):
                reason = f"its values do not fit the column's type: {reason}"
            raise OptionError(f"option '{self.key}': {reason}") from None

    def _evaluated(self, rows: RowNumbers) -> pa.Array:
        values = [
            compute(part, rows, f"{self.key}.{number}", self.locale)
            if isinstance(part, Directive)
            else pa.scalar(part)
            for number, part in enumerate(self.parts)
        ]
        if len(values) == 1 and isinstance(values[0], pa.Array):
            return values[0]
        texts = [value.cast(pa.string()) for value in values]
        if not any(isinstance(text, pa.Array) for text in texts):
            return pa.repeat("".join(text.as_py() for text in texts), len(rows))
        return pc.binary_join_element_wise(*texts, pa.scalar(""))


def _cast(values: pa.Array, kind: pa.DataType, length: int | None) -> pa.Array:
    if pa.types.is_string(kind):
        texts = values.cast(pa.string())
        return texts if length is None else pc.utf8_slice_codeunits(texts, 0, length)
    if values.type == kind:
        return values
    if pa.types.is_decimal(kind) and not pa.types.is_integer(values.type):
        rounded = pc.round(values.cast(pa.float64()), ndigits=kind.scale)
        return rounded.cast(kind)
    if pa.types.is_decimal(kind):
        return values.cast(pa.decimal128(38, 0)).cast(kind)
    if pa.types.is_binary(kind):
        return values.cast(pa.string()).cast(kind)
    if pa.types.is_timestamp(values.type):
        return _time(values, kind)
    if pa.types.is_timestamp(kind) and pa.types.is_string(values.type):
        return _time(values.cast(pa.timestamp("us")), kind)
    if pa.types.is_floating(values.type) and pa.types.is_integer(kind):
        return values.cast(kind, safe=False)
    return values.cast(kind)


def _time(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return values.cast(pa.timestamp(kind.unit), safe=False).cast(pa.int64()).cast(kind)
    return values.cast(kind, safe=False)


_EXAMPLE = "`#{Name.fullName}`, `#{number.numberBetween '1','100'}`"
_LOCALE = "en_US"
_TRIED = 50
"""How many rows are generated to check a declaration."""
_SIZE = re.compile(r"^(?:VARCHAR|CHAR)\s*\(\s*(\d+)", re.IGNORECASE)

_DECLARED = DeclaredOptions.of(__package__).options
OPTIONS = (*COMMON_OPTIONS[:2], *_DECLARED, *COMMON_OPTIONS[2:])


@dataclass(frozen=True)
class FakerOptions:
    """The checked options."""

    schema: pa.Schema
    columns: tuple[ColumnValues, ...]
    rate: int
    total: int | None
    disorder: Disorder


def parse(columns: Sequence[Column], options: Mapping[str, str]) -> FakerOptions:
    """The checked options; raises `OptionError`."""
    if not columns:
        raise OptionError("faker: the table has no physical column; declare one")
    plain = [key for key in options if not key.startswith("fields.")]
    check_known(plain, [option.key for option in OPTIONS if "<" not in option.key], "faker")
    locale = options.get("locale", _LOCALE)
    try:
        check_locale(locale)
    except ValueError as error:
        raise OptionError(f"option 'locale': {error}") from None
    fields = _Fields(options, locale)
    schema = arrow_schema(columns)
    made = tuple(
        fields.column(column, field) for column, field in zip(columns, schema, strict=True)
    )
    fields.check_used()
    limit = options.get("number-of-rows")
    return FakerOptions(
        schema,
        made,
        integer("rows-per-second", options.get("rows-per-second", "10000"), 1),
        None if limit is None else integer("number-of-rows", limit, 0),
        Disorder.parse(options),
    )


def check(columns: Sequence[Column], options: Mapping[str, str]) -> None:
    """Raise `OptionError` for wrong options, or values that do not fit their columns."""
    parsed = parse(columns, options)
    numbers = np.arange(_TRIED, dtype=np.int64)
    for column in parsed.columns:
        column.values(RowNumbers(numbers, numbers * 1000, parsed.disorder.seed, True))


class _Fields:
    """The options of the fields; remembers which of them were used."""

    def __init__(self, options: Mapping[str, str], locale: str) -> None:
        self._given = {key: text for key, text in options.items() if key.startswith("fields.")}
        self._locale = locale
        self._known: list[str] = []

    def column(self, column: Column, field: pa.Field) -> ColumnValues:
        path = f"fields.{column.name}"
        size = _SIZE.match(column.type.strip())
        made = self._part(field.type, path, None if size is None else int(size[1]))
        key = f"{path}.null-rate"
        return with_nulls(made, column, path, key, self._take(key) or "0")

    def check_used(self) -> None:
        for key in self._given:
            if key not in self._known:
                raise OptionError(f"faker: unknown option '{key}'; {nearest(key, self._known)}")

    def _part(self, kind: pa.DataType, path: str, size: int | None = None) -> ColumnValues:
        if pa.types.is_struct(kind):
            return Row(
                kind, tuple(self._part(field.type, f"{path}.{field.name}") for field in kind)
            )
        if pa.types.is_map(kind):
            length = self._length(path)
            keys = self._part(kind.key_type, f"{path}.key")
            return Map(kind, keys, self._part(kind.item_type, f"{path}.value"), length)
        if pa.types.is_list(kind):
            return Array(kind, self._part(kind.value_type, path), self._length(path))
        key = f"{path}.expression"
        text = self._take(key)
        if text is None:
            raise OptionError(f"faker: option '{key}' is missing; such as {_EXAMPLE}")
        parts = tuple(parse_expression(key, text))
        return ExpressionValues(kind, key, parts, size, self._locale)

    def _length(self, path: str) -> int:
        key = f"{path}.length"
        return integer(key, self._take(key) or "1", 0)

    def _take(self, key: str) -> str | None:
        self._known.append(key)
        return self._given.get(key)
