"""The rows in which a table differs from what it should be: for an audit, and to repair them."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from duckdb import DuckDBPyConnection
from sqlglot import exp

from streamhouse.errors import OptionError
from streamhouse.paimon.changelog.differences.state_difference import Differ
from streamhouse.paimon.read.key_set import KeySet
from streamhouse.procedures.arguments import parse_where
from streamhouse.runtime.audit.recorded_batches import Unread
from streamhouse.source import ROW_KIND

ABSOLUTE = 0.005
_RELATIVE = 1e-12


def equal(a: Any, b: Any, relative: float = _RELATIVE, absolute: float = ABSOLUTE) -> bool:
    """Whether two values are equal; finite floats also if they differ by `absolute` or `relative`.

    NaN equals NaN.
    """
    if isinstance(a, float) and isinstance(b, float):
        if math.isnan(a):
            return math.isnan(b)
        return math.isclose(a, b, rel_tol=relative, abs_tol=absolute)
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


@dataclass(frozen=True)
class Deviation:
    """The changes of an actual table that make it the expected one.

    `changes` are -U and +U of wrong rows, +I of missing ones, and -D of surplus ones: the column
    `rowkind`, then those of the table.
    """

    changes: pa.Table
    key: tuple[str, ...]

    @cached_property
    def counts(self) -> tuple[int, int, int]:
        """The numbers of missing, wrong and surplus rows."""
        kinds = Counter(self.changes.column(ROW_KIND).to_pylist())
        return kinds["+I"], kinds["-U"], kinds["-D"]

    def with_nulls(self, names: Sequence[str]) -> pa.Table:
        """The changes with nulls in some columns of -U and +U, so that a merge keeps newer values.

        The columns are as a writer expects them.
        """
        changes = self.changes
        missing = pc.equal(changes.column(ROW_KIND), "+I")
        places = pc.if_else(missing, pa.array(range(changes.num_rows), pa.int64()), None)
        for name in names:
            at, field = changes.schema.get_field_index(name), changes.schema.field(name)
            changes = changes.set_column(at, field, changes.column(at).take(places))
        return changes.select([*changes.column_names[1:], ROW_KIND])

    def touches(self, keys: pa.Table) -> bool:
        """Whether a row with one of these keys differs."""
        return bool(KeySet(keys).mask(self.keys).any())

    def applied(self, actual: pa.Table) -> pa.Table:
        """`actual` repaired."""
        expected = pc.is_in(self.changes.column(ROW_KIND), value_set=pa.array(["+U", "+I"]))
        rows = self.changes.filter(expected).drop_columns([ROW_KIND])
        return pa.concat_tables([KeySet(self.keys).others(actual), rows])

    @property
    def keys(self) -> pa.Table:
        """The keys of the rows that differ."""
        return self.changes.select(list(self.key))


def deviation(
    old: pa.Table, new: pa.Table, key: tuple[str, ...], kept: Sequence[str], where: str | None
) -> Deviation:
    """Compare two states by key; only rows that meet `where`, a condition on the key columns.

    Columns in `kept` are not compared: wrong rows keep their values, and missing rows have those
    of `new`. Floating-point numbers are equal if they differ by at most 0.005 or 1 in 10^12, since
    the order of addition differs. A surplus row of zeros and nulls is no difference: retractions
    leave such rows. Raises `OptionError` for a condition that cannot be parsed or fails.
    """
    names = old.schema.names
    with closing(Differ()) as differ:
        if where is not None:
            condition = _condition(where, key, names)
            try:
                old, new = (differ.where(rows, condition) for rows in (old, new))
            except duckdb.Error as error:
                first = str(error).splitlines()[0]
                raise OptionError(f"argument 'where': {where!r} fails: {first}") from None
        changes = differ.by_key(old, new, key, kept, differs_sql)
        empty = [
            _is_empty(field.type, f"c{i}")
            for i, field in enumerate(changes.schema)
            if field.name not in (ROW_KIND, *key, *kept)
        ]
        is_empty = " AND ".join(empty) or "false"
        return Deviation(differ.where(changes, f"NOT (c0 = '-D' AND {is_empty})"), key)


def _is_empty(column_type: pa.DataType, name: str) -> str:
    if pa.types.is_floating(column_type):
        return f"coalesce(abs({name}) <= {ABSOLUTE}, true)"
    if pa.types.is_integer(column_type) or pa.types.is_decimal(column_type):
        return f"coalesce({name} = 0, true)"
    return f"{name} IS NULL"


def _condition(where: str, key: Sequence[str], names: Sequence[str]) -> str:
    """`where` as a condition for `Differ.where`."""
    tree = parse_where(where, key, "columns of the primary key")
    for column in list(tree.find_all(exp.Column)):
        column.set("table", None)
        column.set("this", exp.to_identifier(f"c{names.index(column.name)}"))
    return tree.sql(dialect="duckdb")
