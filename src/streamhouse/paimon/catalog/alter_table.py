"""ALTER TABLE: changes columns and options of a table in use, through pypaimon's catalog."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from streamhouse.close_matches import nearest
from streamhouse.errors import SchemaChangeError, TableError
from streamhouse.paimon.catalog.immutable_options import check_option
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema import types
from streamhouse.paimon.schema.file_formats import orc_values
from streamhouse.paimon.schema.file_formats.nanosecond_timestamps import check_type
from streamhouse.paimon.schema.options import computed_columns, iceberg_metadata, option_columns
from streamhouse.paimon.schema.options.table_options import plain_values, unknown_key
from streamhouse.paimon.schema.type_widening import widens, widens_in_iceberg, wider
from streamhouse.paimon.schema.validation import column_rules
from streamhouse.paimon.schema.validation.declared_schema import DeclaredSchema
from streamhouse.paimon.schema.validation.schema_validation import check_schema
from streamhouse.paimon.storage.lock import commit_lock
from streamhouse.sql.options import renamed_options
from streamhouse.sql.options.merge_functions import order_columns
from streamhouse.sql.plan import Column, Name
from streamhouse.sql.schema_changes import (
    AddColumn,
    ColumnPosition,
    DropColumn,
    MoveColumn,
    RenameColumn,
    ResetTableOption,
    SchemaChange,
    SetColumnComment,
    SetDefault,
    SetNullable,
    SetTableOption,
    SetType,
)
from streamhouse.sql.types import base, parts

if TYPE_CHECKING:
    from streamhouse.paimon.catalog.warehouse import Warehouse

NOWHERE = "/nonexistent-table-of-a-draft"
"""The location of a table that exists only in memory."""
NOT_NULL_OPTION = "alter-column-null-to-not-null.disabled"


def alter_table(
    warehouse: Warehouse, catalog: Any, identifier: str, changes: Sequence[SchemaChange]
) -> None:
    """Apply all changes as one new version of the schema, or none of them.

    `SetDefault` is the exception: the Java core applies those afterwards, as another version.
    `catalog` is pypaimon's. Raises `TableError` for a column that is missing or already exists,
    `SchemaChangeError` for a change that would lose values, `OptionError` for options.
    """
    with commit_lock(warehouse.table(identifier).location):
        draft, defaults = drafted(warehouse.table(identifier), changes)
        if draft.pypaimon_changes:
            with _schema_errors(identifier):
                catalog.alter_table(identifier, draft.pypaimon_changes, False)
        if defaults:
            set_defaults(warehouse.options, identifier, defaults)


def drafted(table: Table, changes: Sequence[SchemaChange]) -> tuple[Draft, list[SetDefault]]:
    """The table after the changes but those of defaults, which pypaimon does not support.

    Raises the errors of `alter_table`.
    """
    defaults: list[SetDefault] = []
    draft = Draft(table)
    for change in changes:
        change = _with_current_option(change)
        if isinstance(change, SetDefault):
            draft.column(change.path)
            defaults.append(change)
        else:
            draft.apply(change)
    draft.check()
    return draft, defaults


@contextmanager
def _schema_errors(identifier: str) -> Iterator[None]:
    """Raise `SchemaChangeError` for a change that pypaimon refuses."""
    from pypaimon.catalog.catalog_exception import (
        ColumnAlreadyExistException,
        ColumnNotExistException,
    )

    refusals = (RuntimeError, ValueError, ColumnAlreadyExistException, ColumnNotExistException)
    try:
        yield
    except refusals as error:
        raise SchemaChangeError(f"table {identifier}: {_reason(error)}") from error


def _with_current_option(change: SchemaChange) -> SchemaChange:
    """Translate the change of an option of an earlier Paimon release to the current option."""
    if not isinstance(change, SetTableOption | ResetTableOption):
        return change
    default = renamed_options.DEFAULT_VALUE.fullmatch(change.key)
    value = change.value if isinstance(change, SetTableOption) else None
    if default is not None:
        return SetDefault((default["column"],), value)
    if value is None:
        return ResetTableOption(renamed_options.renamed(change.key))
    ((key, value),) = renamed_options.current({change.key: value})[0].items()
    return SetTableOption(key, value)


class Draft:
    """The table after the changes so far, and these changes as pypaimon's objects."""

    def __init__(self, table: Table) -> None:
        from pypaimon.schema.schema_change import Move, SchemaChange

        self._stored = self._table = table
        self._applied = 0
        """How many of the changes `_table` has."""
        self._order = computed_columns.declared_names(table.columns, table.options)
        self._schema_change, self._move_class = SchemaChange, Move
        self._has_snapshot = table.latest_snapshot_id() is not None
        self.where = f"table {table.identifier}"
        self.pypaimon_changes: list[Any] = []
        self._before = self._definition()

    def apply(self, change: SchemaChange) -> None:
        methods: Mapping[type, Callable[[Any], None]] = {
            AddColumn: self._add,
            DropColumn: self._drop,
            RenameColumn: self._rename,
            SetType: self._type,
            SetNullable: self._nullable,
            SetColumnComment: self._comment,
            MoveColumn: self._move_column,
            SetTableOption: self._set,
            ResetTableOption: self._reset,
        }
        methods[type(change)](change)

    def check(self) -> None:
        """Raise an error for a definition that cannot be stored (`check_schema`).

        Also moves the computed columns to their places among the changed columns, and sets the
        option that ORC files need with the first TIMESTAMP_LTZ column.
        """
        if not orc_values.implied_options(self._before.texts, self._before.options):
            texts = self._definition().texts
            self._change_options(orc_values.implied_options(texts, self.table.options))
        self._change_options(computed_columns.placed(self.table.options, self._order))
        check_schema(self._definition(), self._before)

    def _definition(self) -> DeclaredSchema:
        table = self.table
        columns = [(column.name, column.type) for column in table.columns]
        return DeclaredSchema(
            self.where, columns, table.primary_key, table.partition_keys, table.options
        )

    @property
    def _columns(self) -> dict[str, Column]:
        return {column.name: column for column in self.table.columns}

    def _change(self, *changes: Any) -> None:
        self.pypaimon_changes += changes

    @property
    def table(self) -> Table:
        """The table after the changes so far, in memory, as pypaimon's catalog will alter it."""
        if self._applied == len(self.pypaimon_changes):
            return self._table
        from pypaimon.common.json_util import JSON
        from pypaimon.filesystem.local_file_io import LocalFileIO
        from pypaimon.schema.schema_manager import SchemaManager
        from pypaimon.schema.table_schema import TableSchema

        current = TableSchema.from_json(json.dumps(self._stored.schema))

        class InMemory(SchemaManager):  # type: ignore[misc]
            """Applies changes, and writes nothing."""

            def latest(self) -> TableSchema:
                return current

            def commit(self, new_schema: TableSchema) -> bool:
                return True

        with _schema_errors(self._stored.identifier):
            new = InMemory(LocalFileIO(NOWHERE), NOWHERE).commit_changes(self.pypaimon_changes)
            self._table = self._stored.with_schema(json.loads(JSON.to_json(new)), {})
        self._applied = len(self.pypaimon_changes)
        return self._table

    def column(self, path: Name) -> Column:
        """The top-level column of a path; `TableError` with the nearest name if it is missing."""
        columns = self._columns
        if path[0] not in columns:
            hint = nearest(path[0], columns)
            raise TableError(f"{self.where} has no column '{path[0]}'; {hint}")
        return columns[path[0]]

    def _check_new_name(self, name: str) -> None:
        if name in self._order:
            raise TableError(f"{self.where}: column '{name}' already exists; choose another name")
        if (fault := column_rules.name_fault(self.where, name)) is not None:
            raise fault

    def _add(self, change: AddColumn) -> None:
        column = change.column
        if not change.parent:
            if change.if_not_exists and column.name in self._columns:
                return
            self._check_new_name(column.name)
        else:
            self.column(change.parent)
        if not column.nullable:
            raise SchemaChangeError(
                f"{self.where}: the new column '{column.name}' cannot be NOT NULL, since existing "
                "rows have no value for it; leave out NOT NULL"
            )
        move = None if change.position is None else self._move_to(column.name, change.position)
        self._change(
            self._schema_change.add_column(
                [*change.parent, column.name],
                self._writable_type(column.name, column.type),
                column.comment,
                move,
            )
        )
        if not change.parent:
            self._insert(column.name, change.position)

    def _insert(self, name: str, position: ColumnPosition | None) -> None:
        after = self._order[-1] if position is None else position.after
        self._order.insert(0 if after is None else self._order.index(after) + 1, name)

    def _move_to(self, name: str, position: ColumnPosition) -> Any:
        if position.after is None:
            return self._move_class.first(name)
        self.column((position.after,))
        return self._move_class.after(name, position.after)

    def _drop(self, change: DropColumn) -> None:
        name = change.path[0]
        if change.if_exists and name not in self._columns:
            return
        self.column(change.path)
        if len(change.path) == 1:
            self._check_not_a_key(name, "dropped")
            if len(self._columns) == 1:
                raise SchemaChangeError(
                    f"{self.where}: '{name}' is the last column; drop the table instead"
                )
            self._change_options(option_columns.dropped(self.table.options, name, self.where))
            self._order.remove(name)
        self._change(self._schema_change.drop_column(list(change.path)))

    def _rename(self, change: RenameColumn) -> None:
        name, new = change.path[0], change.new_name
        if change.if_exists and name not in self._columns:
            return
        self.column(change.path)
        if len(change.path) == 1:
            if name in self.table.partition_keys:
                self._check_not_a_key(name, "renamed")
            self._check_new_name(new)
            self._order[self._order.index(name)] = new
        self._change(self._schema_change.rename_column(list(change.path), new))
        if len(change.path) == 1:
            # After pypaimon has changed some of the options itself.
            options = option_columns.renamed(self.table.options, name, new, self.where)
            self._change_options(options)

    def _type(self, change: SetType) -> None:
        old = self._nested(change.path)
        if old == change.type:
            return
        name = ".".join(change.path)
        if len(change.path) == 1:
            self._check_not_a_key(name, "given another type")
        if not widens(old, change.type):
            raise SchemaChangeError(
                f"{self.where}: column '{name}' is {old} and cannot become {change.type}, which "
                f"cannot hold all of its values; it can become: {wider(old)}"
            )
        texts = ("CHAR", "VARCHAR", "STRING")
        if (
            self._has_snapshot
            and name in order_columns(self.table.options, self._columns)
            and change.type.startswith(texts) != old.startswith(texts)
        ):
            raise SchemaChangeError(
                f"{self.where}: column '{name}' orders the rows of a key, and texts have another "
                f"order than {old}; make it a wider number"
            )
        if iceberg_metadata.has_iceberg_metadata(self.table.options) and not widens_in_iceberg(
            old, change.type
        ):
            raise SchemaChangeError(
                f"{self.where}: column '{name}' is {old} and cannot become {change.type}: the "
                f"table has '{iceberg_metadata.STORAGE}', and Iceberg's readers could not read it; "
                "Iceberg only widens INT to BIGINT, FLOAT to DOUBLE, and the digits of a DECIMAL "
                "before the point"
            )
        new_type = self._writable_type(name, change.type)
        self._change(self._schema_change.update_column_type(list(change.path), new_type, True))

    def _writable_type(self, name: str, flink: str) -> Any:
        from pypaimon.schema.data_types import DataTypeParser

        parsed = types.parse(flink)
        check_type(self.where, name, types.arrow_type(parsed))
        return DataTypeParser.parse_data_type(parsed)

    def _nested(self, path: Name) -> str:
        """The type of a field inside a ROW (`element` and `value` step into ARRAY and MAP)."""
        kind = self.column(path).type
        for depth, part in enumerate(path[1:], 1):
            inner = dict(parts(kind))
            if base(kind) == "MAP":
                del inner["key"]
            if part not in inner:
                hint = nearest(part, inner)
                raise TableError(
                    f"{self.where}: '{'.'.join(path[:depth])}' has no '{part}'; {hint}"
                )
            kind = types.flink_spelling(inner[part])
        return kind

    def _nullable(self, change: SetNullable) -> None:
        column = self.column(change.path)
        name = ".".join(change.path)
        if len(change.path) == 1:
            key = name in self.table.primary_key
            if column.nullable == change.nullable or (key and change.implied):
                return
            if key:
                self._check_not_a_key(name, "nullable")
        if (
            not change.nullable
            and self.table.options.get(NOT_NULL_OPTION, "true").lower() != "false"
        ):
            raise SchemaChangeError(
                f"{self.where}: column '{name}' may hold nulls already, so it cannot become NOT "
                f"NULL; if you are sure that it has none, SET ('{NOT_NULL_OPTION}' = 'false') "
                "first"
            )
        update = self._schema_change.update_column_nullability
        self._change(update(list(change.path), change.nullable))

    def _comment(self, change: SetColumnComment) -> None:
        self.column(change.path)
        self._change(self._schema_change.update_column_comment(list(change.path), change.comment))

    def _move_column(self, change: MoveColumn) -> None:
        self.column((change.name,))
        if change.position.after == change.name:
            raise SchemaChangeError(
                f"{self.where}: column '{change.name}' cannot be placed after itself"
            )
        move = self._move_to(change.name, change.position)
        self._order.remove(change.name)
        self._insert(change.name, change.position)
        self._change(self._schema_change.update_column_position(move))

    def _set(self, change: SetTableOption) -> None:
        if change.key == "comment":
            self._change(self._schema_change.update_comment(change.value))
            return
        ((key, value),) = option_columns.column_lists(
            plain_values({change.key: change.value})
        ).items()
        unknown = unknown_key(key, self.where)
        if unknown is not None:
            raise unknown
        check_option(self.table, key, value)
        self._change_options({key: value})
        if key == iceberg_metadata.STORAGE:
            table = self.table
            self._change_options(iceberg_metadata.implied_options(table.primary_key, table.options))

    def _reset(self, change: ResetTableOption) -> None:
        if change.key not in self.table.options:
            unknown = unknown_key(change.key, self.where)
            if unknown is not None:
                raise unknown
            return
        check_option(self.table, change.key, None)
        self._change_options({change.key: None})

    def _change_options(self, changes: Mapping[str, str | None]) -> None:
        new: list[Any] = []
        for key, value in changes.items():
            kept = set() if value is None else {key}
            new += map(self._schema_change.remove_option, self._stored_names(key) - kept)
            if value is not None:
                new.append(self._schema_change.set_option(key, value))
        if new:
            self._change(*new)

    def _stored_names(self, key: str) -> set[str]:
        """The names, current or of earlier releases, under which the table stores an option."""
        stored: Mapping[str, str] = self.table.schema.get("options") or {}
        return {name for name in stored if renamed_options.renamed(name) == key}

    def _check_not_a_key(self, name: str, verb: str) -> None:
        for kind, keys in (
            ("primary", self.table.primary_key),
            ("partition", self.table.partition_keys),
        ):
            if name in keys:
                raise SchemaChangeError(
                    f"{self.where}: column '{name}' is part of the {kind} key and cannot be "
                    f"{verb}; create a new table with INSERT INTO … SELECT"
                )


def _reason(error: Exception) -> str:
    """The message of the innermost error that pypaimon's catalog raised."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    return " ".join(str(cause).split())


def set_defaults(
    warehouse_options: Mapping[str, str], identifier: str, changes: Sequence[SetDefault]
) -> None:
    """Set or remove defaults, in a new JVM; the caller holds the table's commit lock.

    `StreamhouseError` if a default is no value of its column's type.
    """
    from streamhouse.paimon.java.expiry.partitions import java_strings
    from streamhouse.paimon.java.sidecar import Sidecar

    def work(jvm: Any, table: Any) -> None:
        schema = jvm.org.apache.paimon.schema
        update = schema.SchemaChange.updateColumnDefaultValue
        updates = [update(java_strings(jvm, change.path), change.default) for change in changes]
        schema.SchemaManager(table.fileIO(), table.location()).commitChanges(updates)

    with Sidecar(warehouse_options) as java:
        java.call(identifier, work)
