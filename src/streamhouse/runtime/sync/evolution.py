"""Follows the schema changes of MySQL: alters the Paimon tables, and decides what is read again.

Runs in the planner, which calls it between two batches. What it does to a table depends on the
table as it is, so it can be repeated. docs/decisions/195-schema-changes-of-a-sync.md says why.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from streamhouse.connectors.mysql_cdc.binlog.statements import DdlChange
from streamhouse.connectors.mysql_cdc.database.discovery import FoundTable
from streamhouse.connectors.mysql_cdc.database.followed_table import FollowedTable
from streamhouse.connectors.mysql_cdc.database.progress import (
    FOREIGN_KEY,
    UNKNOWN_STATEMENT,
    DatabaseProgress,
    Stale,
)
from streamhouse.durable_files import read_json, replace_json
from streamhouse.errors import StreamhouseError, TableError
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.runtime.failpoint import reached
from streamhouse.runtime.sync.mapping.reconciliation import (
    Reconciliation,
    Wanted,
    refused,
    refused_key,
)
from streamhouse.runtime.sync.mapping.targets import Targets
from streamhouse.runtime.sync.options import SyncOptions
from streamhouse.runtime.sync.present_rows import PresentRows, names_by_target, with_columns
from streamhouse.runtime.sync.reload import check_reloadable
from streamhouse.sql.schema_changes import DropColumn, MoveColumn, RenameColumn, SchemaChange

_PRESENT = "rows of before the sync"
_ADDED = "added-columns.json"
_SHOWN = 400
"""The most characters of statements in a message."""


@dataclass
class FollowedStatements:
    """The consequences of statements for a sync.

    `tables`: those with a new description. `stale`: targets to reload. `gone`: the ids of tables
    that no longer exist. `texts`: messages to the user.
    """

    tables: list[FollowedTable] = field(default_factory=list)
    stale: dict[str, Stale] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    texts: list[str] = field(default_factory=list)

    def reload(self, table: FollowedTable, ddl: DdlChange, before: Stale, deletes: bool) -> None:
        """Let the target be reloaded, and note what the reload cannot see."""
        renamed = {old: ddl.renamed.get(new.lower(), new) for old, new in before.renamed.items()}
        passed = {new.lower() for new in before.renamed.values()}
        renamed |= {old: new for old, new in ddl.renamed.items() if old not in passed}
        other = self.stale.get(table.target, before)
        self.stale[table.target] = Stale(
            _joined(before.statement, ddl.statement),
            before.deletes and other.deletes and deletes,
            renamed,
            before.dropped | other.dropped | ddl.dropped,
        )
        self.texts.append(f"followed: {table.full_name}: {ddl.statement}")


class SchemaEvolution:
    """Decides the consequences of statements for the targets of a sync, and alters these.

    `targets`: the Paimon tables. A file in the `checkpoint` has the names of the columns that
    reloads have added to each of them.
    """

    def __init__(self, options: SyncOptions, checkpoint: Path, query_id: str) -> None:
        self._options, self._rules = options, options.schema_changes
        self._added = checkpoint / _ADDED
        self.targets = Targets(options, lambda text: None)
        self._warehouse = Warehouse(options.warehouse)
        self._present = PresentRows(options, query_id)

    def follow(
        self,
        tables: Mapping[str, FollowedTable],
        before: DatabaseProgress,
        found: Mapping[str, DdlChange],
    ) -> FollowedStatements:
        """Follow the statements in `found`, by the ids of the tables.

        `tables`: as they are `before` the statements. Raises `SchemaChangeError` for a statement
        that cannot be followed.
        """
        followed = FollowedStatements()
        for id, ddl in found.items():
            self._follow(tables[id], ddl, before, followed)
        present = {id: table for id, table in tables.items() if id not in before.gone}
        for target in dict.fromkeys(table.target for table in followed.tables):
            if target not in followed.stale:
                own = {id: table for id, table in present.items() if table.target == target}
                self._alter(target, own, found, followed)
        followed.tables = [table for table in followed.tables if table.target not in followed.stale]
        return followed

    def compared(
        self, targets: Collection[str], tables: Iterable[FollowedTable]
    ) -> dict[str, Stale]:
        """Those of `targets` whose rows are compared with MySQL's before any is written.

        They are the targets that have rows of other queries. `tables`: all tables of the sync.
        """
        names = names_by_target(tables)
        return {
            target: Stale(_PRESENT, self._present.why_kept(target, names[target]) is None)
            for target in targets
            if self._present.compares(target)
        }

    def prepare(
        self,
        target: str,
        stale: Stale,
        tables: Mapping[str, FollowedTable],
        found: Mapping[str, FoundTable],
    ) -> tuple[FollowedStatements, bool]:
        """Alter a target, before it is reloaded, to the columns of its tables as `found`, by ids.

        Also returns whether rows that MySQL does not have are to be deleted.
        """
        for table in found.values():
            if table.definition is None:
                raise refused(target, stale.statement, str(table.reason))
        deletes = stale.deletes and (len(found) == len(tables) or self._rules.follows("drop.table"))
        check_reloadable(self._warehouse.table(target), stale.statement)
        if deletes and stale.statement != _PRESENT:
            self._check_only_writer(target, stale, tables.values())
        if not found:
            return FollowedStatements(), deletes
        wanted = self._wanted(target, list(found.values()), stale.statement)
        renamed = {old: self._options.spelt(new) for old, new in stale.renamed.items()}
        known = self._types(tables[id] for id in tables if id in found)
        added: dict[str, list[str]] = read_json(self._added) or {}
        leftover = set(added.get(target, ())) - known.keys()
        wanted = replace(
            wanted,
            before=known,
            renamed=renamed,
            dropped=stale.dropped,
            leftover=sorted(leftover),
            # A table that is only compared keeps the order of its columns.
            ordered=wanted.ordered and stale.statement not in (_PRESENT, FOREIGN_KEY),
        )
        names = leftover | {column.name for column in wanted.columns} - known.keys()
        if set(added.get(target, ())) != names:
            replace_json(self._added, {**added, target: sorted(names)})
        reconciliation = self._altered(target, wanted)
        followed = FollowedStatements(texts=_left_out(target, reconciliation))
        altered = self._warehouse.table(target)
        for id, one in found.items():
            assert one.definition is not None
            own = replace(one.definition, hidden_in=tables[id].definition.hidden_in)
            described = replace(tables[id], definition=own)
            followed.tables.append(with_columns(self._options, described, altered))
        return followed, deletes

    def _check_only_writer(
        self, target: str, stale: Stale, tables: Iterable[FollowedTable]
    ) -> None:
        """Raise `SchemaChangeError` if a reload would delete the rows of other queries."""
        sources = {table.full_name for table in tables}
        other = self._present.other_writer(target, sources)
        if other is not None:
            raise refused(
                target,
                stale.statement,
                f"rows may have been deleted, which cannot be told from those of others: {other}",
            )

    # -- one statement about one table

    def _follow(
        self,
        table: FollowedTable,
        ddl: DdlChange,
        before: DatabaseProgress,
        followed: FollowedStatements,
    ) -> None:
        stale, gone = before.stale.get(table.target), table.id in before.gone
        drops = self._rules.follows("drop.table")
        deleting = {"TRUNCATE": self._rules.follows("truncate.table"), "DROP": drops}
        if stale is None and gone and ddl.verb in deleting:
            return
        if stale is None and not gone and ddl.after is not None and ddl.reload is None:
            # An ALTER that leaves the rows as they are.
            if ddl.after != table.definition:
                if set(table.definition.columns) != set(ddl.after.columns):
                    # More than the places of the columns has changed.
                    self._forbid(table, ddl)
                followed.tables.append(replace(table, definition=ddl.after))
                followed.texts.append(f"followed: {table.full_name}: {ddl.statement}")
            return
        self._forbid(table, ddl)
        if stale is None and not gone and not deleting.get(ddl.verb, True):
            followed.texts.append(f"ignored: {table.full_name}: {ddl.statement}")
            if ddl.verb == "DROP":
                followed.gone.add(table.id)
            return
        deletes = {**deleting, "CREATE": drops}.get(ddl.verb, True)
        if stale is None:
            check_reloadable(self._warehouse.table(table.target), ddl.statement)
            deletes = drops if gone else deletes
        followed.reload(table, ddl, stale or Stale(UNKNOWN_STATEMENT), deletes)

    def _forbid(self, table: FollowedTable, ddl: DdlChange) -> None:
        if self._rules.behavior == "exception":
            raise refused(
                table.target,
                ddl.statement,
                f"{table.full_name} was changed, and --schema-change-behavior is exception",
            )

    # -- the Paimon tables

    def _alter(
        self,
        target: str,
        before: Mapping[str, FollowedTable],
        found: Mapping[str, DdlChange],
        followed: FollowedStatements,
    ) -> None:
        """Alter one target, after ALTER TABLE of its tables whose rows stay as they are."""
        altered = {table.id: table for table in followed.tables}
        now = {id: altered.get(id, table) for id, table in before.items()}
        ddls = {id: found[id] for id in before if id in altered}
        statement = "; ".join(dict.fromkeys(ddl.statement for ddl in ddls.values()))
        sources = [FoundTable(table.names, table.definition) for table in now.values()]
        wanted = self._wanted(target, sources, statement)
        others = [table for id, table in now.items() if id not in ddls]
        spelt = self._options.spelt
        renamed = {old: spelt(new) for ddl in ddls.values() for old, new in ddl.renamed.items()}
        wanted = replace(
            wanted,
            before=self._types(before.values()),
            renamed=renamed,
            shared={spelt(column.name) for table in others for column in table.definition.columns},
        )
        reconciliation = self._altered(target, wanted)
        followed.texts += _left_out(target, reconciliation)
        followed.tables = [other for other in followed.tables if other.target != target]
        opened = self._warehouse.table(target)
        for table in now.values():
            one = with_columns(self._options, table, opened)
            if one != before[table.id]:
                followed.tables.append(one)
        if reconciliation.replaced:
            check_reloadable(opened, statement)
            followed.stale[target] = Stale(statement, renamed=renamed)

    def _wanted(self, target: str, sources: Sequence[FoundTable], statement: str) -> Wanted:
        """The columns of the target by MySQL's tables; the key must still be the same."""
        lenient = self._rules.behavior in ("try_evolve", "lenient")
        try:
            return self.targets.wanted(target, sources, statement, lenient)
        except TableError as error:
            raise refused(target, statement, str(error)) from None

    def _altered(self, target: str, wanted: Wanted) -> Reconciliation:
        table = self._warehouse.table(target)
        reconciliation = Reconciliation(table, wanted, self._rules)
        renames = {
            change.path[0]: change.new_name
            for change in reconciliation.changes
            if isinstance(change, RenameColumn)
        }
        key = tuple(renames.get(name, name) for name in table.primary_key)
        if set(wanted.key) != set(key):
            raise refused_key(
                target,
                wanted.statement,
                f"the primary key is now ({', '.join(wanted.key)}), and that of {target} is "
                f"({', '.join(key)}), which cannot change",
            )
        try:
            self._apply(target, reconciliation.changes)
        except StreamhouseError as error:
            raise refused(target, wanted.statement, str(error)) from error
        return reconciliation

    def _apply(self, target: str, changes: Sequence[SchemaChange]) -> None:
        if not changes:
            return
        try:
            self._warehouse.alter_table(target, *changes)
        except StreamhouseError:
            if self._rules.behavior != "try_evolve":
                raise
            # What loses nothing when it is left out.
            optional = [change for change in changes if isinstance(change, DropColumn | MoveColumn)]
            needed = [change for change in changes if change not in optional]
            if needed:
                self._warehouse.alter_table(target, *needed)
        reached("target-altered", 0, target)

    def _types(self, tables: Iterable[FollowedTable]) -> dict[str, str]:
        """The columns of tables with the types to which they map."""
        columns = (self.targets.columns(table.definition) for table in tables)
        return {column.name: column.type for own in columns for column in own}


def _left_out(target: str, reconciliation: Reconciliation) -> list[str]:
    return [
        f"left out: {target} cannot have column '{name}': {reason}"
        for name, reason in reconciliation.left_out.items()
    ]


def _joined(first: str, second: str) -> str:
    """Statements as one text."""
    text = second if first.startswith(UNKNOWN_STATEMENT) else f"{first}; {second}"
    return text if len(text) <= _SHOWN else f"…{text[-_SHOWN:]}"
