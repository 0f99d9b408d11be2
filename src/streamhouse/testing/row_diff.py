"""Compares expected rows with actual ones, and draws what differs."""

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa

from streamhouse.paimon.changelog.differences.state_difference import Differ
from streamhouse.runtime.audit.row_differences import differs_sql, equal
from streamhouse.serve.formats.cells import table_texts
from streamhouse.testing.cases import Row
from streamhouse.types import flink_type

Pair: TypeAlias = tuple[Row | None, Row | None]
"""An expected and an actual row that differ; None where there is no such row."""
_RELATIVE = 1e-9


def same(a: Any, b: Any) -> bool:
    """Whether two values are equal: floats nearly, maps, which are lists of pairs, in any order."""
    if isinstance(a, dict) and isinstance(b, dict):
        return all(same(value, b[name]) for name, value in a.items())
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        if a and isinstance(a[0], tuple):
            a, b = sorted(a, key=repr), sorted(b, key=repr)
        return len(a) == len(b) and all(map(same, a, b))
    return equal(a, b, _RELATIVE, 0.0)


def unequal(expected: Sequence[Row], actual: Sequence[Row], key: Sequence[str]) -> list[Pair]:
    """The rows of both sides that have no equal row on the other side, in similar pairs.

    An expected row is compared in the columns that it has. Rows with equal cells make a pair; those
    of the `key` count most.
    """
    rest, alone, pairs = list(actual), list[Row](), list[Pair]()
    for row in sorted(expected, key=len, reverse=True):
        at = next((n for n, other in enumerate(rest) if same(row, other)), None)
        if at is None:
            alone.append(row)
        else:
            del rest[at]
    for row in alone:
        counts = [
            sum(same(row[name], other[name]) * (len(row) if name in key else 1) for name in row)
            for other in rest
        ]
        most = max(counts, default=0)
        pairs.append((row, rest.pop(counts.index(most)) if most else None))
    return [*pairs, *((None, row) for row in rest)]


def changes(before: pa.Table, after: pa.Table, key: Sequence[str]) -> pa.Table:
    """The row kinds, then the columns, of what changed; without a key, nothing is an update."""
    differs = partial(differs_sql, relative=_RELATIVE, absolute=0.0)
    with closing(Differ()) as differ:
        if key:
            return differ.by_key(before, after, key, differs=differs)
        return differ.by_row(before, after)


def drawn(pairs: Sequence[Pair], schema: pa.Schema) -> list[str]:
    """A table of what differs: expected rows, actual rows, and marks below cells that differ."""
    rows = [row for pair in pairs for row in pair]
    texts: list[dict[str, str]] = [{} for _ in rows]
    for field in schema:
        values = pa.array([(row or {}).get(field.name) for row in rows], field.type)
        for row, own, text in zip(rows, texts, table_texts(values), strict=True):
            if row is not None and field.name in row:
                own[field.name] = "NULL" if text is None else text
    lines = [(" ", {name: name for name in schema.names})]
    for (expected, actual), left, right in zip(pairs, texts[::2], texts[1::2], strict=True):
        differ = []
        if expected is not None and actual is not None:
            differ = [name for name in expected if not same(expected[name], actual[name])]
            for name in (name for name in differ if left[name] == right[name]):
                kind = flink_type(schema.field(name).type)
                left[name], right[name] = f"{expected[name]!r} {kind}", f"{actual[name]!r} {kind}"
        marks = {name: "^" * len(right[name]) for name in differ}
        sides = (("-", expected, left), ("+", actual, right), (" ", marks or None, marks))
        lines += [(mark, cells) for mark, row, cells in sides if row is not None]
    widths = {n: max(len(cells.get(n, "")) for _, cells in lines) for n in schema.names}
    return [
        f"{mark} {'  '.join(cells.get(n, '').ljust(widths[n]) for n in widths)}".rstrip()
        for mark, cells in lines
    ]
