"""The columns of a `datagen` table, which can be ROW, ARRAY and MAP of other columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from streamhouse.connectors.datagen.field_options import field_of
from streamhouse.connectors.datagen.nested import Array, ColumnValues, Map, Row, with_nulls
from streamhouse.errors import OptionError
from streamhouse.options import integer
from streamhouse.paimon.schema import types
from streamhouse.sql.plan import Column

_ELEMENTS = "3"
"""The default number of elements of an ARRAY or MAP, as Flink's."""
_NESTED = ("ROW", "ARRAY", "MAP")


def columns_of(
    columns: Sequence[Column], options: Mapping[str, str], seed: str = ""
) -> list[ColumnValues]:
    """The columns of a table; `seed`: that of its random values.

    Raises `OptionError` for a type that cannot be generated, an option that does not apply to its
    column, and values out of range.
    """
    return [_column(column, options, seed) for column in columns]


def own_options(column: Column) -> Iterator[tuple[str, tuple[str, ...] | None]]:
    """The names of a column and its parts (`place.city`), each with its options.

    None: those of a field, see `FIELD_OPTIONS`.
    """
    yield from _own_options(column.name, types.parse(column.type))


def _own_options(path: str, parsed: Any) -> Iterator[tuple[str, tuple[str, ...] | None]]:
    parts = _parts(path, parsed)
    if parts is None:
        yield path, None
        return
    sized = () if parsed["type"] == "ROW" else ("length",)
    yield path, (*sized, "null-rate")
    for name, inner in parts:
        yield from _own_options(name, inner)


def _parts(path: str, parsed: Any) -> list[tuple[str, Any]] | None:
    """The parts of a type with their names; None for a type without."""
    if isinstance(parsed, str) or parsed["type"] not in _NESTED:
        return None
    if parsed["type"] == "ROW":
        return [(f"{path}.{field['name']}", field["type"]) for field in parsed["fields"]]
    if parsed["type"] == "ARRAY":
        return [(f"{path}.element", parsed["element"])]
    return [(f"{path}.key", parsed["key"]), (f"{path}.value", parsed["value"])]


def _column(column: Column, options: Mapping[str, str], seed: str) -> ColumnValues:
    parsed = types.parse(column.type, column.nullable)
    if _parts(column.name, parsed) is None:
        return field_of(column, options, seed)
    made = _part(column.name, parsed, options, seed)
    key = f"fields.{column.name}.null-rate"
    return with_nulls(made, column, column.name, key, options.get(key, "0"))


def _part(path: str, parsed: Any, options: Mapping[str, str], seed: str) -> ColumnValues:
    parts = _parts(path, parsed)
    if parts is None:
        field = field_of(Column(path, parsed.removesuffix(" NOT NULL")), options, seed)
        if field.kind == "sequence":
            raise OptionError(f"option 'fields.{path}.kind': only a whole column is a sequence")
        return field
    made = [_part(name, inner, options, seed) for name, inner in parts]
    kind = types.arrow_type(parsed)
    if parsed["type"] == "ROW":
        return Row(kind, tuple(made))
    key = f"fields.{path}.length"
    length = integer(key, options.get(key, _ELEMENTS), 0)
    if parsed["type"] == "ARRAY":
        return Array(kind, made[0], length)
    return Map(kind, made[0], made[1], length)
