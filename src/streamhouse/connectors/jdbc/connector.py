"""The `jdbc` connector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamhouse.connectors.base import Connector, Scan
from streamhouse.connectors.jdbc.options import OPTIONS, WITHOUT_EFFECT, parse
from streamhouse.connectors.jdbc.table import KeyedTable
from streamhouse.sql.plan import Capabilities, TableInfo


class _Jdbc(Connector):
    name = "jdbc"
    summary = "The current rows of a MySQL or MariaDB table: lookup joins by key, or a full read."
    options = OPTIONS
    without_effect = WITHOUT_EFFECT
    capabilities = Capabilities(stream=False, server=True, sink=False, merges=False)
    scan_note = "the current rows"

    def check(self, table: TableInfo, options: Mapping[str, str], where: str) -> None:
        parse(options)

    def scan(self, table: TableInfo, options: Mapping[str, str], columns: Sequence[str]) -> Scan:
        selected = [column for column in table.columns if column.name in columns]
        reader = KeyedTable(parse(options).server, selected)
        reader.close()
        return reader.schema, reader.all_rows


CONNECTOR = _Jdbc()
