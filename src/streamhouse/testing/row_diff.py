"""Compares expected rows with actual ones, and draws those that differ."""

from collections.abc import Iterator, Sequence
from difflib import ndiff
from typing import Any, TypeAlias

import pyarrow as pa

from streamhouse.formats.json.encode import JsonValues, Value, finite
from streamhouse.formats.json.exact import JsonOptions
from streamhouse.testing.cases import Row

Cells: TypeAlias = dict[str, str]
"""The values of a row as JSON, by column."""
_MOST = 50
"""So many rows of each side are drawn."""


def differences(expected: Sequence[Row], actual: pa.Table) -> Iterator[str]:
    """Lines with the expected rows (-) and the actual ones (+) that have no equal other.

    Each expected row is compared in the columns that it has, FLOAT in 7 digits and
    DOUBLE in 9. Lines with `?` mark where similar rows differ.
    """
    missing, rest = list[Cells](), _cells(actual.to_pylist(), actual.schema)
    for row in sorted(_cells(expected, actual.schema), key=len, reverse=True):
        equal = next((other for other in rest if row.items() <= other.items()), None)
        if equal is None:
            missing.append(row)
        else:
            rest.remove(equal)
    yield from (line.rstrip() for line in ndiff(_lines(missing), _lines(rest)))


def _lines(rows: Sequence[Cells]) -> list[str]:
    lines = sorted(
        f"{{{', '.join(f'{name}: {value}' for name, value in row.items())}}}" for row in rows
    )
    left = len(lines) - _MOST
    return [*lines[:_MOST], f"… and {left:,} more"] if left > 0 else lines


def _cells(rows: Sequence[Row], schema: pa.Schema) -> list[Cells]:
    columns = {
        field.name: _VALUES.values(pa.array([row.get(field.name) for row in rows], field.type))
        for field in schema
    }
    return [{name: _VALUES.dumps(columns[name][n]) for name in row} for n, row in enumerate(rows)]


class _Values(JsonValues):
    """As cases have them, with one text for nearly equal floats, and for equal maps."""

    def leaf(self, kind: pa.DataType) -> Value:
        if pa.types.is_floating(kind):
            digits = 7 if pa.types.is_float32(kind) else 9
            return lambda value: finite(float(f"{value:.{digits}g}"))
        return super().leaf(kind)

    def map_of(self, pairs: Sequence[tuple[Any, Any]], kind: pa.MapType) -> Any:
        return super().map_of(sorted(pairs, key=repr), kind)


_VALUES = _Values(JsonOptions())
