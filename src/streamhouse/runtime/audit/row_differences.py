"""The rows in which a table differs from what it should be: for an audit, and to repair them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from duckdb import DuckDBPyConnection
from sqlglot import exp
from sqlglot.errors import SqlglotError

from streamhouse.close_matches import nearest
from streamhouse.duckdb_database import open_database
from streamhouse.errors import OptionError
from streamhouse.paimon.read.key_set import KeySet
from streamhouse.runtime.audit.recorded_batches import Unread
from streamhouse.source import of_kind

ABSOLUTE = 0.005
_RELATIVE = 1e-12


_ROW = "row"


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
    """The rows in which an actual table differs from the expected one.

    `wrong` are rows of the actual table, and `corrected` what they should be, in the same order;
    `missing` are rows that it lacks, `surplus` rows that it should not have.
    """

    wrong: pa.Table
    corrected: pa.Table
    missing: pa.Table
    surplus: pa.Table
    key: tuple[str, ...]

    @property
    def counts(self) -> tuple[int, int, int]:
        """The numbers of missing, wrong and surplus rows."""
        return self.missing.num_rows, self.wrong.num_rows, self.surplus.num_rows

    def changes(self, null_columns: Sequence[str]) -> Iterator[pa.Table]:
        """The changelog that repairs the table: -U and +U of wrong rows, +I of missing ones.

        `null_columns` are null in the -U and +U rows, so that the merge keeps newer values.
        """
        for rows, kind in ((self.wrong, "-U"), (self.corrected, "+U")):
            nulls = {name: pa.nulls(rows.num_rows, rows.field(name).type) for name in null_columns}
            yield of_kind(_with_columns(rows, nulls), kind)
        yield of_kind(self.missing, "+I")

    def touches(self, keys: pa.Table) -> bool:
        """Whether a row with one of these keys differs."""
        return bool(KeySet(keys).mask(self.keys).any())

    def applied(self, actual: pa.Table) -> pa.Table:
        """`actual` repaired."""
        unchanged = actual.filter(pa.array(~KeySet(self.keys).mask(actual)))
        return pa.concat_tables([unchanged, self.corrected, self.missing])

    @cached_property
    def keys(self) -> pa.Table:
        """The keys of the rows that differ."""
        return pa.concat_tables([self.wrong, self.surplus, self.missing]).select(list(self.key))


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
    columns = {name: f"c{i}" for i, name in enumerate(names)}
    compared = [name for name in names if name not in key and name not in kept]
    key_match = " AND ".join(f"o.{columns[n]} = n.{columns[n]}" for n in key)
    differing = [
        differs_sql(old.schema.field(n).type, f"o.{columns[n]}", f"n.{columns[n]}")
        for n in compared
    ]
    empty = [_is_empty(old.schema.field(n).type, columns[n]) for n in compared]
    condition = _condition(where, key, columns)
    query = (
        f"SELECT o.{_ROW} AS o, n.{_ROW} AS n FROM (SELECT * FROM old WHERE {condition}) o "
        f"FULL OUTER JOIN (SELECT * FROM new WHERE {condition}) n ON {key_match} "
        f"WHERE o.{_ROW} IS NULL "
        f"OR (n.{_ROW} IS NULL AND NOT ({' AND '.join(empty) or 'false'})) "
        f"OR (n.{_ROW} IS NOT NULL AND ({' OR '.join(differing) or 'false'}))"
    )
    with open_database() as con:
        con.register("old", _numbered(old))
        con.register("new", _numbered(new))
        try:
            pairs = con.sql(query).to_arrow_table()
        except duckdb.Error as error:
            first = str(error).splitlines()[0]
            raise OptionError(f"argument 'where': {where!r} fails: {first}") from None
    o, n = pairs.column("o"), pairs.column("n")
    both = pc.and_(o.is_valid(), n.is_valid())
    wrong, corrected = old.take(o.filter(both)), new.take(n.filter(both))
    return Deviation(
        wrong, _with_columns(corrected, {name: wrong.column(name) for name in kept}),
        new.take(n.filter(o.is_null())), old.take(o.filter(n.is_null())), key,
    )  # fmt: skip


def _with_columns(table: pa.Table, columns: Mapping[str, pa.ChunkedArray | pa.Array]) -> pa.Table:
    """The table with these columns in the place of its own."""
    arrays = [columns.get(name, table.column(name)) for name in table.column_names]
    return pa.Table.from_arrays(arrays, schema=table.schema)


def _is_empty(column_type: pa.DataType, name: str) -> str:
    if pa.types.is_floating(column_type):
        return f"coalesce(abs(o.{name}) <= {ABSOLUTE}, true)"
    if pa.types.is_integer(column_type) or pa.types.is_decimal(column_type):
        return f"coalesce(o.{name} = 0, true)"
    return f"o.{name} IS NULL"


def _condition(where: str | None, key: Sequence[str], columns: dict[str, str]) -> str:
    """`where` as a DuckDB condition on the renamed columns."""
    if where is None:
        return "true"
    try:
        tree = sqlglot.parse_one(where, dialect="spark")
    except SqlglotError as error:
        first = str(error).splitlines()[0]
        raise OptionError(f"argument 'where': {where!r} cannot be read: {first}") from None
    if tree.find(exp.Query, exp.Command, exp.DDL, exp.DML):
        raise OptionError("argument 'where' must be a condition over the primary key")
    for column in list(tree.find_all(exp.Column)):
        if column.name not in key:
            raise OptionError(
                f"argument 'where': '{column.name}' is not a column of the primary key; "
                f"{nearest(column.name, key)}"
            )
        column.set("table", None)
        column.set("this", exp.to_identifier(columns[column.name]))
    return tree.sql(dialect="duckdb")


def _numbered(table: pa.Table) -> pa.Table:
    named = table.rename_columns([f"c{i}" for i in range(table.num_columns)])
    return named.append_column(_ROW, pa.array(np.arange(table.num_rows)))
