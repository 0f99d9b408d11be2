"""The tables that a sync follows: found in MySQL, created in Paimon, and written to a table set."""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from streamhouse.background import RepeatedStep
from streamhouse.connectors.mysql_cdc.database.discovery import Discovery, FoundTable
from streamhouse.connectors.mysql_cdc.database.followed_table import FollowedTable
from streamhouse.connectors.mysql_cdc.database.foreign_key_changes import (
    check_parents,
    parent_needed,
)
from streamhouse.connectors.mysql_cdc.database.progress import DatabaseProgress
from streamhouse.connectors.mysql_cdc.database.table_sets import TableSet, TableSets
from streamhouse.errors import SchemaChangeError, TableError
from streamhouse.mysql.columns import server_zone
from streamhouse.mysql.connection import Session
from streamhouse.mysql.foreign_keys import ForeignKey, unlogged_foreign_keys
from streamhouse.mysql.metadata import TableNames
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.table import Server, check_binlog_filter
from streamhouse.paimon.schema.table_name import name_fault
from streamhouse.runtime.sync.mapping.targets import Target, Targets
from streamhouse.runtime.sync.options import SyncOptions
from streamhouse.runtime.sync.present_rows import (
    FromScratch,
    PresentRows,
    names_by_target,
    with_columns,
)
from streamhouse.runtime.sync.reload import why_not_reloadable

_SHOWN = 5


