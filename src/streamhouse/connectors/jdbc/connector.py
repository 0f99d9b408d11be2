"""The `jdbc` connector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamhouse.connectors.base import Connector, Scan
from streamhouse.connectors.jdbc.options import OPTIONS, WITHOUT_EFFECT, parse
from streamhouse.connectors.jdbc.table import KeyedTable
from streamhouse.sql.plan import Capabilities, TableInfo


class _Jdbc(Connector):
    name = "jdbc"
    summary = "A MySQL or MariaDB table as it is now, looked up by key or read whole."
    options = OPTIONS
    without_effect = WITHOUT_EFFECT
    capabilities = Capabilities(stream=False, server=True, sink=False, merges=False)
    scan_note = "the rows as they are now"

    def check(self, table: TableInfo, options: Mapping[str, str], where: str) -> None:
        parse(options)

    def scan(self, table: TableInfo, options: Mapping[str, str], columns: Sequence[str]) -> Scan:
        wanted = [column for column in table.columns if column.name in columns]
        opened = KeyedTable(parse(options).server, wanted)
        opened.close()
        return opened.schema, opened.all_rows


CONNECTOR = _Jdbc()
