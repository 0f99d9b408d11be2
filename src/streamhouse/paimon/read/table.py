"""One Paimon table: its snapshots, and reads of it in Arrow batches."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Self

import pyarrow as pa
from pypaimon_rust.datafusion import Split

from streamhouse.close_matches import nearest
from streamhouse.errors import DataLossError, TableError
from streamhouse.options import integer
from streamhouse.paimon.read.conditions import Filter, matching, only_on
from streamhouse.paimon.read.references import read_error
from streamhouse.paimon.read.rust_core import (
    batch_size,
    ignored_deletes,
    lookup_merge,
    postpone_bucket,
)
from streamhouse.paimon.schema import evolution, types
from streamhouse.paimon.schema.file_formats import avro_rows, nanosecond_timestamps, orc_values
from streamhouse.paimon.schema.options.bucket_options import bucket_number, crosses_partitions
from streamhouse.paimon.schema.table_name import branch_root
from streamhouse.paimon.storage import rust_core
from streamhouse.paimon.storage.files import Files, files_of, names_after, numbered_files
from streamhouse.paimon.storage.followed_snapshots import FollowedSnapshots
from streamhouse.paimon.storage.metadata_mirror import read as mirror
from streamhouse.paimon.storage.metadata_mirror.folder import LISTS
from streamhouse.paimon.storage.object_store.object_files import ObjectFiles
from streamhouse.paimon.storage.object_store.parallel import run_parallel
from streamhouse.paimon.storage.object_store.store_retries import retried
from streamhouse.paimon.storage.snapshots import Snapshot, Snapshots, from_json
from streamhouse.paimon.storage.split_files import SplitFrame
from streamhouse.source import ROW_KIND, of_kind
from streamhouse.sql.options.renamed_options import stored
from streamhouse.sql.plan import Column
from streamhouse.sql.types import digits
from streamhouse.sql.views.stored_view import shown_columns

READ_BATCH_ROWS = 65_536
"""Read batch size in rows; with the core's default of 1,024, calls cost more than reading."""
_STARTS = re.compile(r"scan\.(?!mode)")
"""The options of a table as of a snapshot, tag or time."""


