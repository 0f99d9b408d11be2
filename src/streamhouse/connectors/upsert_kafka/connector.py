"""The `upsert-kafka` connector."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.close_matches import nearest
from streamhouse.connectors.base import Scan
from streamhouse.connectors.kafka.connector import CHANGELOGS, KafkaConnector
from streamhouse.connectors.kafka.options import (
    DECLARED,
    EARLIEST,
    OPTIONS,
    KafkaOptions,
    ScanPosition,
)
from streamhouse.connectors.kafka.producing import last_of_keys
from streamhouse.connectors.kafka.records import RecordLayout
from streamhouse.connectors.specs import SourceSpec, TableSpec
from streamhouse.errors import OptionError
from streamhouse.options import check_known
from streamhouse.source import ROW_KIND
from streamhouse.sql.plan import Capabilities, TableInfo

_NO_OPTIONS = ("scan.startup.", "format", "key.fields", "topic-pattern", "sink.partitioner")


def _applies(key: str) -> bool:
    return key == "key.fields-prefix" or not key.startswith(_NO_OPTIONS)


class _UpsertKafka(KafkaConnector):
    name = "upsert-kafka"
    summary = "A topic as a table: each record is the row of its key, one without a value deletes."
    options = tuple(option for option in OPTIONS if _applies(option.key))
    without_effect: Mapping[str, str] = {
        **DECLARED.without_effect,
        "sink.buffer-flush.max-rows": "a micro-batch writes the last row of each key",
        "sink.buffer-flush.interval": "'execution.checkpointing.interval' sets how often",
    }
    capabilities = Capabilities(changelog=True, upserts=True, lookup=False, merges=False)
    scan_note = "the last row of each key"
    upserts = True

    def layout(
        self, options: Mapping[str, str], table: TableInfo | TableSpec, where: str
    ) -> tuple[KafkaOptions, RecordLayout]:
        """The options with the primary key as the key's fields, and the columns."""
        if not table.primary_key:
            raise OptionError(f"{where}: upsert-kafka needs a PRIMARY KEY (…) NOT ENFORCED")
        for key in ("key.format", "value.format"):
            if key not in options:
                raise OptionError(f"{where}: option '{key}' is missing; for instance 'json'")
        fields = {"key.fields": ";".join(table.primary_key)}
        parsed, layout = super().layout({**options, **fields}, table, where)
        if parsed.value.name in CHANGELOGS:
            raise OptionError(
                f"{where}: option 'value.format': upsert-kafka has no '{parsed.value.name}', since "
                "its changes are in keys and values; "
                f"{nearest('json', ['json', 'csv', 'avro', 'raw'])}"
            )
        parsed.bad_records.check_changes(where)
        return replace(parsed, startup=ScanPosition(EARLIEST)), layout

    def check(self, table: TableInfo, options: Mapping[str, str], where: str) -> None:
        wrong = next((key for key in options if not _applies(key)), None)
        if wrong is not None:
            known = [option.key for option in self.options]
            check_known([wrong], [key for key in known if key != wrong], where)
        super().check(table, options, where)

    def offset_origin(self, spec: SourceSpec, name: Sequence[str]) -> str:
        return f"upsert-{super().offset_origin(spec, name)}"

    def scan(self, table: TableInfo, options: Mapping[str, str], columns: Sequence[str]) -> Scan:
        every = [column.name for column in table.columns]
        schema, changes = super().scan(table, options, [*every, ROW_KIND])

        def read() -> Iterator[pa.RecordBatch]:
            batches = list(changes())
            for rows in last_of_keys(batches, table.primary_key) if batches else ():
                kept = rows.filter(pc.not_equal(rows.column(ROW_KIND), "-D"))
                yield kept.select(list(columns))

        return pa.schema([schema.field(name) for name in columns]), read


CONNECTOR = _UpsertKafka()