class SyncTables:
    """Keeps the newest table set up to date; driver only, thread-safe.

    `joining` is called with tables before a table set has them.
    `scratch`: the sync starts from scratch.
    """

    def __init__(
        self,
        options: SyncOptions,
        table_sets: TableSets,
        session: Session,
        server: Server,
        notice: Callable[[str], None],
        joining: Callable[[Sequence[FollowedTable]], None],
        present: PresentRows,
        scratch: FromScratch | None = None,
    ) -> None:
        self._options, self._table_sets, self._session = options, table_sets, session
        self._server = server
        self._discovery = Discovery.of_sync(session, server, options.mysql, options.tables)
        self._targets = Targets(options, notice, table_sets)
        self._notice, self._joining = notice, joining
        self._present, self._scratch = present, scratch
        self._skipped: set[TableNames] = set()
        self._lock = threading.Lock()
        self._search: RepeatedStep | None = None

    @property
    def table_set(self) -> TableSet:
        """The newest table set."""
        return self._table_sets.latest()

    def start(self) -> None:
        """Write the first table set of this run, if the tables differ from the last run's.

        Raises `TableError` if there is no table, or one that cannot be followed.
        """
        with self._lock:
            old = self.table_set
            names = old.by_names()
            # Those of now that change rows of followed tables without row events.
            keys = unlogged_foreign_keys(self._session, names) if names else {}
            self._drop_unselected(old)
            self._targets.set_options(table.target for table in self.table_set.tables.values())
            self._add(self._discovery.found(self.table_set.by_names()))
            if not self._options.live:
                # While a table is altered, MariaDB's list of all tables may lack it.
                self._add_new()
            if not self.table_set.tables:
                raise self._nothing()
            self._check_targets(keys)
            if self.table_set.server != self._table_sets.server:
                self._table_sets.add(self.table_set.tables.values())

    def discover(self) -> int:
        """Follow the tables that were created since the last call; returns how many."""
        with self._lock:
            return self._add_new() if self._options.live else 0

    def _add_new(self) -> int:
        known = {*self.table_set.by_names(), *self._skipped}
        if self._discovery.names() <= known:
            return 0
        return self._add(self._discovery.found(known))

    def note(self, progress: DatabaseProgress, unread: Collection[str]) -> bool:
        """Write a table set with tables as a batch has altered them, and its `unread` targets.

        Returns whether there are such.
        """
        if not (progress.versions or unread):
            return False
        with self._lock:
            tables = self.table_set.tables
            now = {id: progress.versions.get(id, table) for id, table in tables.items()}
            if unread or now != tables:
                self._table_sets.add(now.values(), zone=progress.zone, unread=unread)
        return True

    def keep_discovering(self) -> None:
        """Let a thread `discover` tables, each second or less often; raises its error."""
        if self._search is None:
            self._search = RepeatedStep(self._step, "sync-tables", 1.0)
        self._search.check()

    def close(self, wait_s: float = 5.0) -> None:
        """Stop the thread."""
        if self._search is not None:
            self._search.stop(wait_s)

    def _step(self) -> float:
        began = time.monotonic()
        self.discover()
        # Listing many tables is expensive for the server.
        return 1.0 + min(30.0, 10 * (time.monotonic() - began))

    def _add(self, found: Sequence[FoundTable]) -> int:
        followable = self._followable(found)
        if not followable:
            return 0
        old = self.table_set
        targets = self._targets.ensure(followable, names_by_target(old.tables.values()))
        sources = [(source, target) for target in targets for source in target.sources]
        tables = [
            self._followed(source, target, str(id))
            for id, (source, target) in enumerate(sources, old.next_id)
        ]
        accepted = {table.names for table in tables}
        self._skipped |= {table.names for table in followable if table.names not in accepted}
        if not tables:
            return 0
        zone = needed_zone(self._session, self._options.mysql, tables)
        all_tables = [*old.tables.values(), *tables]
        self._check_comparable(tables)
        self._present_rows(old, tables, all_tables)
        self._joining(tables)
        self._table_sets.add(all_tables, zone, created={})
        if self._scratch is not None:
            self._scratch.end()
            self._scratch = None
        return len(tables)

    def _followed(self, source: FoundTable, target: Target, id: str) -> FollowedTable:
        assert source.definition is not None
        table = FollowedTable(id, source.definition, target.identifier)
        opened = self._options.address(table.target).open()
        return with_columns(self._options, table, opened)

    def _followable(self, found: Sequence[FoundTable]) -> list[FoundTable]:
        found = self._with_parents([self._with_valid_name(table) for table in found])
        refused = [table for table in found if table.reason is not None]
        whole = self._options.table is None
        fatal = [table for table in refused if not (whole and table.left_out)]
        if fatal and not self._options.skip_unsupported:
            reasons = "; ".join(str(table.reason) for table in fatal[:_SHOWN])
            more = f"; and {len(fatal) - _SHOWN} more" if len(fatal) > _SHOWN else ""
            raise TableError(
                f"{len(fatal)} of the selected tables cannot be followed: {reasons}{more}. "
                "Exclude them (--excluding-tables), or leave them out with --skip-unsupported"
            )
        for table in refused:
            self._skipped.add(table.names)
            self._notice(f"not followed: {table.reason}")
        return [table for table in found if table.reason is None]

    def _with_parents(self, found: Sequence[FoundTable]) -> list[FoundTable]:
        """The tables, with a reason not to follow those whose rows a table changes that is not."""
        tables = {table.names: table for table in found}
        known = self.table_set.by_names().keys()
        while True:
            usable = {*known, *(name for name, table in tables.items() if table.definition)}
            refused = {
                names: replace(table, definition=None, reason=reason)
                for names, table in tables.items()
                if (definition := table.definition) is not None
                and (reason := parent_needed(table.full_name, definition.foreign_keys, usable))
            }
            if not refused:
                return list(tables.values())
            tables |= refused

    def _with_valid_name(self, found: FoundTable) -> FoundTable:
        """The table, with a reason not to follow it if Paimon can have no table of that name."""
        target = self._options.target(found.names)
        fault = None if found.reason is not None else name_fault(target.partition(".")[2])
        if fault is None:
            return found
        own = self._options.names.own(found.names)
        reason = (
            f"MySQL table {found.full_name} cannot be written to {target}: {fault}; give another "
            f"name: --table-mapping '{own}=…'"
        )
        return replace(found, definition=None, reason=reason)

    def _present_rows(
        self, old: TableSet, tables: Sequence[FollowedTable], all_tables: Sequence[FollowedTable]
    ) -> None:
        """Print a notice of targets that have rows which this sync has not written."""
        own = {table.target for table in old.tables.values()}
        names = names_by_target(all_tables)
        for target in dict.fromkeys(table.target for table in tables):
            if target in own and not names[target] & old.former:
                continue
            if self._scratch is not None and self._present.empty(target, self._scratch.former):
                self._notice(f"{target} was emptied")
            notice = self._present.notice(target, names[target], self._scratch is not None)
            if notice is not None:
                self._notice(notice)

    def _check_comparable(self, tables: Iterable[FollowedTable]) -> None:
        """Raise `TableError` for a target that foreign keys change, and that cannot be compared."""
        for table in tables:
            for key in table.definition.foreign_keys[:1]:
                target = self._options.address(table.target).open()
                why = why_not_reloadable(target)
                if why is not None:
                    raise TableError(
                        f"MySQL table {table.full_name}: its foreign key '{key.name}' has "
                        f"{key.active}, which changes its rows without row events, and "
                        f"{table.target} cannot be compared with them, since {why}; exclude "
                        f"{table.full_name}"
                    )

    def _drop_unselected(self, old: TableSet) -> None:
        """Write a table set without the tables that the options exclude now."""
        kept = []
        for table in old.tables.values():
            if self._options.tables.selects(*table.names):
                kept.append(table)
                continue
            self._notice(
                f"{table.full_name} is not followed any more; the rows in {table.target} stay"
            )
        if len(kept) < len(old.tables):
            self._table_sets.add(kept)

    def _check_targets(self, keys: Mapping[TableNames, Iterable[ForeignKey]]) -> None:
        """Raise `SchemaChangeError` if the options name other targets, or exclude parents.

        Raises `TableError` if the server does not log a database any more.
        """
        followed = self.table_set.by_names()
        for database in {database for database, _ in followed}:
            own = self._options.mysql.of(database, "")
            check_binlog_filter(self._session, self._server, own)
        for names, table in followed.items():
            check_parents(table.full_name, keys.get(names, ()), followed)
            if self._options.target(table.names) != table.target:
                raise SchemaChangeError(
                    f"{table.full_name} is written to {table.target} so far, and the options now "
                    f"name {self._options.target(table.names)}; go on with the old options, or "
                    "start a new sync with another --name"
                )

    def _nothing(self) -> TableError:
        if self._skipped:
            return TableError(
                f"none of the {len(self._skipped)} selected tables of MySQL at "
                f"{self._options.mysql.address} can be followed; the notices say why"
            )
        return self._discovery.nothing()


def needed_zone(
    session: Session, options: MySqlOptions, tables: Iterable[FollowedTable]
) -> str | None:
    """The time zone of the options or the server, if columns of the tables need it."""
    selected = [column for table in tables for column in table.arrow_columns]
    if options.server_time_zone is None and all(one.family != "timestamp" for one, _ in selected):
        return None
    return server_zone(session, options, selected, "--mysql-conf server-time-zone=…")
