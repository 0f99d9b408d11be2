"""Picklable descriptions of the sources and sinks of continuous queries."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from streamhouse.connectors.base import Sink
from streamhouse.connectors.registry import connector
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.schema import types
from streamhouse.source import ROW_KIND, Source
from streamhouse.sql.plan import Column


@dataclass(frozen=True)
class TableSpec:
    """The table of a source or sink: its connector, its options and all its physical columns.

    `address` is set for Paimon tables, `partitioned_by` and `primary_key` for others.
    """

    connector: str
    options: Mapping[str, str] = field(repr=False)
    columns: tuple[Column, ...]
    address: TableAddress | None = None
    partitioned_by: tuple[str, ...] = ()
    primary_key: tuple[str, ...] = ()

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns as an Arrow schema."""
        return arrow_schema(self.columns)


@dataclass(frozen=True)
class SourceSpec(TableSpec):
    """The source of a query; `shared`: the folder that a reader of the pipeline fills, if any."""

    shared: Path | None = None

    def origin(self, name: Sequence[str]) -> str:
        """The identity of what the source's offsets belong to; `name`: the table's name in FROM."""
        return connector(self.connector).offset_origin(self, name)

    def open(self, names: Sequence[str] | None = None) -> Source:
        """Open the source; `names`: the columns needed (None: all), if the connector can prune.

        Raises `OptionError`, `TableError` or `ConnectError` if something is misconfigured.
        """
        return connector(self.connector).source(self, names)


@dataclass(frozen=True)
class SinkSpec(TableSpec):
    """The sink of a query; `name` is the table's name in the script.

    `commutes`: the order of commits does not change the rows of the Paimon table.
    """

    commutes: bool = False
    name: str = ""

    def open(self) -> Sink:
        """Open the sink; raises `OptionError`, `TableError` or `ConnectError`."""
        return connector(self.connector).sink(self)


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Columns as an Arrow schema."""
    kinds = [(column, types.parse(column.type, column.nullable)) for column in columns]
    return pa.schema(
        pa.field(column.name, types.arrow_type(kind), nullable=column.nullable)
        for column, kind in kinds
    )


def declared_rows(
    rows: pa.RecordBatch,
    columns: Sequence[Column],
    schema: pa.Schema,
    metadata: Callable[[str], pa.Array],
) -> pa.RecordBatch:
    """Rows with all declared columns of a `schema`, then their row kind, if they have one.

    `metadata` returns the values of a METADATA column by its key. Other columns that the rows lack
    are null.
    """
    if rows.schema in (schema, schema.append(pa.field(ROW_KIND, pa.string()))):
        return rows
    own, arrays = rows.schema.names, []
    for column, declared in zip(columns, schema, strict=True):
        if column.metadata is not None:
            arrays.append(metadata(column.metadata).cast(declared.type))
        elif column.name in own:
            arrays.append(rows.column(column.name))
        else:
            arrays.append(pa.nulls(rows.num_rows, declared.type))
    if ROW_KIND in own and ROW_KIND not in schema.names:
        arrays.append(rows.column(ROW_KIND))
        schema = schema.append(rows.schema.field(ROW_KIND))
    return pa.record_batch(arrays, schema=schema)
