"""The Paimon tables of a sync: their columns and keys, derived from tables in MySQL."""

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from streamhouse.close_matches import nearest
from streamhouse.connectors.mysql_cdc.database.discovery import FoundTable
from streamhouse.connectors.mysql_cdc.database.table_sets import Shape, TableSets
from streamhouse.errors import OptionError, StreamhouseError, TableError
from streamhouse.mysql.table import TableDefinition
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.table_name import split_identifier
from streamhouse.paimon.schema.type_widening import widens
from streamhouse.runtime.failpoint import reached
from streamhouse.runtime.sync.mapping.computed_columns import parsed, with_types
from streamhouse.runtime.sync.mapping.reconciliation import Reconciliation, Wanted
from streamhouse.runtime.sync.options import METADATA, SyncOptions
from streamhouse.sql.plan import Column
from streamhouse.sql.schema_changes import (
    SchemaChange,
    SetColumnComment,
    SetNullable,
    SetTableOption,
)


@dataclass(frozen=True)
class Target:
    """A Paimon table, and the tables in MySQL that are written to it.

    `columns` also has the computed and the metadata columns.
    """

    identifier: str
    sources: tuple[FoundTable, ...]
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    partition_keys: tuple[str, ...]
    comment: str | None


class Targets:
    """Plans and creates the Paimon tables of a sync.

    `table_sets`: where tables are noted before they are created.
    """

    def __init__(
        self,
        options: SyncOptions,
        notice: Callable[[str], None],
        table_sets: TableSets | None = None,
    ) -> None:
        self._options, self._notice, self._table_sets = options, notice, table_sets
        self._warehouse = Warehouse(options.warehouse)
        self._computed = parsed(options.computed_columns, options.spelt)

    def ensure(
        self, found: Sequence[FoundTable], own: Mapping[str, Collection[str]]
    ) -> list[Target]:
        """The targets of these tables; creates those that are missing.

        Those that the sync writes already (`own`, with the names of their tables in MySQL) get the
        columns that they lack. Those that it has only created are created again, in case that
        MySQL's table has other columns now. Raises `TableError` for tables that cannot be merged,
        or that an existing Paimon table cannot hold; with `ignore_incompatible` these are left out,
        with a notice.
        """
        groups: dict[str, list[FoundTable]] = {}
        for table in found:
            groups.setdefault(self._options.target(table.names), []).append(table)
        self._check_merged(groups, own)
        if groups:
            self._warehouse.create_database(self._options.database, if_not_exists=True)
        # Listed once: with hundreds of tables, this is most of the time that they take.
        existing = set(self._warehouse.tables(self._options.database)) if groups else set()
        there = {group for group in groups if split_identifier(group)[1] in existing}
        there -= self._dropped(there - own.keys())
        planned = self._noted({one: own for one, own in groups.items() if one not in there})
        targets = []
        for identifier, sources in groups.items():
            try:
                if identifier in there and identifier in own:
                    self._widen(identifier, sources)
                target = planned.get(identifier) or self.planned(identifier, sources)
                if identifier in there or self._created_one(target):
                    self._match(target, self._warehouse.table(identifier))
                    targets.append(target)
            except TableError as error:
                if not self._options.ignore_incompatible:
                    raise
                names = ", ".join(source.full_name for source in sources)
                self._notice(f"{names}: not followed, since {error}")
        return targets

    def _check_merged(
        self, groups: Mapping[str, Sequence[FoundTable]], own: Mapping[str, Collection[str]]
    ) -> None:
        for identifier, sources in groups.items():
            names = [*own.get(identifier, ()), *(source.full_name for source in sources)]
            apart = len(names) > 1 and not self._options.names.merge_shards
            if self._options.table is None and apart:
                raise OptionError(
                    f"{', '.join(names)} would all be written to {identifier}; exclude all but "
                    "one, or choose another --table-prefix"
                )

    def _dropped(self, identifiers: set[str]) -> set[str]:
        """Drop the tables that an earlier run has created, and died before it could use them."""
        noted = {} if self._table_sets is None else self._table_sets.latest().created
        dropped = set()
        for identifier in noted.keys() & identifiers:
            table = self._warehouse.table(identifier)
            # Nobody has altered it, or written to it.
            if _shape(table) == noted[identifier] and table.latest_snapshot_id() is None:
                self._warehouse.drop_table(*split_identifier(identifier))
                dropped.add(identifier)
        return dropped

    def _noted(self, missing: Mapping[str, Sequence[FoundTable]]) -> dict[str, Target]:
        """The targets to create, which are noted first, in one file; without impossible ones."""
        planned = {}
        for identifier, sources in missing.items():
            with contextlib.suppress(TableError):  # raised again where it is created
                planned[identifier] = self.planned(identifier, sources)
        if self._table_sets is not None and planned:
            latest = self._table_sets.latest()
            created = {name: _shape(target) for name, target in planned.items()}
            self._table_sets.add(latest.tables.values(), created={**latest.created, **created})
        return planned

    def _created_one(self, target: Target) -> bool:
        """Create a table; False, and a notice, if Paimon can have no such table among others."""
        database, name = split_identifier(target.identifier)
        try:
            self._warehouse.create_table(
                database,
                name,
                target.columns,
                target.primary_key,
                target.partition_keys,
                self._options.table_conf,
                target.comment,
                if_not_exists=True,
            )
        except (OptionError, TableError) as error:
            if self._options.table is not None:
                raise
            self._notice(f"{_names(target)}: not followed, since {error}")
            return False
        reached("table-created", 0, target.identifier)
        return True

    def _widen(self, identifier: str, sources: Sequence[FoundTable]) -> None:
        """Let a table hold the rows of another one in MySQL, by the rules for schema changes."""
        rules = self._options.schema_changes
        if rules.behavior in ("ignore", "exception"):
            return
        names = ", ".join(source.full_name for source in sources)
        wanted = replace(self.wanted(identifier, sources, f"the new table {names}"), ordered=False)
        table = self._warehouse.table(identifier)
        changes = Reconciliation(table, wanted, rules).changes
        present = {*(column.name for column in wanted.columns), *self._extra_columns()}
        for own in table.columns:
            if own.name not in present and not own.nullable:
                changes.append(SetNullable((own.name,), True))
        if changes:
            self._warehouse.alter_table(identifier, *changes)

    def _extra_columns(self) -> set[str]:
        """The names of the computed and metadata columns."""
        return {*(column.name for column in self._computed), *self._options.metadata_names.values()}

    def wanted(
        self, identifier: str, sources: Sequence[FoundTable], statement: str, lenient: bool = False
    ) -> Wanted:
        """The columns from MySQL and the key of a target; raises `TableError` as `planned`."""
        planned, extra = self.planned(identifier, sources, lenient), self._extra_columns()
        columns = [column for column in planned.columns if column.name not in extra]
        return Wanted(columns, planned.primary_key, ordered=len(sources) == 1, statement=statement)

    def planned(
        self, identifier: str, sources: Sequence[FoundTable], lenient: bool = False
    ) -> Target:
        """The target as it would be created; raises `TableError` if that is not possible.

        `lenient`: columns of types that cannot be merged become STRING.
        """
        merged: dict[str, Column] = {}
        having = Counter[str]()
        for source in sources:
            own: set[str] = set()
            assert source.definition is not None
            for column in self.columns(source.definition, source.comments):
                if column.name in own:
                    raise TableError(
                        f"{source.full_name}: two of its columns are '{column.name}' in lower "
                        "case, as the catalog is not case-sensitive; rename one"
                    )
                own.add(column.name)
                having[column.name] += 1
                other = merged.get(column.name)
                merged[column.name] = (
                    column if other is None else _merged(source, other, column, lenient)
                )
        for name, column in merged.items():
            if having[name] < len(sources):
                merged[name] = replace(column, nullable=True)
        columns = list(merged.values()) + self._added(identifier, merged)
        names = [column.name for column in columns]
        key = self._primary_key(identifier, sources, names)
        partition = self._partition_keys(identifier, names)
        comment = sources[0].comment if len(sources) == 1 else None
        return Target(identifier, tuple(sources), tuple(columns), key, partition, comment)

    def columns(
        self, table: TableDefinition, comments: Mapping[str, str] = MappingProxyType({})
    ) -> list[Column]:
        """The columns of a table in MySQL as those of its target."""
        mapping, keys = self._options.mapping, set(table.key)
        return [
            Column(
                self._options.spelt(column.name),
                mapping.type(column, column in keys),
                mapping.nullable(column) and column not in keys,
                comments.get(column.name),
            )
            for column in table.columns
        ]

    def _added(self, identifier: str, columns: Mapping[str, Column]) -> list[Column]:
        kinds = {name: column.type for name, column in columns.items()}
        try:
            computed = with_types(self._computed, kinds)
        except OptionError as error:
            raise TableError(f"{identifier}: {error}") from None
        added = [Column(column.name, column.type) for column in computed]
        for name, own in self._options.metadata_names.items():
            added.append(Column(own, METADATA[name], nullable=False))
        names = [*columns, *(column.name for column in added)]
        for name in names:
            if names.count(name) > 1:
                raise TableError(
                    f"{identifier}: column '{name}' is in MySQL, and a computed or metadata "
                    "column has the same name"
                )
        return added

    def _primary_key(
        self, identifier: str, sources: Sequence[FoundTable], names: Sequence[str]
    ) -> tuple[str, ...]:
        given = self._named(identifier, "--primary-keys", self._options.primary_keys, names)
        if given:
            return given
        if not self._options.source_keys:
            return ()
        keys = {
            tuple(self._options.spelt(column.name) for column in source.definition.key): (
                source.full_name
            )
            for source in sources
            if source.definition is not None
        }
        if len(keys) > 1:
            texts = "; ".join(f"{name}: {', '.join(key)}" for key, name in keys.items())
            raise TableError(
                f"{identifier}: the tables have different primary keys ({texts}); give one with "
                "--primary-keys"
            )
        return next(iter(keys))

    def _partition_keys(self, identifier: str, names: Sequence[str]) -> tuple[str, ...]:
        name = split_identifier(identifier)[1]
        own = self._options.partition_keys_of.get(name)
        if own is not None:
            return self._named(identifier, "--multiple-table-partition-keys", own, names)
        return self._named(identifier, "--partition-keys", self._options.partition_keys, names)

    def _named(
        self, identifier: str, flag: str, keys: Sequence[str], names: Sequence[str]
    ) -> tuple[str, ...]:
        """Keys that must be columns; in a sync of a database they are left out if one is not."""
        keys = [self._options.spelt(key) for key in keys]
        missing = [key for key in keys if key not in names]
        if not missing:
            return tuple(keys)
        if self._options.table is None:
            self._notice(f"{identifier} has no column '{missing[0]}', so {flag} does not apply")
            return ()
        raise TableError(
            f"{identifier} has no column '{missing[0]}' of {flag}; {nearest(missing[0], names)}"
        )

    def _match(self, target: Target, table: Table) -> None:
        """Set the options of a Paimon table; raises `TableError` unless it holds all values."""
        existing = {column.name: column for column in table.columns}
        for column in target.columns:
            own = existing.get(column.name)
            if own is None:
                raise TableError(
                    f"{target.identifier} exists, and has no column '{column.name}' "
                    f"({column.type}), which {_names(target)} has; add the column, drop the table, "
                    "or choose another --table-prefix"
                )
            if not widens(column.type, own.type):
                raise TableError(
                    f"{target.identifier} exists, and its column '{column.name}' is {own.type}, "
                    f"which cannot hold the {column.type} of {_names(target)}; widen the column, "
                    "drop the table, or choose another --table-prefix"
                )
        names = {column.name for column in target.columns}
        for name, own in existing.items():
            if name not in names and not own.nullable:
                raise TableError(
                    f"{target.identifier} exists, and its column '{name}' is NOT NULL, but "
                    f"{_names(target)} has no such column"
                )
        if tuple(table.primary_key) != target.primary_key:
            raise TableError(
                f"{target.identifier} exists with the primary key "
                f"({', '.join(table.primary_key)}), and not ({', '.join(target.primary_key)}); "
                "drop the table, or choose another --table-prefix"
            )
        self._alter_options(table)

    def set_options(self, identifiers: Iterable[str]) -> None:
        """Set the options of `table_conf` on tables that the sync has written before."""
        if not self._options.table_conf:
            return
        for identifier in dict.fromkeys(identifiers):
            self._alter_options(self._warehouse.table(identifier))

    def copy_comments(self, found: Iterable[FoundTable]) -> list[str]:
        """Give the Paimon tables the comments of these tables, as they are now.

        Where MySQL has no comment, that in Paimon stays. Returns failures as messages to the user,
        since rows do not depend on comments.
        """
        failures = []
        for source in found:
            target = self._options.target(source.names)
            try:
                changes = _comment_changes(self._warehouse.table(target), source, self._options)
                if changes:
                    self._warehouse.alter_table(target, *changes)
            except StreamhouseError as error:
                text = f"comments of {source.full_name} are not copied: {error}"
                failures.append(f"{target}: {text}")
        return failures

    def _alter_options(self, table: Table) -> None:
        """Set the options of `table_conf` that an existing table has not, if they can change."""
        for key, value in self._options.table_conf.items():
            if table.options.get(key) == value:
                continue
            if key == "bucket":
                # Its files would have to be written again.
                was = table.options.get(key, "-1")
                self._notice(f"{table.identifier} keeps its option 'bucket' = '{was}'")
                continue
            try:
                self._warehouse.alter_table(table.identifier, SetTableOption(key, value))
            except StreamhouseError as error:
                self._notice(f"{table.identifier} keeps its option '{key}': {error}")


