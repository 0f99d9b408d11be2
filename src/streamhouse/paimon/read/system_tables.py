"""System tables (`orders$snapshots`, `orders$files`, …), read by the Rust core without a JVM.

Names, order and types of the columns are those of Paimon's Java core 1.4.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamhouse.close_matches import nearest
from streamhouse.errors import TableError
from streamhouse.options import table_of
from streamhouse.paimon.read.key_set import KeySet
from streamhouse.paimon.read.references import query, version_clause
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.time_travel import resolve, table_as_of
from streamhouse.paimon.read.visibility import compacted_only, hides_new_rows
from streamhouse.paimon.schema import types
from streamhouse.paimon.schema.evolution import converted
from streamhouse.paimon.schema.table_name import TableName
from streamhouse.paimon.storage import rust_core
from streamhouse.source import ROW_KIND
from streamhouse.sql.plan import AsOf, Column

_STATIC: Mapping[str, str] = table_of(__package__, "system_tables.toml")
_OF_ROWS = ("audit_log", "binlog", "ro")
SYSTEM_TABLES = tuple(sorted((*_STATIC, *_OF_ROWS)))
"""The names after `$`."""

TRAVELLING = ("audit_log", "binlog", "file_key_ranges", "files", "manifests", "ro")
"""The system tables that show one snapshot, and so support time travel."""

# Names of tables and columns that differ in the Rust core.
_RUST_TABLES = {"file_key_ranges": "files", "binlog": "audit_log"}
_RUST_COLUMNS = {"deleteRowCount": "delete_row_count"}
_DEDUPLICATE = "deduplicate"


class SystemTable:
    """One system table of a table; has the `read` and `read_schema` of a `Table`."""

    primary_key: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()

    def __init__(self, data: Table, name: TableName, as_of: AsOf) -> None:
        assert name.system is not None
        self._data = data
        self._system = name.system
        self._as_of = as_of
        self.database = data.database
        self.name = str(name)
        self.options: Mapping[str, str] = {}
        self.columns: tuple[Column, ...] = _columns(self._system, data)
        self.shown_names = tuple(column.name for column in self.columns)
        self.arrow_schema = types.arrow_schema(self.columns)

    @property
    def identifier(self) -> str:
        """`database.table$system`."""
        return f"{self.database}.{self.name}"

    def read_schema(self, columns: Sequence[str] | None = None) -> pa.Schema:
        """The Arrow schema of `read`; `TableError` naming the nearest for an unknown column."""
        names = self.arrow_schema.names if columns is None else columns
        for name in names:
            if self.arrow_schema.get_field_index(name) < 0:
                hint = nearest(name, self.arrow_schema.names)
                raise TableError(f"table {self.identifier} has no column '{name}'; {hint}")
        return pa.schema([self.arrow_schema.field(name) for name in names])

    def read(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows; those of `$audit_log` and `$binlog` may all be held in memory."""
        schema = self.read_schema(columns)
        match self._system:
            case "ro":
                splits = self._data.splits()
                if self._data.primary_key:
                    splits = compacted_only(self._data, splits, "full-compaction")
                return self._data.read(columns=schema.names, splits=splits)
            case "options":
                return iter([_options(self._data).select(schema.names)])
        return (self._shaped(batch, schema) for batch in self._query(schema.names))

    def _query(self, columns: Sequence[str]) -> Iterable[pa.RecordBatch]:
        if self._system in ("audit_log", "binlog"):
            return self._audited(columns)
        return self._sql(rust_core.sql_context(self._data.catalog_options), columns, self._as_of)

    def _audited(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of one snapshot as the Java core returns them, those of deleted keys included.

        The Rust core's log leaves deleted keys out unless the merge engine is `deduplicate`, which
        keeps the last row of each key. It also shows rows that are invisible until a compaction.
        """
        as_of = resolve(self._data, self._as_of)
        data = table_as_of(self._data, as_of)
        shows_all = not data.primary_key or hides_new_rows(data)
        if not shows_all and data.options.get("merge-engine", _DEDUPLICATE) == _DEDUPLICATE:
            yield from self._deduplicated(data, columns, as_of)
            return
        names = [name for name in columns if name != ROW_KIND] or [data.columns[0].name]
        for batch in data.read(names, row_kind=True):
            yield batch.select(list(columns))
        if not shows_all:
            yield from self._deleted(data, columns, as_of)

    def _deleted(
        self, data: Table, columns: Sequence[str], as_of: AsOf
    ) -> Iterator[pa.RecordBatch]:
        key = list(data.primary_key)
        read_columns = [*columns, *(name for name in key if name not in columns)]
        condition = f" WHERE {rust_core.quoted(ROW_KIND)} IN ('-U', '-D')"
        batches = self._deduplicated(data, read_columns, as_of, condition)
        if not sum(batch.num_rows for batch in batches):
            return
        rows = pa.Table.from_batches(batches)
        existing_keys = KeySet(data.rows(key))
        keys = rows.select(key).cast(data.read_schema(key))
        deleted = rows.filter(pa.array(~existing_keys.mask(keys)))
        yield from deleted.select(list(columns)).to_batches()

    def _deduplicated(
        self, data: Table, columns: Sequence[str], as_of: AsOf, condition: str = ""
    ) -> list[pa.RecordBatch]:
        one_by_one, from_orc = data.checked(columns, data.splits())
        context = rust_core.new_sql_context(data.catalog_options)
        context.sql(f"SET 'paimon.merge-engine' = '{_DEDUPLICATE}'")
        if one_by_one:
            context.sql("SET 'paimon.read.batch-size' = '1'")
        schema = pa.schema([*data.arrow_schema, pa.field(ROW_KIND, pa.string())])
        read_schema = pa.schema([schema.field(name) for name in columns])
        found = []
        for batch in self._sql(context, columns, as_of, condition):
            named = pa.RecordBatch.from_arrays(batch.columns, names=list(columns))
            batch = converted(named, read_schema)
            found.append(batch if from_orc is None else from_orc.read(batch))
        return found

    def _sql(
        self, context: Any, columns: Sequence[str], as_of: AsOf, condition: str = ""
    ) -> list[pa.RecordBatch]:
        system = _RUST_TABLES.get(self._system, self._system)
        table = f"{TableName.parse(self.name).data}${system}"
        names = [_RUST_COLUMNS.get(name, name) for name in columns]
        version = version_clause(self._data, self.identifier, as_of)
        return query(self._data, table, context, names, version, condition)

    def _shaped(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        named = pa.RecordBatch.from_arrays(batch.columns, names=schema.names)
        if self._system == "schemas" and "options" in schema.names:
            index = schema.names.index("options")
            named = named.set_column(index, "options", _sorted_keys(named.column(index)))
        if self._system != "binlog":
            return converted(named, schema)
        arrays = [
            named.column(field.name)
            if field.name == ROW_KIND
            else _in_lists(named.column(field.name), field.type)
            for field in schema
        ]
        return converted(pa.RecordBatch.from_arrays(arrays, names=schema.names), schema)


def _columns(system: str, data: Table) -> tuple[Column, ...]:
    if system == "ro":
        return data.shown
    if system == "audit_log":
        return (Column(ROW_KIND, "STRING"), *data.shown)
    if system == "binlog":
        lists = [Column(column.name, f"ARRAY<{column.type}>") for column in data.shown]
        return (Column(ROW_KIND, "STRING"), *lists)
    return tuple(_column(text) for text in _STATIC[system].split(","))


def _column(text: str) -> Column:
    name, column_type = text.split()
    return Column(name, column_type.removesuffix("!"), nullable=not column_type.endswith("!"))


def _options(data: Table) -> pa.RecordBatch:
    # Not from the Rust core: its `$options` of a branch has an option that the table does not have.
    keys = sorted(data.options)
    arrays = [pa.array(keys, pa.string()), pa.array([data.options[k] for k in keys], pa.string())]
    fields = [pa.field(name, pa.string(), nullable=False) for name in ("key", "value")]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _sorted_keys(texts: pa.Array) -> pa.Array:
    # The Rust core returns the keys in a different order each time.
    maps = [json.loads(text) for text in texts.to_pylist()]
    return pa.array(
        [
            json.dumps(options, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            for options in maps
        ],
        pa.string(),
    )


def _in_lists(array: pa.Array, list_type: pa.DataType) -> pa.Array:
    offsets = pa.array(range(len(array) + 1), pa.int32())
    return pa.ListArray.from_arrays(offsets, array.cast(list_type.value_type))
