"""A temporary table with another table's definition, which merges rows by the same rules."""

import tempfile
import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import Self

import pyarrow as pa

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.write.commit import TableCommitter
from streamhouse.paimon.write.table_writer import TableWriter
from streamhouse.source import ROW_KIND

_KEPT = (
    "merge-engine", "fields.", "aggregation.", "partial-update.", "sequence.", "ignore-",
    "bucket", "write-buffer-size",
)  # fmt: skip
_OPTIONS = {"file.format": "parquet", "file.compression": "lz4"}
_DATABASE, _NAME = "scratch", "rows"


class TemporaryTable:
    """A table defined like `like` in a temporary local folder, deleted when the `with` block ends.

    It has the same partitions and buckets, so the rows of a bucket can be compared with those of
    the same bucket of `like`. `options` replace those of `like`.
    """

    def __init__(self, like: Table, options: Mapping[str, str] = MappingProxyType({})) -> None:
        self._like, self._options = like, options

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="streamhouse-scratch-")
        like, self._warehouse = self._like, Warehouse({"warehouse": self._folder.name})
        options = {k: v for k, v in like.options.items() if k.startswith(_KEPT)} | _OPTIONS
        options |= self._options
        self._warehouse.create_database(_DATABASE)
        self._warehouse.create_table(
            _DATABASE,
            _NAME,
            like.columns,
            like.primary_key,
            like.partition_keys,
            options,
            copied=True,
        )
        self._user = str(uuid.uuid4())
        self._writer = TableWriter(self._warehouse.options, f"{_DATABASE}.{_NAME}", self._user)
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()
        self._folder.cleanup()

    def write(self, rows: pa.Table) -> None:
        """Write rows in order: the table's columns by position, and `rowkind` if there is one."""
        schema = self._like.read_schema(row_kind=ROW_KIND in rows.column_names)
        for batch in rows.rename_columns(schema.names).cast(schema).to_batches():
            self._writer.write(batch)

    def finish(self) -> Table:
        """Commit, and return the table with all rows merged; no rows can be written afterwards."""
        messages = self._writer.prepare(0)
        TableCommitter(self._warehouse.options, f"{_DATABASE}.{_NAME}", self._user).commit(
            0, messages
        )
        return self._warehouse.table(f"{_DATABASE}.{_NAME}")