def _merged(source: FoundTable, one: Column, other: Column, lenient: bool) -> Column:
    """A column that holds the values of both."""
    nullable = one.nullable or other.nullable
    if widens(other.type, one.type):
        return replace(one, nullable=nullable)
    if widens(one.type, other.type):
        return replace(other, nullable=nullable)
    if lenient and widens(one.type, "STRING") and widens(other.type, "STRING"):
        return replace(one, type="STRING", nullable=nullable)
    raise TableError(
        f"{source.full_name}: its column '{one.name}' is {other.type}, and {one.type} in another "
        "table that is written to the same one; exclude the table, or use --type-mapping to-string"
    )


def _shape(table: Target | Table) -> Shape:
    return tuple(column.name for column in table.columns), tuple(table.primary_key)


def _names(target: Target) -> str:
    return ", ".join(source.full_name for source in target.sources)


def _comment_changes(table: Table, found: FoundTable, options: SyncOptions) -> list[SchemaChange]:
    changes: list[SchemaChange] = []
    comments = {options.spelt(name): comment for name, comment in found.comments.items()}
    for column in table.columns:
        comment = comments.get(column.name)
        if comment and comment != column.comment:
            changes.append(SetColumnComment((column.name,), comment))
    if found.comment and found.comment != table.schema.get("comment"):
        changes.append(SetTableOption("comment", found.comment))
    return changes
