"""One Paimon table: its schema, its snapshots, and reads of it in Arrow batches."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa
from pypaimon_rust.datafusion import Split

from streamhouse.errors import DataLossError, StoreError, StreamhouseError, TableError
from streamhouse.options import integer, nearest
from streamhouse.paimon.read import batch_size, ignored_deletes, lookup_merge, postpone_bucket
from streamhouse.paimon.read.conditions import Filter, only_on
from streamhouse.paimon.schema import evolution, types
from streamhouse.paimon.schema.file_formats import avro_rows, nanosecond_timestamps, orc_values
from streamhouse.paimon.schema.options.bucket_rules import crosses_partitions
from streamhouse.paimon.schema.table_name import branch_root
from streamhouse.paimon.storage import rust_core
from streamhouse.paimon.storage.files import Files, files_of
from streamhouse.paimon.storage.snapshots import Snapshot, Snapshots, from_json
from streamhouse.paimon.storage.split_files import SplitFrame
from streamhouse.paimon.storage.store_retries import is_temporary, retried
from streamhouse.source import ROW_KIND
from streamhouse.sql.options.renamed_options import stored
from streamhouse.sql.plan import Column

READ_BATCH_ROWS = 65_536
"""Read batch size in rows; with the core's default of 1,024, calls cost more than reading."""


