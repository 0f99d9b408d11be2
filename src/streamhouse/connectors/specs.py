"""Sources and sinks of continuous queries as one process tells another; picklable."""

from __future__ import annotations

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
    """Where a query reads: a connector, its options and all physical columns of its table.

    `address` is set for Paimon tables. `shared`: the folder that a `SharedReader` of the pipeline
    fills.
    """

    connector: str
    options: Mapping[str, str] = field(repr=False)
    columns: tuple[Column, ...]
    address: TableAddress | None = None
    shared: Path | None = None

    def origin(self, name: Sequence[str]) -> str:
        """What offsets of the source are offsets of; `name` is what FROM calls it."""
        return connector(self.connector).offset_origin(self, name)

    def open(self, names: Sequence[str] | None = None) -> Source:
        """The source; `names` are the columns needed, where the connector can leave out others.

        Raises `OptionError`, `TableError` or `ConnectError` for what is set up wrongly.
        """
        return connector(self.connector).source(self, names)


@dataclass(frozen=True)
class SinkSpec:
    """Where a query writes: a connector, its options and all physical columns of its table.

    `address` is set for Paimon tables; `commutes` says that the order of commits does not change
    what such a table holds.
    """

    connector: str
    options: Mapping[str, str] = field(repr=False)
    columns: tuple[Column, ...]
    address: TableAddress | None = None
    commutes: bool = False

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns as Arrow's."""
        kinds = [(column, types.parse(column.type, column.nullable)) for column in self.columns]
        return pa.schema(
            pa.field(column.name, types.arrow_type(kind), nullable=column.nullable)
            for column, kind in kinds
        )

    def open(self) -> Sink:
        """The sink; raises `OptionError`, `TableError` or `ConnectError`."""
        return connector(self.connector).sink(self)
