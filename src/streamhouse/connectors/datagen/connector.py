"""The `datagen` connector."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamhouse.close_matches import nearest
from streamhouse.connectors.base import Connector, Scan
from streamhouse.connectors.datagen.disorder import Disorder
from streamhouse.connectors.datagen.field import Field, total_rows
from streamhouse.connectors.datagen.field_options import FIELD_OPTIONS, field_of
from streamhouse.connectors.datagen.generated_source import GeneratedSource, scan
from streamhouse.connectors.datagen.nested import Array, ColumnValues, Map, Row, with_nulls
from streamhouse.connectors.datagen.random_streams import RowNumbers
from streamhouse.connectors.specs import SourceSpec
from streamhouse.errors import OptionError
from streamhouse.options import DeclaredOptions, check_known, integer
from streamhouse.paimon.schema import types
from streamhouse.sql.plan import Capabilities, Column, TableInfo

OPTIONS = DeclaredOptions.of(__package__).options
COMMON_OPTIONS = tuple(option for option in OPTIONS if not option.key.startswith("fields."))
"""The options of all connectors of generated rows."""


def check(options: Mapping[str, str], columns: tuple[Column, ...], where: str) -> None:
    """Check a datagen table's options against its columns."""
    plain = [key for key in options if not key.startswith("fields.")]
    check_known(plain, ["connector", *(option.key for option in OPTIONS)], where)
    for key, least in (("rows-per-second", 1), ("number-of-rows", 0)):
        if key in options:
            integer(key, options[key], least)
    try:
        own = dict(option for column in columns for option in own_options(column))
        _check_fields(options, own)
        Disorder.parse(options)
        columns_of(columns, options)
    except OptionError as error:
        raise OptionError(f"{where}: {error}") from None


def _check_fields(options: Mapping[str, str], own: Mapping[str, tuple[str, ...] | None]) -> None:
    """Raise `OptionError` for an option of no column, or that no column has."""
    for key in options:
        if not key.startswith("fields."):
            continue
        name, _, option = key.removeprefix("fields.").rpartition(".")
        if name not in own:
            raise OptionError(f"'{key}': there is no column '{name}'; {nearest(name, own)}")
        allowed = own[name] or tuple(FIELD_OPTIONS)
        if option not in allowed:
            raise OptionError(f"unknown option '{key}'; {nearest(option, allowed)}")


class DatagenSource(GeneratedSource):
    """Generates rows at a steady rate.

    Options are Flink's: `rows-per-second` (10000), `number-of-rows` (unbounded), and
    `fields.<name>.*`, see `connectors.datagen.field_options`; and those of `Disorder`. A
    `TIMESTAMP` column has the time when its row is due, less up to `max-past`.
    """

    def __init__(self, columns: Sequence[Column], options: Mapping[str, str]) -> None:
        rate = integer("rows-per-second", options.get("rows-per-second", "10000"), 1)
        disorder = Disorder.parse(options)
        made = columns_of(columns, options, disorder.seed)
        fields = [values for values in made if isinstance(values, Field)]
        limit = options.get("number-of-rows")
        total = total_rows(fields, None if limit is None else integer("number-of-rows", limit, 0))
        if not columns:
            raise OptionError("datagen: the table has no physical column; declare one")
        super().__init__(
            pa.schema([(c.name, values.type) for c, values in zip(columns, made, strict=True)]),
            lambda numbers, due_ms: [
                values.values(RowNumbers(numbers, due_ms, disorder.seed)) for values in made
            ],
            rate,
            total,
            disorder,
        )


class _Datagen(Connector):
    name = "datagen"
    summary = "Generates rows at a steady rate; a replayed micro-batch has the same rows."
    options = OPTIONS
    without_effect = {"scan.parallelism": "SET 'parallelism.default' sets the number of tasks"}
    capabilities = Capabilities(changelog=False, lookup=False, sink=False, merges=False)
    scan_note = "all rows; needs `number-of-rows` or a sequence"

    def check(self, table: TableInfo, options: Mapping[str, str], where: str) -> None:
        check(options, table.columns, where)

    def source(self, spec: SourceSpec, names: Sequence[str] | None) -> DatagenSource:
        return DatagenSource(spec.columns, spec.options)

    def scan(self, table: TableInfo, options: Mapping[str, str], columns: Sequence[str]) -> Scan:
        return scan(DatagenSource(table.columns, options), table, columns)


CONNECTOR = _Datagen()


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
