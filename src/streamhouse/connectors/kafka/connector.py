"""The `kafka` connector."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from streamhouse.connectors.bad_records import warn_of_bad_records
from streamhouse.connectors.base import Connector, Delivery, Scan, Sink, partitions_to_end
from streamhouse.connectors.kafka.options import DECLARED, FORMATS, OPTIONS, KafkaOptions, parse
from streamhouse.connectors.kafka.producing import Encoding
from streamhouse.connectors.kafka.records import RecordLayout, Records
from streamhouse.connectors.kafka.sink import topic_sink
from streamhouse.connectors.kafka.source import KafkaSource
from streamhouse.connectors.specs import SinkSpec, SourceSpec
from streamhouse.errors import OptionError
from streamhouse.source import ROW_KIND
from streamhouse.sql.plan import Capabilities, TableInfo

GUARANTEE_NOTE = (
    "`sink.delivery-guarantee` chooses; with `exactly-once`, each micro-batch is one transaction, "
    "which also records its number"
)
_CHANGELOGS = tuple(known.name for known in FORMATS if known.changelog)


class _Kafka(Connector):
    name = "kafka"
    summary = "Topics of Kafka, exactly once by offsets and transactions."
    options = OPTIONS
    metadata = DECLARED.metadata
    without_effect = DECLARED.without_effect
    capabilities = Capabilities(changelog=False, lookup=False, merges=False)
    guarantee = "at-least-once"
    guarantee_note = GUARANTEE_NOTE
    scan_note = "the records from `scan.startup.mode` to the current end"

    def capabilities_of(self, options: Mapping[str, str]) -> Capabilities:
        chosen = options.get("format") or options.get("value.format")
        changelog = chosen in _CHANGELOGS
        return replace(self.capabilities, changelog=changelog, scan=not changelog)

    def check(self, table: TableInfo, options: Mapping[str, str], where: str) -> None:
        parsed = parse(options, where)
        Records(parsed, RecordLayout.of(table.columns, parsed, where))

    def delivery(self, table: TableInfo, options: Mapping[str, str]) -> Delivery:
        return delivery(options)

    def refused_changes(self, table: TableInfo) -> str | None:
        chosen = table.options.get("format") or table.options.get("value.format")
        if chosen in _CHANGELOGS:
            return None
        return (
            f"the format '{chosen}' has only inserts; use 'connector' = 'upsert-kafka', or the "
            f"format {' or '.join(_CHANGELOGS)}"
        )

    def sink(self, spec: SinkSpec) -> Sink:
        where = f"table {spec.name}"
        options = one_topic(parse(spec.options, where), where)
        layout = RecordLayout.of(spec.columns, options, where)
        return topic_sink(options, Encoding(options, layout))

    def offset_origin(self, spec: SourceSpec, name: Sequence[str]) -> str:
        return parse(spec.options, self.name).origin

    def source(self, spec: SourceSpec, names: Sequence[str] | None) -> KafkaSource:
        options = parse(spec.options, self.name)
        return KafkaSource(options, RecordLayout.of(spec.columns, options, self.name))

    def scan(self, table: TableInfo, options: Mapping[str, str], columns: Sequence[str]) -> Scan:
        parsed = parse(options, f"table {table.name[-1]}").for_bounded_read()
        layout = RecordLayout.of(table.columns, parsed, self.name)
        return scanned(KafkaSource(parsed, layout), columns)


def one_topic(options: KafkaOptions, where: str) -> KafkaOptions:
    """The options, if they name one topic, as a sink needs; else raises `OptionError`."""
    if len(options.topics) != 1:
        raise OptionError(f"{where}: a sink writes into one topic; set 'topic' to its name")
    return options


def delivery(options: Mapping[str, str]) -> Delivery:
    """What a sink with these options guarantees."""
    chosen = options.get("sink.delivery-guarantee", "at-least-once")
    if chosen == "exactly-once":
        return Delivery(
            "exactly-once",
            "one transaction for each micro-batch, which also records its number; for consumers "
            "with `isolation.level` = `read_committed`",
        )
    if chosen == "none":
        return Delivery("none", "it does not wait for the brokers")
    return Delivery(
        "at-least-once",
        "a batch that runs again is written again; set `sink.delivery-guarantee` to `exactly-once`",
    )


def scanned(source: KafkaSource, columns: Sequence[str]) -> Scan:
    """A bounded read of a source, of some of its columns."""

    def read() -> Iterator[pa.RecordBatch]:
        bad = 0
        try:
            for partition in partitions_to_end(source):
                for batch in source.read(partition):
                    yield batch.select(list(columns))
                bad += source.bad_records().num_rows
        finally:
            warn_of_bad_records(bad)
            source.close()

    kind = pa.field(ROW_KIND, pa.string())
    schema = source.schema.append(kind) if source.changelog else source.schema
    return pa.schema([schema.field(name) for name in columns]), read


CONNECTOR = _Kafka()
