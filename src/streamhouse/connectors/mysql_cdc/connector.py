"""The `mysql-cdc` connector."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from streamhouse.connectors.base import Connector, Scan, scanned
from streamhouse.connectors.mysql_cdc.relay.relay import Relays
from streamhouse.connectors.mysql_cdc.source import MySqlSource, followed_tables
from streamhouse.connectors.specs import SourceSpec
from streamhouse.mysql.options import (
    DECLARED,
    OPTIONS,
    WITHOUT_EFFECT,
    is_append_only,
    parse,
    without_effect,
)
from streamhouse.sql.plan import Capabilities, TableInfo


class _MysqlCdc(Connector, declared=DECLARED):
    name = "mysql-cdc"
    options = OPTIONS
    without_effect = WITHOUT_EFFECT
    capabilities = Capabilities(changelog=True, lookup=False, sink=False, merges=False)

    def capabilities_of(self, options: Mapping[str, str]) -> Capabilities:
        return replace(self.capabilities, changelog=not is_append_only(options))

    def no_effect(self, key: str) -> str | None:
        return without_effect(key)

    def check(self, table: TableInfo, options: Mapping[str, str], where: str) -> None:
        parse(options)

    def offset_origin(self, spec: SourceSpec, name: Sequence[str]) -> str:
        # Without the server's address, since the server may move to another host.
        table = (spec.options.get(key, "") for key in ("database-name", "table-name"))
        return f"{self.name} {'.'.join(table)}"

    def source(self, spec: SourceSpec, names: Sequence[str] | None) -> MySqlSource:
        return MySqlSource(spec.options, spec.columns, spec.shared)

    def scan(self, table: TableInfo, options: Mapping[str, str], columns: Sequence[str]) -> Scan:
        source = MySqlSource(options, table.columns)
        return scanned(source, columns, source.whole_table)

    def shared_reader(self) -> Relays:
        return Relays(followed_tables)


CONNECTOR = _MysqlCdc()
