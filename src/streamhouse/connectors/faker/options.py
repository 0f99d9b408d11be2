"""The options of the `faker` connector, under flink-faker's names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamhouse.close_matches import nearest
from streamhouse.connectors.datagen.disorder import Disorder
from streamhouse.connectors.datagen.nested import Array, ColumnValues, Map, Row, with_nulls
from streamhouse.connectors.datagen.options import COMMON_OPTIONS
from streamhouse.connectors.datagen.row_numbers import RowNumbers
from streamhouse.connectors.faker.columns import ExpressionValues
from streamhouse.connectors.faker.directives import parse_expression
from streamhouse.connectors.faker.pools import check_locale
from streamhouse.connectors.specs import arrow_schema
from streamhouse.errors import OptionError
from streamhouse.options import DeclaredOptions, check_known, integer
from streamhouse.sql.plan import Column

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
