"""The endpoints of planned queries: tables as addresses, sources and sinks as specifications."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from streamhouse.connectors import registry
from streamhouse.connectors.bad_records import OPTIONS, BadRecordOptions
from streamhouse.connectors.specs import SinkSpec, SourceSpec
from streamhouse.lookup.dimension import is_server
from streamhouse.options import OptionValues
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.schema.table_name import TableName
from streamhouse.sql.plan import LookupJoin, StreamQuery, TableInfo

if TYPE_CHECKING:
    from streamhouse.runtime.session.session import Session


class Endpoints:
    """Describes what a query reads and writes, so that drivers and executors can open it."""

    def __init__(self, session: Session) -> None:
        self._session, self._catalogs = session, session.catalogs

    def address(self, info: TableInfo) -> TableAddress:
        """The address of a Paimon table, with the schema id that the query is planned with."""
        catalog, database, name = info.name
        warehouse = self._catalogs.warehouse(catalog)
        version = warehouse.table(f"{database}.{TableName.parse(name).data}").schema_id
        return TableAddress(self._catalogs.options(catalog), f"{database}.{name}", version)

    def target(self, info: TableInfo) -> TableAddress:
        """The address of a continuous query's target; for another sink than Paimon, a name only.

        The name of a sink cannot be that of a table (`default.alerts$print`). The query's side
        tables are named after it. Without a warehouse the address has no options.
        """
        if info.connector == "paimon":
            return self.address(info)
        catalog, database, name = info.name
        options = self._catalogs.options(catalog) if catalog in self._catalogs else {}
        return TableAddress(options, f"{database}.{name}${info.connector}")

    def sink(self, info: TableInfo, hint: Mapping[str, str]) -> SinkSpec | None:
        """The sink of a table, with the options of a hint; None for a Paimon table."""
        if info.connector == "paimon":
            return None
        table = replace(info, options={**info.options, **hint})
        if hint:
            for text in registry.check_declaration(table, f"table {'.'.join(info.name[1:])}"):
                self._session.notice(text)
        return SinkSpec(
            info.connector,
            registry.effective_options(table),
            tuple(column for column in info.columns if not column.virtual),
            primary_key=info.primary_key,
            partitioned_by=info.partitioned_by,
            name=".".join(info.name[1:]),
        )

    def source(self, query: StreamQuery) -> SourceSpec:
        """The source of a continuous query."""
        table = query.source
        if table.connector == "paimon":
            address = self.address(table)
            return SourceSpec("paimon", dict(query.scan.options), table.columns, address)
        options = registry.effective_options(table, query.scan.options)
        return SourceSpec(
            table.connector,
            options,
            table.columns,
            partitioned_by=table.partitioned_by,
            primary_key=table.primary_key,
        )

    def dimension(self, lookup: LookupJoin) -> TableAddress:
        """The address of a lookup's table; for a table on a server, only its name."""
        if is_server(lookup):
            return TableAddress({}, ".".join(lookup.table.name[1:]))
        return self.address(lookup.table)

    def dead_letters(self, query: StreamQuery) -> TableAddress | None:
        """The table into which the source of a query writes bad records; None if there is none."""
        options = {**query.source.options, **query.scan.options}
        parsed = OptionValues(OPTIONS, options).record(BadRecordOptions)
        if parsed.table is None:
            return None
        catalog, database, name = self._catalogs.full(tuple(parsed.table.split(".")))
        return TableAddress(self._catalogs.options(catalog), f"{database}.{name}")
