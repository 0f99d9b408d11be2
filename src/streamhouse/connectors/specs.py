"""Picklable descriptions of the sources and sinks of continuous queries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from streamhouse.connectors.base import Sink
from streamhouse.connectors.registry import connector
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.schema import types
from streamhouse.source import Source
from streamhouse.sql.plan import Column


@dataclass(frozen=True)
class SourceSpec:
    """The source of a query: a connector, its options and all physical columns of its table.

    `address` is set for Paimon tables. `shared`: the folder that a shared reader of the pipeline
    fills, if any. `partitioned_by` and `primary_key`: of the declaration of another table.
    """

    connector: str
    options: Mapping[str, str] = field(repr=False)
    columns: tuple[Column, ...]
    address: TableAddress | None = None
    shared: Path | None = None
    partitioned_by: tuple[str, ...] = ()
    primary_key: tuple[str, ...] = ()

    def origin(self, name: Sequence[str]) -> str:
        """The identity of what the source's offsets belong to; `name`: the table's name in FROM."""
        return connector(self.connector).offset_origin(self, name)

    def open(self, names: Sequence[str] | None = None) -> Source:
        """Open the source; `names`: the columns needed (None: all), if the connector can prune.

        Raises `OptionError`, `TableError` or `ConnectError` if something is misconfigured.
        """
        return connector(self.connector).source(self, names)


@dataclass(frozen=True)
class SinkSpec:
    """The sink of a query: a connector, its options and all physical columns of its table.

    `address` is set for Paimon tables; `commutes`: the order of commits does not change the rows of
    such a table. `primary_key` and `partitioned_by` are those of the declaration of another table,
    `name` is its name in the script.
    """

    connector: str
    options: Mapping[str, str] = field(repr=False)
    columns: tuple[Column, ...]
    address: TableAddress | None = None
    commutes: bool = False
    primary_key: tuple[str, ...] = ()
    partitioned_by: tuple[str, ...] = ()
    name: str = ""

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns as an Arrow schema."""
        return arrow_schema(self.columns)

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
