"""One Paimon table: its snapshots, and reads of it in Arrow batches."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamhouse.close_matches import nearest
from streamhouse.errors import TableError
from streamhouse.paimon.read.conditions import Filter
from streamhouse.paimon.read.reader import ReadTraits, TableReader
from streamhouse.paimon.read.references import References
from streamhouse.paimon.read.schema_versions import SchemaVersions, TableSchema
from streamhouse.paimon.schema import evolution, types
from streamhouse.paimon.schema.table_name import branch_root
from streamhouse.paimon.storage.files import Files, files_of, numbered_files
from streamhouse.paimon.storage.followed_snapshots import FollowedSnapshots
from streamhouse.paimon.storage.object_store.object_files import ObjectFiles
from streamhouse.paimon.storage.snapshots import Snapshot, Snapshots
from streamhouse.source import ROW_KIND
from streamhouse.sql.plan import Column


class Table(TableSchema):
    """A table with one version of its schema; `Warehouse.table` opens it."""

    def __init__(
        self,
        rust: Any,
        database: str,
        name: str,
        catalog_options: Mapping[str, str],
        schema: Mapping[str, Any],
        followed: bool = False,
    ) -> None:
        super().__init__(_columns(rust), schema)
        self.rust = rust
        self.database = database
        self.name = name
        self.identifier = f"{database}.{name}"
        self.location: str = rust.location()
        self.catalog_options = catalog_options
        self.files: Files = files_of(self.location, catalog_options)
        self.branch: str = rust.branch()
        self.root = branch_root(self.location, self.branch)
        self.followed = followed
        self.snapshots = self._open_snapshots()
        self.read_traits = ReadTraits.of(self)
        self._opened_versions: dict[int, Table] = {}

    def _open_snapshots(self) -> Snapshots:
        if self.followed and isinstance(self.files, ObjectFiles):
            return FollowedSnapshots(self.files, self.location, self.root, self.identifier)
        return Snapshots(self.files, self.root, self.identifier)

    def __repr__(self) -> str:
        return f"Table({self.identifier!r})"

    @property
    def reader(self) -> TableReader:
        """Reads the table; made for each use, since a table must not refer to itself."""
        return TableReader(self)

    @property
    def versions(self) -> SchemaVersions:
        """The versions of its schema."""
        return SchemaVersions(self, self._opened_versions)

    @property
    def references(self) -> References:
        """Its tags and branches."""
        return References(self)

    def copy(self, dynamic_options: Mapping[str, str]) -> Table:
        """The same table with dynamic options, which override its own for this object only."""
        return self.with_schema(self.schema, dynamic_options)

    def with_schema(self, schema: Mapping[str, Any], options: Mapping[str, str]) -> Table:
        """The same table with a version of its schema, and with dynamic options."""
        schema = {**schema, "options": {**(schema.get("options") or {}), **options}}
        rust = self.rust.copy_with_resolved_schema(json.dumps(schema))
        return Table(
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
        return self.reader.splits(snapshot, columns, filter, in_commit_order)

    def has_values(self, columns: Sequence[str]) -> bool:
        """Whether a file has a value of one of these columns, also in rows that are replaced."""
        present = [name for name in columns if name in self.arrow_schema.names]
        if not present or self.latest_snapshot_id() is None:
            return False
        return evolution.has_values(self, present, self.splits())

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
        return self.reader.changes(after, until, mode, columns)

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
        yield from self.reader.read(columns, snapshot, filter, splits, row_kind)

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
