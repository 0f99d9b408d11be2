"""The `upsert-kafka` connector."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.close_matches import nearest
from streamhouse.connectors.base import Connector, Delivery, Scan, Sink
from streamhouse.connectors.kafka.connector import GUARANTEE_NOTE, delivery, one_topic, scanned
from streamhouse.connectors.kafka.options import (
    DECLARED,
    EARLIEST,
    OPTIONS,
    KafkaOptions,
    ScanPosition,
    parse,
)
from streamhouse.connectors.kafka.producing import Encoding, last_of_keys
from streamhouse.connectors.kafka.records import RecordLayout, Records
from streamhouse.connectors.kafka.sink import topic_sink
from streamhouse.connectors.kafka.source import KafkaSource
from streamhouse.connectors.specs import SinkSpec, SourceSpec
from streamhouse.errors import OptionError
from streamhouse.options import check_known
from streamhouse.source import ROW_KIND
from streamhouse.sql.plan import Capabilities, TableInfo

_NO_OPTIONS = ("scan.startup.", "format", "key.fields", "topic-pattern", "sink.partitioner")


def _applies(key: str) -> bool:
    return key == "key.fields-prefix" or not key.startswith(_NO_OPTIONS)


class _UpsertKafka(Connector):
    name = "upsert-kafka"
    summary = "A topic as a table: each record is the row of its key, one without a value deletes."
    options = tuple(option for option in OPTIONS if _applies(option.key))
    metadata = DECLARED.metadata
    without_effect: Mapping[str, str] = {
        **DECLARED.without_effect,
        "sink.buffer-flush.max-rows": "a micro-batch writes the last row of each key",
        "sink.buffer-flush.interval": "'execution.checkpointing.interval' sets how often",
    }
    capabilities = Capabilities(changelog=True, upserts=True, lookup=False, merges=False)
    guarantee = "at-least-once"
    guarantee_note = GUARANTEE_NOTE
    scan_note = "the last row of each key"

    def delivery(self, table: TableInfo, options: Mapping[str, str]) -> Delivery:
        return delivery(options)

    def check(self, table: TableInfo, options: Mapping[str, str], where: str) -> None:
        wrong = next((key for key in options if not _applies(key)), None)
        if wrong is not None:
            known = [option.key for option in self.options]
            check_known([wrong], [key for key in known if key != wrong], where)
        _layout(options, table, where)

    def offset_origin(self, spec: SourceSpec, name: Sequence[str]) -> str:
        return f"upsert-{parse(spec.options, self.name).origin}"

    def source(self, spec: SourceSpec, names: Sequence[str] | None) -> KafkaSource:
        options, layout = _layout(spec.options, spec, self.name)
        return KafkaSource(replace(options, startup=ScanPosition(EARLIEST)), layout, upserts=True)

    def sink(self, spec: SinkSpec) -> Sink:
        options, layout = _layout(spec.options, spec, f"table {spec.name}")
        one_topic(options, f"table {spec.name}")
        return topic_sink(options, Encoding(options, layout, upserts=True))

    def scan(self, table: TableInfo, options: Mapping[str, str], columns: Sequence[str]) -> Scan:
        parsed, layout = _layout(options, table, f"table {table.name[-1]}")
        source = KafkaSource(parsed.for_bounded_read(), layout, upserts=True)
        schema, changes = scanned(source, [*layout.schema.names, ROW_KIND])

        def read() -> Iterator[pa.RecordBatch]:
            batches = list(changes())
            for rows in last_of_keys(batches, layout.key_columns) if batches else ():
                kept = rows.filter(pc.not_equal(rows.column(ROW_KIND), "-D"))
                yield kept.select(list(columns))

        return pa.schema([schema.field(name) for name in columns]), read


def _layout(
    options: Mapping[str, str], table: TableInfo | SourceSpec | SinkSpec, where: str
) -> tuple[KafkaOptions, RecordLayout]:
    """The options with the primary key as the key's fields, and the columns."""
    if not table.primary_key:
        raise OptionError(f"{where}: upsert-kafka needs a PRIMARY KEY (…) NOT ENFORCED")
    for key in ("key.format", "value.format"):
        if key not in options:
            raise OptionError(f"{where}: option '{key}' is missing; for instance 'json'")
    parsed = parse({**options, "key.fields": ";".join(table.primary_key)}, where)
    if parsed.value.name in _CHANGELOGS:
        raise OptionError(
            f"{where}: option 'value.format': upsert-kafka has no '{parsed.value.name}', since its "
            f"changes are in keys and values; {nearest('json', ['json', 'csv', 'avro', 'raw'])}"
        )
    parsed.bad_records.check_changes(where)
    layout = RecordLayout.of(table.columns, parsed, where)
    Records(parsed, layout, upserts=True)
    return parsed, layout


_CHANGELOGS = ("debezium-json", "canal-json")
CONNECTOR = _UpsertKafka()
