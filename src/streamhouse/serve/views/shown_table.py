"""A table as its readers see it: with the columns that are computed from the stored ones."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from streamhouse.duckdb_engine import Batches, bounded_reader
from streamhouse.errors import StreamhouseError
from streamhouse.paimon.read.table import Table
from streamhouse.serve.views.served_view import table_info
from streamhouse.sql.batch.bounded_query import Analyzed, analyze_tree, query_tree
from streamhouse.sql.functions.expression_builders import current_time_name
from streamhouse.sql.plan import CURRENT, AsOf, BoundedScan, Column, Name, Resolver, TableInfo
from streamhouse.sql.resolution.columns import parse_query, visible_columns
from streamhouse.sql.syntax import Query, TextPosition
from streamhouse.sql.text import ticked
from streamhouse.sql.types import NULL


class ShownTable:
    """The columns and rows of a table, with its computed columns where they are declared.

    Computed columns are left out if they depend on the time (`PROCTIME()`), so that they are no
    property of a row, or if they cannot be computed here, such as by a function of another engine.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self._info = replace(table_info(table), columns=tuple(table.columns))

    @cached_property
    def computed(self) -> Mapping[str, Column]:
        """The computed columns that readers see, with the types of their expressions."""
        if not self._info.computed:
            return {}
        try:
            visible = visible_columns(self._info, "t")
        except StreamhouseError:
            return {}
        found = {}
        for column in self._info.computed:
            if any(current_time_name(node) for node in visible[column.name].walk()):
                continue
            try:
                (kind,) = self._analyzed([column.name]).types
            except StreamhouseError:
                continue
            found[column.name] = Column(column.name, "STRING" if kind == NULL else kind)
        return found

    @property
    def leaves_out(self) -> bool:
        """Whether readers do not see all computed columns."""
        return len(self.computed) < len(self._info.computed)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The columns that readers see, in the order of their declaration."""
        if not self.computed:
            return self.table.shown
        columns = {column.name: column for column in self.table.shown} | dict(self.computed)
        names = (column.name for column in self._info.declared)
        return tuple(columns[name] for name in names if name in columns)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the `columns`."""
        return tuple(column.name for column in self.columns)

    def read_schema(self, names: Sequence[str] | None = None) -> pa.Schema:
        """The schema of `read`, by default of all `columns`; its metadata has the expressions."""
        names = self.names if names is None else names
        if not self.computes(names):
            return self.table.read_schema(names)
        return pa.schema(
            [
                self._fields.field(name).with_nullable(True)
                if name in self.computed
                else self.table.read_schema([name]).field(0)
                for name in names
            ],
            {column.name: column.expression for column in self._info.computed},
        )

    def computes(self, names: Sequence[str]) -> bool:
        """Whether a read of these columns computes any."""
        return any(column.name in names for column in self._info.computed)

    def read(self, names: Sequence[str], **options: Any) -> Iterator[pa.RecordBatch]:
        """As `Table.read` with its `options`, with computed columns."""
        if not self.computes(names):
            return self.table.read(names, **options)
        return self._computed_rows(names, options)

    @cached_property
    def _fields(self) -> pa.Schema:
        """The computed columns as the engine returns them, which may name the parts of a ROW."""
        names = list(self.computed)
        with self._reader(names, lambda stored: iter(())) as reader:
            return reader.schema

    def _computed_rows(
        self, names: Sequence[str], options: Mapping[str, Any]
    ) -> Iterator[pa.RecordBatch]:
        schema = self.read_schema(names)
        with self._reader(names, lambda stored: self.table.read(stored, **options)) as reader:
            for batch in reader:
                yield batch.cast(schema)

    def _reader(
        self, names: Sequence[str], read: Callable[[list[str]], Iterator[pa.RecordBatch]]
    ) -> AbstractContextManager[pa.RecordBatchReader]:
        def scanner(scan: BoundedScan) -> tuple[pa.Schema, Batches]:
            stored = list(scan.columns)
            return self.table.read_schema(stored), lambda: read(stored)

        analyzed = self._analyzed(names)
        return bounded_reader(analyzed.plan(output=list(names)), scanner)

    def _analyzed(self, names: Sequence[str]) -> Analyzed:
        table = ".".join(map(ticked, self._info.name))
        text = f"SELECT {', '.join(map(ticked, names))} FROM {table}"
        parsed = parse_query(Query(text, TextPosition(1, 1)))
        return analyze_tree(parsed, query_tree(parsed), OneTable(self._info))


class OneTable(Resolver):
    """Resolves each name to one table."""

    def __init__(self, info: TableInfo) -> None:
        self._info = info

    def table(self, name: Name, as_of: AsOf = CURRENT) -> TableInfo:
        return self._info
