"""The versions of a table's schema: the table with the columns and options of another version."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from streamhouse.errors import DataLossError
from streamhouse.paimon.schema import types
from streamhouse.paimon.schema.file_formats import nanosecond_timestamps
from streamhouse.paimon.schema.options.bucket_options import crosses_partitions
from streamhouse.paimon.storage.object_store.object_files import ObjectFiles
from streamhouse.paimon.storage.object_store.parallel import run_parallel
from streamhouse.sql.options.renamed_options import stored
from streamhouse.sql.plan import Column
from streamhouse.sql.views.stored_view import shown_columns

if TYPE_CHECKING:
    from streamhouse.paimon.read.table import Table


class TableSchema:
    """The columns, keys and options of a table; `schema` is the JSON of its schema file."""

    def __init__(self, columns: tuple[Column, ...], schema: Mapping[str, Any]) -> None:
        self.schema = schema
        self.schema_id: int = schema["id"]
        self.options: Mapping[str, str] = stored(schema.get("options") or {})
        self.primary_key: tuple[str, ...] = tuple(schema.get("primaryKeys") or ())
        self.partition_keys: tuple[str, ...] = tuple(schema.get("partitionKeys") or ())
        self.bucket = int(self.options.get("bucket", "-1"))
        """The option `bucket`: -1 for dynamic buckets, or for an unaware-bucket append table."""
        self.has_dynamic_buckets = bool(self.primary_key) and self.bucket == -1
        """Whether an index holds the bucket of each key, and writers extend it."""
        self.crosses_partitions = crosses_partitions(self.primary_key, self.partition_keys)
        """Whether a key may move from one partition to another (cross-partition upsert)."""
        self.columns = columns
        self.shown = shown_columns(columns, self.options)
        """The columns that readers see: all but the hidden key of a materialized view."""
        self.shown_names = tuple(column.name for column in self.shown)
        self.arrow_schema = types.arrow_schema(columns)
        self.defaults: Mapping[str, str] = {
            field["name"]: field["defaultValue"]
            for field in schema["fields"]
            if field.get("defaultValue") is not None
        }
        self.nanosecond_columns = nanosecond_timestamps.nanosecond_columns(self.arrow_schema)
        self.precisions = types.precisions({column.name: column.type for column in columns})


class SchemaVersions:
    """Opens a table with other versions of its schema; `opened` caches them by their ids."""

    def __init__(self, table: Table, opened: dict[int, Table]) -> None:
        self._table = table
        self._opened = opened

    def open(self, schema_id: int, dynamic_options: Mapping[str, str] | None = None) -> Table:
        """The same table with another version of its schema; `DataLossError` if that is gone."""
        if schema_id == self._table.schema_id:
            return self._table.copy(dynamic_options or {})
        text = self._table.files.read_text(f"{self._table.root}/schema/schema-{schema_id}")
        if text is None:
            raise DataLossError(
                f"table {self._table.identifier}: the file of schema {schema_id} is gone; read a "
                "newer snapshot"
            )
        return self._table.with_schema(json.loads(text), dynamic_options or {})

    def get(self, schema_id: int) -> Table:
        """As `open`, cached."""
        if schema_id == self._table.schema_id:
            return self._table
        if schema_id not in self._opened:
            self._opened[schema_id] = self.open(schema_id)
        return self._opened[schema_id]

    def find(self, schema_id: int) -> Table | None:
        """As `get`; None if there is no such version (any more)."""
        try:
            return self.get(schema_id)
        except DataLossError:
            return None

    def stamp(self) -> object | None:
        """A value that changes when the table is recreated.

        None if the schema has a newer version or is gone, and on object stores.
        """
        folder, files, own = f"{self._table.root}/schema", self._table.files, self._table.schema_id
        paths = [f"{folder}/schema-{number}" for number in (own + 1, own)]
        if isinstance(files, ObjectFiles):
            newer, stamp = run_parallel([partial(files.stamp, path) for path in paths])
            return None if newer is not None else stamp
        return None if files.stamp(paths[0]) is not None else files.stamp(paths[1])
