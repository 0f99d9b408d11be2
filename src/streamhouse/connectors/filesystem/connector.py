"""The `filesystem` connector."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from streamhouse.connectors.bad_records import warn_of_bad_records
from streamhouse.connectors.base import Connector, Scan
from streamhouse.connectors.filesystem.file_readers import FileReader
from streamhouse.connectors.filesystem.folders import METADATA, folder_of
from streamhouse.connectors.filesystem.options import (
    DECLARED,
    OPTIONS,
    TEXT_FORMATS,
    FilesystemOptions,
    parse,
)
from streamhouse.connectors.filesystem.sink import FilesystemSink, encoder_of
from streamhouse.connectors.filesystem.source import FilesystemSource
from streamhouse.connectors.specs import SinkSpec, SourceSpec
from streamhouse.errors import OptionError, TableError
from streamhouse.sql.options.store_options import is_store_option
from streamhouse.sql.plan import Capabilities, TableInfo


class _Filesystem(Connector):
    name = "filesystem"
    summary = "Files of JSON, CSV or Parquet in a folder, which can be partitioned as by Hive."
    options = OPTIONS
    metadata = METADATA
    without_effect = DECLARED.without_effect
    capabilities = Capabilities(changelog=False, lookup=False, merges=False)
    guarantee = "exactly-once"
    guarantee_note = (
        "files are staged, and renamed when their micro-batch is committed, whose number is kept "
        "in the folder (in object stores: multipart uploads, which are completed then); they "
        "appear one after the other"
    )
    takes = "inserts"
    scan_note = "all files"

    def check(self, table: TableInfo, options: Mapping[str, str], where: str) -> None:
        own = {key: option for key, option in options.items() if not is_store_option(key)}
        super().check(table, own, where)
        parsed = parse(options)
        for key in own:
            name = key.partition(".")[0]
            if name in TEXT_FORMATS and name != parsed.format:
                raise OptionError(
                    f"{where}: option '{key}' does not apply to 'format' = '{parsed.format}'; "
                    "leave it out"
                )
        stored_columns = tuple(column for column in table.columns if column.metadata is None)
        if len(table.partitioned_by) == len(stored_columns):
            raise TableError(f"{where}: declare a column besides those of PARTITIONED BY")
        _reader(table, options, parsed)
        spec = SinkSpec(self.name, options, stored_columns, partitioned_by=table.partitioned_by)
        stored = [field for field in spec.arrow_schema if field.name not in table.partitioned_by]
        encoder_of(spec, pa.schema(stored))

    def refused_changes(self, table: TableInfo) -> str | None:
        return "files take inserts only; write a Paimon table, or 'connector' = 'jdbc'"

    def offset_origin(self, spec: SourceSpec, name: Sequence[str]) -> str:
        return f"{self.name} {parse(spec.options).path}"

    def source(self, spec: SourceSpec, names: Sequence[str] | None) -> FilesystemSource:
        return FilesystemSource(spec)

    def scan(self, table: TableInfo, options: Mapping[str, str], columns: Sequence[str]) -> Scan:
        parsed = parse(options)
        reader = _reader(table, options, parsed)

        def read() -> Iterator[pa.RecordBatch]:
            for file in folder_of(parsed.path, parsed.store).files():
                for batch in reader.read(file):
                    yield batch.select(list(columns))
            warn_of_bad_records(reader.bad_records.take().num_rows)

        return pa.schema([reader.schema.field(name) for name in columns]), read

    def sink(self, spec: SinkSpec) -> FilesystemSink:
        filled = next((column for column in spec.columns if column.metadata is not None), None)
        if filled is not None:
            raise OptionError(
                f"table {spec.name}: METADATA column '{filled.name}' cannot be written; declare it "
                "VIRTUAL"
            )
        return FilesystemSink(spec)


def _reader(table: TableInfo, options: Mapping[str, str], parsed: FilesystemOptions) -> FileReader:
    return FileReader(parsed, dict(options), table.columns, table.partitioned_by)


CONNECTOR = _Filesystem()
