"""Arrangements: rows of an operator's result, kept in a store, and found by expressions over them.

They are a bag: each row has a count. Its segments add up; an arrangement's rows are those whose
counts have a sum that is not 0. Negative sums are impossible, and show that kept rows are wrong.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import duckdb
import pyarrow as pa

from streamhouse.operators.operator import WEIGHT, Leading, Operator, keys, plain, walk, whole_sql
from streamhouse.operators.scan import Scan
from streamhouse.sql.expressions.binder import describe, quote
from streamhouse.state.segment import COUNT, HASH, in_order

Origins: TypeAlias = Mapping[str, tuple[str, Mapping[str, int]]]
"""Where a table is, and the ids of its columns, by the name of its relation in a query."""
_TUPLE = "TUPLE("
"""A row without names of fields, which has some in Arrow."""


@dataclass(frozen=True, eq=False)
class Arrangement:
    """Rows of `operator`, found by `by`: SQL expressions over them, whose alias is `alias`.

    `kinds` are the types as which values of `by` are hashed. Only rows for which `where` is true
    are found. Rows with the same hash are sorted by the column of `leading`, if any. `origins` are
    those of the tables that it reads.
    """

    operator: Operator
    by: tuple[str, ...]
    alias: str
    kinds: tuple[str, ...]
    where: str = ""
    leading: Leading | None = None
    origins: Origins = field(default_factory=dict)

    @cached_property
    def name(self) -> str:
        """A fingerprint of what is kept, and how; that of a table does not depend on aliases.

        Rows of the same name are the same in all views, as of the same snapshots.
        """
        tables = [[each.table.name, each.read, *self._origin(each)] for each in self.scans]
        sql, by, types = whole_sql(self.operator), list(self.by), list(self.operator.types.items())
        if isinstance(self.operator, Scan):
            column = rf'"?\b{self.alias}"?\."{re.escape(self.operator.prefix)}'
            by, sql = [re.sub(column, '"', each) for each in by], ""
            types = [("", kind) for _, kind in types]
        order = [self.sort_column, self.leading is not None and self.leading.least]
        # Other versions of DuckDB may hash in another way.
        parts = [sql, tables, types, by, self.kinds, order, duckdb.__version__]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    @property
    def scans(self) -> list[Scan]:
        """The scans of the tables that it reads."""
        return [each for each in walk(self.operator) if isinstance(each, Scan)]

    def _origin(self, scan: Scan) -> Sequence[object]:
        place, ids = self.origins.get(scan.relation, ("", {}))
        return place, [ids.get(name) for name in scan.read]

    @property
    def label(self) -> str:
        """What is kept, and by what it is found, in words."""
        return ", by ".join([self.operator.describe(), *filter(None, [plain(", ".join(self.by))])])

    @property
    def hash(self) -> str:
        """The SQL of the hash by which a row is found."""
        return hash_of(self.by, self.kinds)

    @property
    def sort_column(self) -> str:
        """The column of a segment by which rows with the same hash are sorted; empty if none is."""
        return f"c{[*self.operator.types].index(self.leading.column)}" if self.leading else ""

    @property
    def order_by(self) -> str:
        """The terms of ORDER BY that sort the rows of a segment."""
        if self.leading is None:
            return HASH
        return f"{HASH}, {self.sort_column} {'ASC' if self.leading.least else 'DESC'} NULLS LAST"

    def stored(self, relation: str, count: str) -> str:
        """The SQL of the rows of a relation as a segment has them, in any order."""
        columns = ", ".join(
            f"CAST({quote(name)} AS VARCHAR) AS c{n}"
            if _is_wide(kind)
            else f"{quote(name)} AS c{n}"
            for n, (name, kind) in enumerate(self.operator.types.items())
        )
        return (
            f"SELECT {columns}, CAST({count} AS BIGINT) AS {COUNT}, {self.hash} AS {HASH} "
            f"FROM {relation} AS {self.alias}"
        )

    def merged(self, relation: str) -> str:
        """The SQL of one segment instead of several ones, whose rows a relation has, in order."""
        kinds = self.operator.types.values()
        net = _net([f"c{n}" for n in range(len(kinds))], kinds, relation, COUNT, HASH)
        return f"{net} ORDER BY {self.order_by}"

    def sorted(self, rows: pa.Table) -> pa.Table:
        """Rows of a segment in their order."""
        return in_order(rows, self.sort_column, self.leading is not None and self.leading.least)

    def weighted(self, relation: str) -> str:
        """The SQL of parts of segments: rows of the operator, with their counts as `WEIGHT`."""
        rows = f"SELECT {self._columns}, {COUNT} AS {WEIGHT} FROM {relation}"
        return f"SELECT * FROM ({rows}) AS {self.alias} WHERE {self.where}" if self.where else rows

    def unpacked(self, relation: str) -> str:
        """The SQL of the rows of a segment in which each counts once."""
        return f"SELECT {self._columns} FROM {relation}"

    @property
    def _columns(self) -> str:
        return ", ".join(
            f"CAST(c{n} AS {kind}) AS {quote(name)}"
            if _is_wide(kind) or _TUPLE in kind
            else f"c{n} AS {quote(name)}"
            for n, (name, kind) in enumerate(self.operator.types.items())
        )


def kinds_of(rows: Operator, by: Sequence[str], alias: str) -> tuple[str, ...]:
    """The types of expressions over an operator's rows."""
    sql = f"SELECT {keys(by)} FROM _rows AS {alias}"
    return tuple(str(kind) for _, kind in describe(sql, {"_rows": rows.types})) if by else ()


def hash_of(expressions: Sequence[str], kinds: Sequence[str]) -> str:
    """The SQL of the hash of values as values of types."""
    values = (f"TRY_CAST({sql} AS {kind})" for sql, kind in zip(expressions, kinds, strict=True))
    return f"hash({', '.join(values)})" if expressions else "CAST(0 AS UBIGINT)"


def net(operator: Operator, relation: str) -> str:
    """The SQL of a bag of an operator's rows: each once, with the sum of its `WEIGHT`, if not 0."""
    types = operator.types
    return _net([quote(name) for name in types], types.values(), relation, WEIGHT)


def _net(
    columns: Sequence[str], kinds: Iterable[str], relation: str, weight: str, *more: str
) -> str:
    pairs = list(zip(columns, kinds, strict=True))
    # Grouped by their values, 0.0 and -0.0 would be one.
    listed = [f"any_value({name}) AS {name}" if is_real(kind) else name for name, kind in pairs]
    by = [f"CAST({name} AS VARCHAR)" if is_real(kind) else name for name, kind in pairs]
    return (
        f"SELECT {', '.join(listed)}, CAST(sum({weight}) AS BIGINT) AS {weight}"
        f"{''.join(f', {each}' for each in more)} FROM {relation} "
        f"GROUP BY {', '.join([*by, *more])} HAVING sum({weight}) <> 0"
    )


def is_real(kind: str) -> bool:
    """Whether values of a type contain floating-point numbers."""
    return "DOUBLE" in kind or "FLOAT" in kind


def _is_wide(kind: str) -> bool:
    """Whether a type is one of 128 bits, which Arrow does not have."""
    return "HUGEINT" in kind
