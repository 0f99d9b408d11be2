"""The operator of any SELECT: computes the whole result, and what differs from the kept one.

The kept rows are those of the view's table. So the operator needs no state of its own, and its
output is right whatever has changed in the inputs, and whoever has written the table before. DuckDB
joins both by the view's key, and spills what exceeds its memory limit.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from types import MappingProxyType
from typing import TypeVar

import duckdb
import pyarrow as pa

from streamhouse.duckdb_engine import BATCH_ROWS, Batches, Limits, Scanner, no_tables, opened
from streamhouse.errors import QueryError
from streamhouse.operators.operator import WEIGHT, Operator, walk, whole_sql
from streamhouse.operators.planning.view_plan import ViewPlan
from streamhouse.operators.trees.arrangement import net
from streamhouse.operators.trees.drawing import described
from streamhouse.operators.trees.view_changes import bag_changes, view_changes

MEMORY = "300MB"
"""What DuckDB uses for a view before it spills to files."""
_KEPT, _STORED = "kept_rows", "stored_rows"
_T = TypeVar("_T")


@dataclass(frozen=True)
class Recompute:
    """Recomputes the view of a plan."""

    plan: ViewPlan

    @property
    def threads(self) -> int:
        """How many threads compute the result; one, if it depends on the order of rows."""
        return 1 if self.plan.ordered else max(2, len(os.sched_getaffinity(0)) // 2)

    def whole(self, tables: Scanner, now_ms: int) -> Iterator[pa.RecordBatch]:
        """The result, with the view's columns in their order."""

        def run(limits: Limits) -> Iterator[pa.RecordBatch]:
            with self._opened(tables, now_ms, limits) as connection:
                yield from connection.sql(self._result).to_arrow_reader(BATCH_ROWS)

        return Limits.growing(lambda limits: started(run(limits)), MEMORY)

    def changes(
        self,
        tables: Scanner,
        now_ms: int,
        kept: tuple[pa.Schema, Batches],
        updates: bool = True,
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The changes that turn the `kept` rows into the result: see `view_changes`.

        They are row kinds, each with rows. Without a key, see `bag_changes`.
        """

        def run(limits: Limits) -> Iterator[tuple[str, pa.RecordBatch]]:
            with self._opened(tables, now_ms, limits, {_KEPT: kept}) as connection:
                if not self.plan.keyless:
                    new = f"({self._result})"
                    yield from view_changes(connection, self.plan, _KEPT, new, updates)
                    return
                new = f"SELECT *, 1 AS {WEIGHT} FROM ({self._result})"
                both = f"({new} UNION ALL SELECT *, -1 AS {WEIGHT} FROM {_KEPT})"
                yield from bag_changes(connection, net(self.plan.tree, both))

        return Limits.growing(lambda limits: started(run(limits)), MEMORY)

    def differences(
        self, old: tuple[pa.Schema, Batches], new: tuple[pa.Schema, Batches], updates: bool = True
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """As `changes`, that turn rows into those of another table, whatever its query is."""
        stored = replace(self.plan.query, sql="", scans=(), rows=None, functions=())

        def run(limits: Limits) -> Iterator[tuple[str, pa.RecordBatch]]:
            more = {_KEPT: old, _STORED: new}
            with opened(stored, no_tables, limits, threads=self.threads, more=more) as connection:
                yield from view_changes(connection, self.plan, _KEPT, _STORED, updates)

        return Limits.growing(lambda limits: started(run(limits)), MEMORY)

    @contextmanager
    def _opened(
        self,
        tables: Scanner,
        now_ms: int,
        limits: Limits,
        more: Mapping[str, tuple[pa.Schema, Batches]] = MappingProxyType({}),
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        """As `duckdb_engine.opened`; an error because of the rows' values names the operator."""
        query, threads = self.plan.query, self.threads
        try:
            with opened(
                query, tables, limits, threads=threads, now_ms=now_ms, more=more
            ) as connection:
                yield connection
        except QueryError as error:
            operator = self._failing(tables, now_ms)
            if operator is None:
                raise
            raise QueryError(f"{error} (operator: {described(operator)})") from error

    def _failing(self, tables: Scanner, now_ms: int) -> Operator | None:
        """The first operator whose result cannot be computed."""
        with opened(self.plan.query, tables, now_ms=now_ms) as connection:
            for each in walk(self.plan.tree.input):
                rows = f"SELECT bit_xor(hash(_rows)) FROM ({whole_sql(each)}) AS _rows"
                try:
                    connection.execute(rows)
                except duckdb.Error:
                    return each
        return None

    @property
    def _result(self) -> str:
        """The result; of rows with equal keys the last one, in the order of all columns."""
        sql = self.plan.query.sql
        return sql if self.plan.unique else self.plan.tree.whole([f"({sql})"])


def started(items: Iterator[_T]) -> Iterator[_T]:
    """An iterator whose first item is computed, so that errors up to there are raised at once."""
    return chain(list(islice(items, 1)), items)
