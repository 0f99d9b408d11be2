"""The result of an audit: the rows in which a table differs from what it should be."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import pyarrow as pa
from duckdb import DuckDBPyConnection

from streamhouse.runtime.audit.recorded_batches import Unread

ABSOLUTE = 0.005
_RELATIVE = 1e-12


def equal(a: Any, b: Any) -> bool:
    """Whether two values are equal; finite floats also if they differ by `ABSOLUTE` or 1 in 10^12.

    NaN equals NaN.
    """
    if isinstance(a, float) and isinstance(b, float):
        if math.isnan(a):
            return math.isnan(b)
        return math.isclose(a, b, rel_tol=_RELATIVE, abs_tol=ABSOLUTE)
    return bool(a == b)


def differs_sql(kind: pa.DataType, a: str, b: str) -> str:
    """A DuckDB condition over two columns of a type: whether their values are not `equal`."""
    if not pa.types.is_floating(kind):
        return f"{a} IS DISTINCT FROM {b}"
    # DuckDB's NaN equals NaN and is greater than infinity.
    close = f"abs({a} - {b}) <= greatest({ABSOLUTE}, {_RELATIVE} * greatest(abs({a}), abs({b})))"
    finite = f"isfinite({a}) AND isfinite({b})"
    return f"({a} IS DISTINCT FROM {b} AND NOT coalesce({finite} AND {close}, false))"


Row = dict[str, Any]


@dataclass(frozen=True)
class Difference:
    """One key whose actual row differs from the expected one; None where there is no row.

    `key` has all values of a row without a key.
    """

    key: tuple[Any, ...]
    actual: Row | None
    expected: Row | None


@dataclass(frozen=True)
class Audit:
    """The result of an audit: what was compared, at which snapshot, and what differs.

    `unread` is what the view lacks because its queries have not read it yet, and the rows of the
    view itself that wait for compaction. `from_snapshot` is the snapshot of the view that the
    recomputation started from, without proving it, because its inputs have expired or it was
    overwritten; 0 if everything was recomputed. `batches`, `joined_rows`, `waiting_rows` (pending
    for a lookup) and `foreign_snapshots` (by other writers) count what was recomputed. `inputs` are
    the snapshots, by table, from which a materialized view was computed.
    """

    table: str
    snapshot: int | None
    batches: int
    joined_rows: int
    waiting_rows: int
    foreign_snapshots: int
    rows: int
    from_snapshot: int
    differences: tuple[Difference, ...] = field(repr=False)
    unread: tuple[Unread, ...] = ()
    inputs: Mapping[str, int] | None = None

    @property
    def equal(self) -> bool:
        """Whether the view has exactly the expected rows."""
        return not self.differences

    @property
    def complete(self) -> bool:
        """Whether the queries have read all rows of their sources."""
        return not self.unread


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
