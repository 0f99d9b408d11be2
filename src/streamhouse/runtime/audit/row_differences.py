"""The rows in which a table differs from what it should be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from duckdb import DuckDBPyConnection

Row = dict[str, Any]


@dataclass(frozen=True)
class Difference:
    """One key whose actual row differs from the expected one; None where there is no row.

    `key` has all values of a row without a key.
    """

    key: tuple[Any, ...]
    actual: Row | None
    expected: Row | None


def differences(
    connection: DuckDBPyConnection,
    key: Sequence[str],
    loose: Sequence[str],
    equal: Callable[[Row, Row], bool],
) -> Iterator[Difference]:
    """The differences of the relations `actual` and `expected`, sorted by key.

    They are compared as multisets. Of the rows that differ, those with the same `key` are compared
    by `equal`; without a key, those with the same values in all but the `loose` columns.
    """
    extra, missing = (
        connection.sql(f"FROM {one} EXCEPT ALL FROM {other}").to_arrow_table().to_pylist()
        for one, other in (("actual", "expected"), ("expected", "actual"))
    )
    groups: dict[str, tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
    for side, rows in enumerate((extra, missing)):
        for row in sorted(rows, key=lambda row: repr([row[name] for name in loose])):
            names = key or [name for name in row if name not in loose]
            groups[repr([row[name] for name in names])][side].append(row)
    for _, (actual, expected) in sorted(groups.items()):
        for a, b in zip_longest(actual, expected):
            if a is not None and b is not None and equal(a, b):
                continue
            if key:
                yield Difference(tuple(map((a or b).__getitem__, key)), a, b)
                continue
            if a is not None:
                yield Difference(tuple(a.values()), a, None)
            if b is not None:
                yield Difference(tuple(b.values()), None, b)
