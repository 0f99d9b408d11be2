"""One version of a table's schema: its columns, keys and options."""

from collections.abc import Mapping
from typing import Any

from streamhouse.paimon.schema import types
from streamhouse.paimon.schema.file_formats import nanosecond_timestamps
from streamhouse.paimon.schema.options.bucket_options import crosses_partitions
from streamhouse.sql.options.renamed_options import stored
from streamhouse.sql.plan import Column
from streamhouse.sql.views.stored_view import shown_columns


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
