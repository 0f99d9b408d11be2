"""The `kafka` connector."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from streamhouse.connectors.base import Connector, Delivery, Guarantee, Scan, Sink, scanned
from streamhouse.connectors.kafka.options import DECLARED, FORMATS, OPTIONS, KafkaOptions, parse
from streamhouse.connectors.kafka.producing import Encoding
from streamhouse.connectors.kafka.records import RecordLayout, Records
from streamhouse.connectors.kafka.sink import KafkaSinkCommitter, KafkaSinkWriter
from streamhouse.connectors.kafka.source import KafkaSource
from streamhouse.connectors.specs import SinkSpec, SourceSpec, TableSpec
from streamhouse.errors import OptionError
from streamhouse.options import OptionValues
from streamhouse.sql.plan import Capabilities, TableInfo

CHANGELOGS = tuple(known.name for known in FORMATS if known.changelog)
_HOW: Mapping[Guarantee, str] = {
    "exactly-once": "one transaction for each micro-batch, which also records its number; for "
    "consumers with `isolation.level` = `read_committed`",
    "at-least-once": "a batch that runs again is written again; set `sink.delivery-guarantee` to "
    "`exactly-once`",
    "none": "it does not wait for the brokers",
}


class KafkaConnector(Connector, declared=DECLARED):
    """Topics as tables; with `upserts`, a record is the row of its key."""

    name = "kafka"
    options = OPTIONS
    capabilities = Capabilities(changelog=False, lookup=False, merges=False)
    upserts = False

    def layout(
        self, options: Mapping[str, str], table: TableInfo | TableSpec, where: str
    ) -> tuple[KafkaOptions, RecordLayout]:
        """The checked options of a table, and where its columns are in a record."""
        parsed = parse(options, where)
        return parsed, RecordLayout.of(table.columns, parsed, where)

    def capabilities_of(self, options: Mapping[str, str]) -> Capabilities:
        if self.upserts:
            return self.capabilities
        changelog = _value_format(options) in CHANGELOGS
        return replace(self.capabilities, changelog=changelog, scan=not changelog)

    def check(self, table: TableInfo, options: Mapping[str, str], where: str) -> None:
        Records(*self.layout(options, table, where), self.upserts)

    def delivery(self, table: TableInfo, options: Mapping[str, str]) -> Delivery:
        chosen: Guarantee = OptionValues(OPTIONS, options)["sink.delivery-guarantee"]
        return Delivery(chosen, _HOW[chosen])

    def refused_changes(self, table: TableInfo) -> str | None:
        chosen = _value_format(table.options)
        if self.upserts or chosen in CHANGELOGS:
            return None
        return (
            f"the format '{chosen}' has only inserts; use 'connector' = 'upsert-kafka', or the "
            f"format {' or '.join(CHANGELOGS)}"
        )

    def sink(self, spec: SinkSpec) -> Sink:
        where = f"table {spec.name}"
        options, layout = self.layout(spec.options, spec, where)
        if len(options.topics) != 1:
            raise OptionError(f"{where}: a sink writes into one topic; set 'topic' to its name")
        encoding = Encoding(options, layout, self.upserts)
        return Sink(lambda *_: KafkaSinkWriter(encoding), partial(KafkaSinkCommitter, options))

    def offset_origin(self, spec: SourceSpec, name: Sequence[str]) -> str:
        return parse(spec.options, self.name).origin

    def source(self, spec: SourceSpec, names: Sequence[str] | None) -> KafkaSource:
        return KafkaSource(*self.layout(spec.options, spec, self.name), self.upserts)

    def scan(self, table: TableInfo, options: Mapping[str, str], columns: Sequence[str]) -> Scan:
        parsed, layout = self.layout(options, table, f"table {table.name[-1]}")
        return scanned(KafkaSource(parsed.for_bounded_read(), layout, self.upserts), columns)


def _value_format(options: Mapping[str, str]) -> str | None:
    return options.get("format") or options.get("value.format")


CONNECTOR = KafkaConnector()
