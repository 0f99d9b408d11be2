"""The `kinesis` connector."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from streamhouse.connectors.base import Connector
from streamhouse.connectors.kinesis.options import DECLARED, OPTIONS, WHERE, parse
from streamhouse.connectors.kinesis.rows import RecordRows
from streamhouse.connectors.specs import SourceSpec
from streamhouse.formats.base import format_of
from streamhouse.source import Source
from streamhouse.sql.plan import Capabilities, TableInfo


class _Kinesis(Connector, declared=DECLARED):
    name = WHERE
    options = OPTIONS
    capabilities = Capabilities(changelog=False, lookup=False, scan=False, sink=False, merges=False)

    def capabilities_of(self, options: Mapping[str, str]) -> Capabilities:
        if "format" not in options:
            return self.capabilities
        return replace(self.capabilities, changelog=format_of(options["format"]).changelog)

    def check(self, table: TableInfo, options: Mapping[str, str], where: str) -> None:
        RecordRows(table.columns, parse(options, where).form)

    def offset_origin(self, spec: SourceSpec, name: Sequence[str]) -> str:
        return f"{self.name} {parse(spec.options).name}"

    def source(self, spec: SourceSpec, names: Sequence[str] | None) -> Source:
        # AWS's client takes a third of a second to import.
        from streamhouse.connectors.kinesis.source import KinesisSource

        options = parse(spec.options)
        return KinesisSource(options, RecordRows(spec.columns, options.form))


CONNECTOR = _Kinesis()