class Table:
    """A table with one version of its schema; `Warehouse.table` opens it.

    Reads work around what the Rust core reads wrongly. `pinned`: the snapshot that they read if
    none is given, with the columns of this version; 0: no rows, as before the first one.
    """

    def __init__(
        self,
        rust: Any,
        database: str,
        name: str,
        catalog_options: Mapping[str, str],
        schema: Mapping[str, Any],
        followed: bool = False,
        pinned: int | None = None,
    ) -> None:
        self.rust = rust
        self._set_schema(_columns(rust), schema)
        self.database = database
        self.name = name
        self.identifier = f"{database}.{name}"
        self.location: str = rust.location()
        self.catalog_options = catalog_options
        self.files: Files = files_of(self.location, catalog_options)
        self.branch: str = rust.branch()
        self.root = branch_root(self.location, self.branch)
        self.followed, self.pinned = followed, pinned
        if followed and isinstance(self.files, ObjectFiles):
            self.snapshots: Snapshots = FollowedSnapshots(
                self.files, self.location, self.root, self.identifier
            )
        else:
            self.snapshots = Snapshots(self.files, self.root, self.identifier)
        self._chars = orc_values.char_columns(self.columns)
        self._avro_rows = avro_rows.RowColumns.of(self.arrow_schema)
        self._newest_level_counts = lookup_merge.newest_level_counts(self.options, self.primary_key)
        self._versions: dict[int, Self] = {}

    def _set_schema(self, columns: tuple[Column, ...], schema: Mapping[str, Any]) -> None:
        """Set what is known from the columns, and from `schema`, the JSON of the schema file."""
        self.schema = schema
        self.schema_id: int = schema["id"]
        self.options: Mapping[str, str] = stored(schema.get("options") or {})
        self.primary_key: tuple[str, ...] = tuple(schema.get("primaryKeys") or ())
        self.partition_keys: tuple[str, ...] = tuple(schema.get("partitionKeys") or ())
        self.bucket = bucket_number(self.options)
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
        self.precisions = {
            column.name: digits(column.type)
            for column in columns
            if column.type.startswith("TIMESTAMP")
        }
        """The fractional digits of each TIMESTAMP column."""

    def __repr__(self) -> str:
        return f"Table({self.identifier!r})"

    def tags(self) -> list[str]:
        """The names of its tags, sorted."""
        return names_after(self.files, f"{self.root}/tag", "tag-")

    def tag(self, name: str) -> Snapshot | None:
        """The snapshot that a tag keeps; None if there is no such tag."""
        text = self.files.read_text(f"{self.root}/tag/tag-{name}")
        return None if text is None else from_json(text)

    def branches(self) -> list[str]:
        """The names of all its branches but main, sorted."""
        return names_after(self.files, f"{self.location}/branch", "branch-")

    def open_version(self, schema_id: int, options: Mapping[str, str] | None = None) -> Self:
        """The same table with another version of its schema; `DataLossError` if that is gone.

        `options` are dynamic ones.
        """
        if schema_id == self.schema_id:
            return self.copy(options or {})
        text = self.files.read_text(f"{self.root}/schema/schema-{schema_id}")
        if text is None:
            raise DataLossError(
                f"table {self.identifier}: the file of schema {schema_id} is gone; read a newer "
                "snapshot"
            )
        return self.with_schema(json.loads(text), options or {})

    def version(self, schema_id: int) -> Self:
        """As `open_version`, cached."""
        if schema_id == self.schema_id:
            return self
        if schema_id not in self._versions:
            self._versions[schema_id] = self.open_version(schema_id)
        return self._versions[schema_id]

    def find_version(self, schema_id: int) -> Self | None:
        """As `version`; None if there is no such version (any more)."""
        try:
            return self.version(schema_id)
        except DataLossError:
            return None

    def schema_stamp(self) -> object | None:
        """A value that changes when the table is recreated.

        None if the schema has a newer version or is gone, and on object stores.
        """
        paths = [f"{self.root}/schema/schema-{self.schema_id + more}" for more in (1, 0)]
        if isinstance(self.files, ObjectFiles):
            newer, stamp = run_parallel([partial(self.files.stamp, path) for path in paths])
        else:
            newer, stamp = map(self.files.stamp, paths)
        return None if newer is not None else stamp

    def copy(self, dynamic_options: Mapping[str, str]) -> Self:
        """The same table with dynamic options, which override its own for this object only."""
        return self.with_schema(self.schema, dynamic_options)

    def with_schema(self, schema: Mapping[str, Any], options: Mapping[str, str]) -> Self:
        """The same table with a version of its schema, and with dynamic options."""
        schema = {**schema, "options": {**(schema.get("options") or {}), **options}}
        rust = self.rust.copy_with_resolved_schema(json.dumps(schema))
        return type(self)(
            rust, self.database, self.name, self.catalog_options, schema, followed=self.followed
        )

    def latest_snapshot_id(self, within_s: float = 0.0) -> int | None:
        """The newest snapshot's id, None if the table is empty; cheap enough to poll.

        If the table is followed (`Warehouse.followed`), it may be `within_s` seconds old.
        """
        return self.snapshots.latest_id(within_s)

    def earliest_snapshot_id(self) -> int | None:
        """The oldest snapshot that has not expired."""
        return self.snapshots.earliest_id()

    def snapshot(self, snapshot_id: int) -> Snapshot:
        """One snapshot; `DataLossError` if it has expired."""
        return self.snapshots.get(snapshot_id)

    def has_values(self, columns: Sequence[str]) -> bool:
        """Whether a file has a value of one of these columns, also in rows that are replaced."""
        present = [name for name in columns if name in self.arrow_schema.names]
        if not present or self.latest_snapshot_id() is None:
            return False
        return evolution.has_values(self, present, self.splits())

    def splits(
        self,
        snapshot: int | None = None,
        filter: Filter | None = None,
        in_commit_order: bool = False,
    ) -> list[bytes]:
        """The serialised splits of one snapshot (by default the newest), in a stable order.

        Snapshot 0 is the empty table before the first one, and has none. With `in_commit_order` the
        splits of a bucket are in the order of its files, which is that of the commits as long as
        nothing was compacted. Raises `TableError` if rows of the snapshot have no bucket yet
        (`postpone_bucket`).
        """
        if 0 in (snapshot, self.pinned):
            return []
        snapshot = snapshot or self.pinned
        postpone_bucket.check_read(self, snapshot)
        if snapshot is None and self.followed and not any(map(_STARTS.match, self.options)):
            snapshot = self.latest_snapshot_id()
        if snapshot is not None and filter is not None:
            # The core plans with the snapshot's schema, and the files are read with this table's.
            if self.snapshot(snapshot).schema_id != self.schema_id:
                filter = None
        splits = self._planned(
            snapshot or 0,
            snapshot or 0,
            LISTS[:2],
            lambda rust: self._builder(None, snapshot, filter, rust=rust).new_scan(),
        )
        if in_commit_order:
            return sorted(splits, key=lambda split: SplitFrame.parse(split).folder)
        return sorted(splits)

    def changes(self, after: int, until: int, mode: str = "delta") -> list[bytes]:
        """The serialised splits that the snapshots in (`after`, `until`] added.

        `mode` is `delta` (data files) or `changelog` (changelog files).
        """
        postpone_bucket.check_followed(self)
        return self._planned(
            after + 1,
            until,
            LISTS[1:],
            lambda rust: self._builder(rust=rust).new_incremental_scan(after, until, mode),
        )

    def _planned(
        self,
        first: int,
        last: int,
        lists: Sequence[str],
        scan: Callable[[Any], Any],
    ) -> list[bytes]:
        """The splits of a scan of the core, planned on a copy of the metadata if possible.

        `first` and `last` are 0 for the newest snapshot.
        """
        copied = mirror.planned(self, first, last, lists, scan)
        if copied is not None:
            return copied
        from_store = scan(None)

        def plan() -> list[bytes]:
            try:
                return [split.serialize() for split in from_store.plan().splits()]
            except rust_core.ERRORS as error:
                raise read_error(self, error, first or None) from error

        return retried(plan)

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
        the table has now; `versions` opens it with those of an older version. `filter` prunes files
        and filters rows; the caller must check conditions that the core cannot apply exactly. With
        `row_kind`, a string column `rowkind` is the last one.
        """
        self.read_schema(columns, row_kind)
        splits_to_read = self.splits(snapshot, filter) if splits is None else splits
        if row_kind and self.schema_id > 0 and self.primary_key:
            yield from self._read_versions(columns, splits_to_read)
        else:
            yield from self.read_version(columns, filter, splits_to_read, row_kind)

    def rows(
        self,
        columns: Sequence[str] | None = None,
        snapshot: int | None = None,
        filter: Filter | None = None,
        splits: Sequence[bytes] | None = None,
        row_kind: bool = False,
    ) -> pa.Table:
        """All rows of `read`, in memory."""
        batches = self.read(columns, snapshot, filter=filter, splits=splits, row_kind=row_kind)
        return pa.Table.from_batches(batches, self.read_schema(columns, row_kind))

    def _read_versions(
        self, columns: Sequence[str] | None, splits_to_read: Sequence[bytes]
    ) -> Iterator[pa.RecordBatch]:
        """Read row kinds from files of several schema versions; the core expects only one."""
        for split in splits_to_read:
            if Split.deserialize(split).is_streaming():
                yield from evolution.read_changes(self, columns, [split])
                continue
            # Rows of a snapshot are merged from all files of a bucket, so they are all inserts.
            for batch in self.read_version(columns, None, [split], False):
                yield of_kind(batch, "+I").cast(self.read_schema(columns, True))

    def read_version(
        self,
        columns: Sequence[str] | None,
        filter: Filter | None,
        splits_to_read: Sequence[bytes],
        row_kind: bool,
    ) -> Iterator[pa.RecordBatch]:
        """As `read`; with `row_kind`, all files must have this version of the schema."""
        if not self._newest_level_counts:
            yield from self.read_merged(columns, filter, splits_to_read, row_kind)
            return
        for layered, run in groupby(splits_to_read, lookup_merge.has_levels):
            if layered:
                for split in run:
                    yield from lookup_merge.read(self, columns, filter, split, row_kind)
            else:
                yield from self.read_merged(columns, filter, list(run), row_kind)

    def read_merged(
        self,
        columns: Sequence[str] | None,
        filter: Filter | None,
        splits_to_read: Sequence[bytes],
        row_kind: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Rows of splits as the Rust core merges them: wrong for some tables, so use `read`."""
        schema = self.read_schema(columns, row_kind)
        one_by_one, from_orc = self.checked(schema.names, splits_to_read)
        for group in batch_size.groups(splits_to_read, self._batch_rows, one_by_one):
            where = None if group.unfiltered else filter
            with mirror.fetched(self, group.splits) as (rust, splits):
                builder = self._builder(columns, None, where, group.rows, rust)
                if row_kind:
                    builder = builder.with_include_row_kind(True)
                batches = self._batches(builder, splits)
                for batch in batch_size.sized(batches, group.rows, self._batch_rows):
                    if filter is not None and group.unfiltered:
                        batch = matching(batch, filter)
                    rows = evolution.converted(batch, schema)
                    yield rows if from_orc is None else from_orc.read(rows)

    def checked(
        self, columns: Sequence[str], splits: Sequence[bytes]
    ) -> tuple[bool, orc_values.OrcReader | None]:
        """Raise `StreamhouseError` for what the Rust core would read wrongly.

        Returns whether Avro files must be read row by row, and the reader whose `read` must convert
        the rows (None: no conversion).
        """
        ignored_deletes.check_read(self, splits)
        if self.nanosecond_columns:
            nanosecond_timestamps.check_files(self, columns, splits)
        from_orc = None
        if any(orc_values.SUFFIX in split for split in splits):
            from_orc = orc_values.OrcReader(self, splits)
            from_orc.check(columns)
        return self._avro_rows.one_by_one(self.identifier, columns, splits), from_orc

    def _batches(self, builder: Any, splits: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
        try:
            yield from builder.new_read().read_arrow([Split.deserialize(split) for split in splits])
        except rust_core.ERRORS as error:
            raise read_error(self, error) from error
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            raise read_error(self, error) from error

    @property
    def _batch_rows(self) -> int:
        value = self.options.get("read.batch-size")
        return READ_BATCH_ROWS if value is None else integer("read.batch-size", value, 1)

    def _builder(
        self,
        columns: Sequence[str] | None = None,
        snapshot: int | None = None,
        filter: Filter | None = None,
        rows: int | None = None,
        rust: Any = None,
    ) -> Any:
        """A builder of reads, of `rust` instead of the table's own."""
        options = {"read.batch-size": str(rows or self._batch_rows)}
        if snapshot is not None:
            options["scan.snapshot-id"] = str(snapshot)
        if "scan.mode" in self.options:
            # It says where streams start, and the core refuses every mode but this one.
            options["scan.mode"] = "default"
        try:
            builder = (rust or self.rust).new_read_builder(options)
        except rust_core.ERRORS as error:
            raise read_error(self, error, snapshot) from error
        if columns is not None:
            builder = builder.with_projection(list(columns))
        if self._chars:
            # Conditions on ORC files misread them.
            filter = only_on(filter, lambda name: name not in self._chars)
        if filter is not None:
            builder = builder.with_filter(dict(filter))
        return builder

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


def resolve(
    rust: Any,
    database: str,
    name: str,
    catalog_options: Mapping[str, str],
    followed: bool = False,
) -> Table:
    """The `Table` of one that the Rust core has opened, both with the newest schema version."""
    location = rust.location()
    root = branch_root(location, rust.branch())
    files = files_of(location, catalog_options)
    ids = numbered_files(files, f"{root}/schema", "schema-")
    text = files.read_text(f"{root}/schema/schema-{max(ids, default=0)}")
    if text is None:
        raise TableError(f"table {database}.{name} has no schema file under {root}/schema")
    schema = json.loads(text)
    table = rust.copy_with_resolved_schema(text)
    return Table(table, database, name, catalog_options, schema, followed)


def _columns(rust: Any) -> tuple[Column, ...]:
    return tuple(
        Column(
            field.name(),
            types.flink_spelling(field.field_type()),
            bool(field.is_nullable()),
            field.description(),
        )
        for field in rust.schema().fields()
    )