class Table:
    """A table with one version of its schema; `Warehouse.table` opens it."""

    def __init__(
        self,
        rust: Any,
        database: str,
        name: str,
        catalog_options: Mapping[str, str],
        schema: Mapping[str, Any],
    ) -> None:
        self.rust = rust
        self.database = database
        self.name = name
        self.location: str = rust.location()
        self.catalog_options = catalog_options
        self.schema_id: int = schema["id"]
        self.options: Mapping[str, str] = stored(schema.get("options") or {})
        self.primary_key: tuple[str, ...] = tuple(schema.get("primaryKeys") or ())
        self.partition_keys: tuple[str, ...] = tuple(schema.get("partitionKeys") or ())
        self.columns: tuple[Column, ...] = _columns(rust)
        self.arrow_schema: pa.Schema = pa.schema(
            pa.field(
                column.name,
                types.arrow_type(types.parse(column.type)),
                nullable=column.nullable,
            )
            for column in self.columns
        )
        self.schema: Mapping[str, Any] = schema
        self.defaults: Mapping[str, str] = {
            field["name"]: field["defaultValue"]
            for field in schema["fields"]
            if field.get("defaultValue") is not None
        }
        self.files: Files = files_of(self.location, catalog_options)
        self.branch: str = rust.branch()
        self.root = branch_root(self.location, self.branch)
        self.snapshots = Snapshots(self.files, self.root, self.identifier)
        self._versions: dict[int, Table] = {}
        self.fine_columns = nanosecond_timestamps.fine_columns(self.arrow_schema)
        self.precisions = types.precisions({one.name: one.type for one in self.columns})
        self._chars = orc_values.char_columns({one.name: one.type for one in self.columns})
        self._row_columns = avro_rows.RowColumns.of(self.arrow_schema)
        self._newest_level_counts = lookup_merge.newest_level_counts(self.options, self.primary_key)

    def __repr__(self) -> str:
        return f"Table({self.identifier!r})"

    @property
    def identifier(self) -> str:
        """`database.table`."""
        return f"{self.database}.{self.name}"

    @property
    def bucket(self) -> int:
        """The option `bucket`: -1 for dynamic buckets, or for an unaware-bucket append table."""
        return int(self.options.get("bucket", "-1"))

    @property
    def has_dynamic_buckets(self) -> bool:
        """Whether an index holds the bucket of each key, and writers extend it."""
        return bool(self.primary_key) and self.bucket == -1

    @property
    def crosses_partitions(self) -> bool:
        """Whether a key may move from one partition to another (cross-partition upsert)."""
        return crosses_partitions(self.primary_key, self.partition_keys)

    def copy(self, dynamic_options: Mapping[str, str]) -> Table:
        """The same table with dynamic options, which override its own for this object only."""
        return self._with_schema(self.schema, dynamic_options)

    def of_schema(self, schema_id: int, dynamic_options: Mapping[str, str] | None = None) -> Table:
        """The same table with another version of its schema; `DataLossError` if that is gone."""
        if schema_id == self.schema_id:
            return self.copy(dynamic_options or {})
        text = self.files.read_text(f"{self.root}/schema/schema-{schema_id}")
        if text is None:
            raise DataLossError(
                f"table {self.identifier}: the file of schema {schema_id} is gone; read a newer "
                "snapshot"
            )
        return self._with_schema(json.loads(text), dynamic_options or {})

    def _with_schema(self, schema: Mapping[str, Any], options: Mapping[str, str]) -> Table:
        schema = {**schema, "options": {**(schema.get("options") or {}), **options}}
        rust = self.rust.copy_with_resolved_schema(json.dumps(schema))
        return Table(rust, self.database, self.name, self.catalog_options, schema)

    def tags(self) -> list[str]:
        """The names of the table's tags, sorted."""
        return _names_with_prefix(self.files, f"{self.root}/tag", "tag-")

    def tag(self, name: str) -> Snapshot | None:
        """The snapshot that a tag keeps; None if there is no such tag."""
        text = self.files.read_text(f"{self.root}/tag/tag-{name}")
        return None if text is None else from_json(text)

    def branches(self) -> list[str]:
        """The names of all the table's branches but main, sorted."""
        return _names_with_prefix(self.files, f"{self.location}/branch", "branch-")

    def at_schema(self, schema_id: int) -> Table:
        """As `of_schema`, cached."""
        if schema_id == self.schema_id:
            return self
        if schema_id not in self._versions:
            self._versions[schema_id] = self.of_schema(schema_id)
        return self._versions[schema_id]

    def find_schema(self, schema_id: int) -> Table | None:
        """As `at_schema`; None if there is no such version (any more)."""
        try:
            return self.at_schema(schema_id)
        except DataLossError:
            return None

    def schema_stamp(self) -> object | None:
        """A value that changes when the table is recreated.

        None if the schema has a newer version or is gone, and on object stores.
        """
        folder = f"{self.root}/schema"
        if self.files.stamp(f"{folder}/schema-{self.schema_id + 1}") is not None:
            return None
        return self.files.stamp(f"{folder}/schema-{self.schema_id}")

    def latest_snapshot_id(self) -> int | None:
        """The newest snapshot's id, None if the table is empty; cheap enough to poll."""
        return self.snapshots.latest_id()

    def earliest_snapshot_id(self) -> int | None:
        """The oldest snapshot that has not expired."""
        return self.snapshots.earliest_id()

    def snapshot(self, snapshot_id: int) -> Snapshot:
        """One snapshot; `DataLossError` if it has expired."""
        return self.snapshots.get(snapshot_id)

    def last_commit_of(self, user: str) -> Snapshot | None:
        """The newest snapshot of a commit user, None if there is none (any more)."""
        return self.snapshots.last_commit_of(user)

    def splits(
        self,
        snapshot: int | None = None,
        columns: Sequence[str] | None = None,
        filter: Filter | None = None,
        in_commit_order: bool = False,
    ) -> list[bytes]:
        """The serialised splits of one snapshot (by default the newest), in a stable order.

        With `in_commit_order` the splits of a bucket are in the order of its files, which is that
        of the commits as long as nothing was compacted. Raises `TableError` if rows of the
        snapshot have no bucket yet (`postpone_bucket`).
        """
        postpone_bucket.check_read(self, snapshot)
        if snapshot is not None and (self.schema_id > 0 or filter is not None):
            # The core plans with the snapshot's schema, and the files are read with this table's.
            columns = None
            if filter is not None and self.snapshot(snapshot).schema_id != self.schema_id:
                filter = None
        builder = self._builder(columns, snapshot, filter)
        splits = self._plan(builder.new_scan(), snapshot)
        if in_commit_order:
            return sorted(splits, key=lambda split: SplitFrame.parse(split).folder)
        return sorted(splits)

    def changes(
        self,
        after: int,
        until: int,
        mode: str = "delta",
        columns: Sequence[str] | None = None,
    ) -> list[bytes]:
        """The serialised splits that the snapshots in (`after`, `until`] added.

        `mode` is `delta` (data files) or `changelog` (changelog files).
        """
        postpone_bucket.check_followed(self)
        self.snapshots.await_named()
        scan = self._builder(columns, None, None).new_incremental_scan(after, until, mode)
        return self._plan(scan, after + 1)

    def read(
        self,
        columns: Sequence[str] | None = None,
        snapshot: int | None = None,
        filter: Filter | None = None,
        splits: Sequence[bytes] | None = None,
        row_kind: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Read rows as Arrow batches of the table's own schema, in the order of `columns`.

        Without `splits`, one whole snapshot is read (by default the newest), with the columns that
        the table has now; `of_schema` gives those of an older version. `filter` prunes files and
        filters rows; the caller must check conditions that the core cannot apply exactly. With
        `row_kind`, a string column `rowkind` is the last one.
        """
        self.read_schema(columns, row_kind)
        pieces = self.splits(snapshot, columns, filter) if splits is None else splits
        if row_kind and self.schema_id > 0 and self.primary_key:
            yield from self._read_versions(columns, pieces)
        else:
            yield from self._read(columns, filter, pieces, row_kind)

    def _read_versions(
        self, columns: Sequence[str] | None, pieces: Sequence[bytes]
    ) -> Iterator[pa.RecordBatch]:
        """Read row kinds from files of several schema versions; the core expects only one."""
        for split in pieces:
            if Split.deserialize(split).is_streaming():
                yield from evolution.read_changes(self, columns, [split])
                continue
            # Rows of a snapshot are merged from all files of a bucket, so they are all inserts.
            for batch in self._read(columns, None, [split], False):
                kinds = pa.repeat("+I", batch.num_rows)
                schema = self.read_schema(columns, True)
                yield pa.RecordBatch.from_arrays([*batch.columns, kinds], schema=schema)

    def read_kinds(
        self, columns: Sequence[str] | None, splits: Sequence[bytes]
    ) -> Iterator[pa.RecordBatch]:
        """Read rows and row kinds from splits whose files all have this table's schema version."""
        yield from self._read(columns, None, splits, True)

    def _read(
        self,
        columns: Sequence[str] | None,
        filter: Filter | None,
        pieces: Sequence[bytes],
        row_kind: bool,
    ) -> Iterator[pa.RecordBatch]:
        if not self._newest_level_counts:
            yield from self.read_merged(columns, filter, pieces, row_kind)
            return
        for layered, run in groupby(pieces, lookup_merge.has_levels):
            if layered:
                for split in run:
                    yield from lookup_merge.read(self, columns, filter, split, row_kind)
            else:
                yield from self.read_merged(columns, filter, list(run), row_kind)

    def read_merged(
        self,
        columns: Sequence[str] | None,
        filter: Filter | None,
        pieces: Sequence[bytes],
        row_kind: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Rows of splits as the Rust core merges them; wrong for some tables, so use `read`."""
        schema = self.read_schema(columns, row_kind)
        one_by_one, from_orc = self.checked(schema.names, pieces)
        for group in batch_size.groups(pieces, self._batch_rows, one_by_one):
            builder = self._builder(columns, None, None if group.hidden else filter, group.rows)
            if row_kind:
                builder = builder.with_include_row_kind(True)
            batches = self._batches(builder, group.splits)
            for batch in batch_size.sized(batches, group.rows, self._batch_rows):
                if filter is not None and group.hidden:
                    batch = batch_size.matching(batch, filter)
                rows = conformed(batch, schema)
                yield rows if from_orc is None else from_orc.read(rows)

    def checked(
        self, columns: Sequence[str], splits: Sequence[bytes]
    ) -> tuple[bool, orc_values.OrcReader | None]:
        """Raise `StreamhouseError` for what the Rust core would read wrongly.

        Returns whether Avro files must be read row by row, and the reader whose `read` must convert
        the rows (None: no conversion).
        """
        ignored_deletes.check_read(self, splits)
        if self.fine_columns:
            nanosecond_timestamps.check_files(self, columns, splits)
        from_orc = None
        if any(orc_values.SUFFIX in split for split in splits):
            from_orc = orc_values.OrcReader(self, splits)
            from_orc.check(columns)
        return self._row_columns.one_by_one(self.identifier, columns, splits), from_orc

    def _batches(self, builder: Any, splits: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
        try:
            yield from builder.new_read().read_arrow([Split.deserialize(split) for split in splits])
        except rust_core.ERRORS as error:
            raise self._read_error(error) from error
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            raise self._read_error(error) from error

    @property
    def _batch_rows(self) -> int:
        value = self.options.get("read.batch-size")
        return READ_BATCH_ROWS if value is None else integer("read.batch-size", value, 1)

    def read_schema(
        self, columns: Sequence[str] | None = None, row_kind: bool = False
    ) -> pa.Schema:
        """The Arrow schema of `read`; `TableError` naming the nearest for an unknown column."""
        names = [column.name for column in self.columns] if columns is None else list(columns)
        for name in names:
            if self.arrow_schema.get_field_index(name) < 0:
                renamed = evolution.renamed_to(self, name)
                hint = renamed or nearest(name, self.arrow_schema.names)
                raise TableError(f"table {self.identifier} has no column '{name}'; {hint}")
        fields = [self.arrow_schema.field(name) for name in names]
        if row_kind:
            fields.append(pa.field(ROW_KIND, pa.string(), nullable=False))
        return pa.schema(fields)

    def _builder(
        self,
        columns: Sequence[str] | None,
        snapshot: int | None,
        filter: Filter | None,
        rows: int | None = None,
    ) -> Any:
        options = {"read.batch-size": str(rows or self._batch_rows)}
        if snapshot is not None:
            options["scan.snapshot-id"] = str(snapshot)
        try:
            builder = self.rust.new_read_builder(options)
        except rust_core.ERRORS as error:
            raise self._plan_error(error, snapshot) from error
        if columns is not None:
            self.read_schema(columns)
            builder = builder.with_projection(list(columns))
        if self._chars:
            filter = only_on(filter, lambda name: name not in self._chars)
        if filter is not None:
            builder = builder.with_filter(dict(filter))
        return builder

    def _plan(self, scan: Any, snapshot: int | None) -> list[bytes]:
        def plan() -> list[bytes]:
            try:
                return [split.serialize() for split in scan.plan().splits()]
            except rust_core.ERRORS as error:
                raise self._plan_error(error, snapshot) from error

        return retried(plan)

    def _plan_error(self, error: Exception, snapshot: int | None) -> StreamhouseError:
        if is_temporary(error):
            return self._read_error(error)
        if snapshot is not None and self.snapshots.find(snapshot) is None:
            return self.snapshots.lost(snapshot)
        return self._read_error(error)

    def _read_error(self, error: BaseException) -> StreamhouseError:
        text = " ".join(str(error).split())
        if is_temporary(error):
            return StoreError(f"table {self.identifier} cannot be read: {text}")
        if "not found" in text.lower() or "NotFound" in text or "No such file" in text:
            earliest, latest = self.earliest_snapshot_id(), self.latest_snapshot_id()
            return DataLossError(
                f"table {self.identifier}: a file of the snapshot being read is gone (expired, or "
                f"dropped with the table); snapshots {earliest} to {latest} are left: {text}"
            )
        if "while decoding timestamp" in text:
            return StreamhouseError(
                f"table {self.identifier}: an ORC file has a timestamp before 1677-09-22 or after "
                "2262-04-11, which cannot be read; leave its column out of the query, or have "
                f"Flink write the table with 'file.format' = 'parquet': {text}"
            )
        return StreamhouseError(f"table {self.identifier} cannot be read: {text}")


def resolve(rust: Any, database: str, name: str, catalog_options: Mapping[str, str]) -> Table:
    """The `Table` of one that the Rust core has opened, both with the newest schema version."""
    location = rust.location()
    root = branch_root(location, rust.branch())
    files = files_of(location, catalog_options)
    ids = [
        int(file.removeprefix("schema-"))
        for file, _ in files.names(f"{root}/schema")
        if file.removeprefix("schema-").isdigit()
    ]
    text = files.read_text(f"{root}/schema/schema-{max(ids, default=0)}")
    if text is None:
        raise TableError(f"table {database}.{name} has no schema file under {root}/schema")
    schema = json.loads(text)
    table = rust.copy_with_resolved_schema(text)
    return Table(table, database, name, catalog_options, schema)


def _names_with_prefix(files: Files, folder: str, prefix: str) -> list[str]:
    names = [name for name, _ in files.names(folder)]
    return sorted(name.removeprefix(prefix) for name in names if name.startswith(prefix))


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly the columns of a schema, cast if the core's type differs."""
    arrays = []
    for field in schema:
        array = batch.column(field.name)
        arrays.append(array if array.type == field.type else array.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _columns(rust: Any) -> tuple[Column, ...]:
    return tuple(
        Column(
            field.name(),
            types.spell(field.field_type()),
            bool(field.is_nullable()),
            field.description(),
        )
        for field in rust.schema().fields()
    )
