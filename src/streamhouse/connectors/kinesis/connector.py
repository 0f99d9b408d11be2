"""The `kinesis` connector."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from streamhouse.connectors.base import Connector
from streamhouse.connectors.kinesis.options import DECLARED, OPTIONS, WHERE, parse
from streamhouse.connectors.kinesis.rows import RecordRows
from streamhouse.connectors.specs import SourceSpec
from streamhouse.formats.base import FormatChoice, format_of
from streamhouse.source import Source
from streamhouse.sql.plan import Capabilities, TableInfo


class _Kinesis(Connector):
    name = WHERE
    summary = "Records of an Amazon Kinesis data stream, in the order of each shard."
    options = OPTIONS
    without_effect = DECLARED.without_effect
    metadata = DECLARED.metadata
    capabilities = Capabilities(changelog=False, lookup=False, scan=False, sink=False, merges=False)

    def capabilities_of(self, options: Mapping[str, str]) -> Capabilities:
        if "format" not in options:
            return self.capabilities
        return replace(self.capabilities, changelog=format_of(options["format"]).changelog)

    def check(self, table: TableInfo, options: Mapping[str, str], where: str) -> None:
        current = DECLARED.current(options)
        parsed = parse(current, where)
        form = FormatChoice.of(current, current["format"])
        RecordRows(table.columns, form)
        if form.changelog:
            parsed.bad_records.check_changes(where)

    def offset_origin(self, spec: SourceSpec, name: Sequence[str]) -> str:
        return f"{self.name} {parse(DECLARED.current(spec.options)).name}"

    def source(self, spec: SourceSpec, names: Sequence[str] | None) -> Source:
        # AWS's client takes a third of a second to import.
        from streamhouse.connectors.kinesis.source import KinesisSource

        current = DECLARED.current(spec.options)
        form = FormatChoice.of(current, current["format"])
        return KinesisSource(parse(current), RecordRows(spec.columns, form))


CONNECTOR = _Kinesis()
