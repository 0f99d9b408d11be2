"""The `faker` connector, and its options under flink-faker's names."""

import re
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.connectors.datagen.connector import (
    COMMON_OPTIONS,
    GeneratedConnector,
    GeneratedSource,
    column_source,
)
from streamhouse.connectors.datagen.nested import ColumnParts, ColumnValues
from streamhouse.connectors.datagen.random_streams import RowNumbers
from streamhouse.connectors.faker.directives import evaluate, parse_expression
from streamhouse.connectors.faker.patterns import check_locale
from streamhouse.errors import OptionError
from streamhouse.options import DeclaredOptions
from streamhouse.sql.plan import Column
from streamhouse.types import arrow_type

_EXAMPLE = "`#{Name.fullName}`, `#{number.numberBetween '1','100'}`"
_LOCALE, _ELEMENTS = "en_US", "1"
_SIZE = re.compile(r"^(?:VARCHAR|CHAR)\s*\(\s*(\d+)", re.IGNORECASE)
_DECLARED = DeclaredOptions.of(__package__)
OPTIONS = (*COMMON_OPTIONS[:2], *_DECLARED.options, *COMMON_OPTIONS[2:])


def _expression(
    key: str, text: str, kind: pa.DataType, length: int | None, locale: str
) -> ColumnValues:
    """An expression; `key`: its option. `length`: the most characters, None: any number."""
    parts = parse_expression(key, text)

    def values(rows: RowNumbers) -> pa.Array:
        try:
            return _cast(evaluate(parts, rows, key, locale), kind, length)
        except (ValueError, pa.ArrowException) as error:
            reason = str(error).splitlines()[0]
            if isinstance(error, pa.ArrowException):
                reason = f"its values do not fit the column's type: {reason}"
            raise OptionError(f"option '{key}': {reason}") from None

    return values


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


def values_of(columns: Sequence[Column], options: Mapping[str, str]) -> list[ColumnValues]:
    """The values of the columns of a table; raises `OptionError`."""
    locale = options.get("locale", _LOCALE)
    check_locale(locale)

    def leaf(path: str, kind: str, whole: bool) -> ColumnValues:
        key = f"fields.{path}.expression"
        if key not in options:
            raise OptionError(f"option '{key}' is missing; such as {_EXAMPLE}")
        size = _SIZE.match(kind)
        length = None if size is None else int(size[1])
        return _expression(key, options[key], arrow_type(kind), length, locale)

    leaf_options = ("expression", "null-rate")
    return ColumnParts(options, leaf, leaf_options, _ELEMENTS, element="").columns(columns)


class _Faker(GeneratedConnector, declared=_DECLARED):
    name = "faker"
    options = OPTIONS
    tried = 50

    def generated(
        self, columns: Sequence[Column], options: Mapping[str, str], names: Sequence[str] | None
    ) -> GeneratedSource:
        return column_source(columns, values_of(columns, options), options)


CONNECTOR = _Faker()
