"""Compares expected rows with actual ones, and draws those that differ."""

import json
from collections.abc import Iterator, Sequence
from difflib import ndiff
from typing import Any, TypeAlias

import pyarrow as pa

from streamhouse.serve.formats.cells import json_values
from streamhouse.testing.cases import Row

Cells: TypeAlias = dict[str, str]
"""The values of a row as JSON, by column."""
_MOST = 50
"""So many rows of each side are drawn."""


def differences(expected: Sequence[Row], actual: pa.Table) -> Iterator[str]:
    """Lines with the expected rows (-) and the actual ones (+) that have no equal other.

    Each expected row is compared in the columns that it has, FLOAT and DOUBLE in nine digits. Lines
    with `?` mark where similar rows differ.
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
        field.name: json_values(pa.array([row.get(field.name) for row in rows], field.type))
        for field in schema
    }
    return [{name: _json(columns[name][n]) for name in row} for n, row in enumerate(rows)]


def _json(value: Any) -> str:
    """The value as JSON, with equal texts for maps in another order and for floats with nearly
    equal values; only these are numbers with a fraction."""
    text = json.dumps(value, ensure_ascii=False)
    exact = json.loads(text, parse_float=lambda number: float(f"{float(number):.9g}"))
    return json.dumps(exact, ensure_ascii=False, sort_keys=True)
