"""The `datagen` connector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamhouse.connectors.base import Connector, Scan
from streamhouse.connectors.datagen.generated_source import scan
from streamhouse.connectors.datagen.options import OPTIONS, check
from streamhouse.connectors.datagen.source import DatagenSource
from streamhouse.connectors.specs import SourceSpec
from streamhouse.sql.plan import Capabilities, TableInfo


class _Datagen(Connector):
    name = "datagen"
    summary = "Generates rows at a steady rate; a replayed micro-batch has the same rows."
    options = OPTIONS
    without_effect = {"scan.parallelism": "SET 'parallelism.default' sets the number of tasks"}
    capabilities = Capabilities(changelog=False, lookup=False, sink=False, merges=False)
    scan_note = "all rows; needs `number-of-rows` or a sequence"

    def check(self, table: TableInfo, options: Mapping[str, str], where: str) -> None:
        check(options, table.columns, where)

    def source(self, spec: SourceSpec, names: Sequence[str] | None) -> DatagenSource:
        return DatagenSource(spec.columns, spec.options)

    def scan(self, table: TableInfo, options: Mapping[str, str], columns: Sequence[str]) -> Scan:
        return scan(DatagenSource(table.columns, options), table, columns)


CONNECTOR = _Datagen()
