"""The `kinesis` connector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from streamhouse.connectors.base import Connector, Option
from streamhouse.connectors.kinesis.options import DECLARED, OPTIONS, WHERE, KinesisOptions, parse
from streamhouse.connectors.kinesis.rows import METADATA, RecordRows, table_schema
from streamhouse.connectors.specs import SourceSpec
from streamhouse.errors import OptionError
from streamhouse.formats.base import Decoder, FormatChoice, declared_options, format_of, names
from streamhouse.options import check_known
from streamhouse.source import Source
from streamhouse.sql.plan import Capabilities, Column, TableInfo

_FORMAT = Option(
    "format", ", ".join(f"`{name}`" for name in names()), "the records' format", required=True
)
_ALL = (_FORMAT, *OPTIONS, *declared_options(format_of(name) for name in names()))


class _Kinesis(Connector):
    name = WHERE
    summary = "Records of an Amazon Kinesis data stream, in the order of each shard."
    options = _ALL
    without_effect = DECLARED.without_effect
    metadata = METADATA
    capabilities = Capabilities(changelog=False, lookup=False, scan=False, sink=False, merges=False)

    def capabilities_of(self, options: Mapping[str, str]) -> Capabilities:
        if "format" not in options:
            return self.capabilities
        return replace(self.capabilities, changelog=format_of(options["format"]).changelog)

    def check(self, table: TableInfo, options: Mapping[str, str], where: str) -> None:
        current = DECLARED.current(options)
        known = [*(option.key for option in _ALL), "source.init.timestamp.format"]
        check_known(current, known, where)
        if "format" not in current:
            raise OptionError(f"{where}: option 'format' is missing; one of {', '.join(names())}")
        parsed = parse(current)
        if _decoder(table.columns, current).changelog:
            parsed.bad_records.check_changes(where)

    def offset_origin(self, spec: SourceSpec, name: Sequence[str]) -> str:
        return f"{self.name} {_options(spec.options).name}"

    def source(self, spec: SourceSpec, names: Sequence[str] | None) -> Source:
        # AWS's client takes a third of a second to import.
        from streamhouse.connectors.kinesis.source import KinesisSource

        options = _options(spec.options)
        decoder = _decoder(spec.columns, DECLARED.current(spec.options))
        return KinesisSource(options, RecordRows(spec.columns, decoder))


def _options(options: Mapping[str, str]) -> KinesisOptions:
    return parse(DECLARED.current(options))


def _decoder(columns: Sequence[Column], options: Mapping[str, str]) -> Decoder:
    """The decoder of the stored columns."""
    stored = table_schema([column for column in columns if column.metadata is None])
    return FormatChoice.of(options, options["format"]).decoder(stored)


CONNECTOR = _Kinesis()
