"""Plans the batches of a sync, and follows statements that alter its tables.

An offset is `{"batch", "now", "of", "source"}`: the number of the batch that ends there, its time
(epoch ms), what the offsets belong to, and the `DatabaseProgress`.
docs/decisions/195-schema-changes-of-a-sync.md says how schema changes are followed.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from streamhouse.connectors.mysql_cdc.binlog.statements import DdlChange, DdlChanges
from streamhouse.connectors.mysql_cdc.change_reader import log_view
from streamhouse.connectors.mysql_cdc.database.discovery import Discovery
from streamhouse.connectors.mysql_cdc.database.followed_table import FollowedTable
from streamhouse.connectors.mysql_cdc.database.foreign_key_changes import (
    altered_parents,
    check_parents,
    stale_by_foreign_keys,
)
from streamhouse.connectors.mysql_cdc.database.progress import (
    FOREIGN_KEY,
    UNKNOWN_STATEMENT,
    DatabaseProgress,
    Stale,
)
from streamhouse.connectors.mysql_cdc.database.statement_scan import FoundStatement, absent_tables
from streamhouse.connectors.mysql_cdc.database.table_sets import TableSets
from streamhouse.connectors.mysql_cdc.database.tables_planner import Tables, TablesPlanner
from streamhouse.errors import AlteredTableError
from streamhouse.mysql.connection import Session
from streamhouse.mysql.position import BinlogPosition, BinlogState
from streamhouse.runtime.query_source import source_offset
from streamhouse.runtime.state.batch_logs import next_batch, next_time
from streamhouse.runtime.sync.evolution import SchemaEvolution
from streamhouse.runtime.sync.spec import SyncSpec, SyncTaskInput, task_groups
from streamhouse.runtime.sync.tables import needed_zone
from streamhouse.source import Lag, Offset


@dataclass(frozen=True)
class TableState:
    """One followed table: rows since the start of this run, and how far it is behind.

    `estimate`: the server's estimate of its rows. `lag_s` is None until the snapshot is `complete`.
    """

    table: str
    target: str
    complete: bool
    snapshot_rows: int
    estimate: int
    changes: int
    lag_s: float | None


class SyncPlanner(TablesPlanner):
    """Plans the batches of one sync; in a Python process of the driver.

    The relay log has the changes of all tables. `SchemaEvolution` decides about statements that
    alter the tables. Without a snapshot, the first tables are followed from now on, or from their
    startup position, except those that were created later: these are read at that statement.
    """

    batch_chunks = 64

    def __init__(
        self,
        spec: SyncSpec,
        folder: Path | None = None,
        find_tables: Callable[[], int] = lambda: 0,
    ) -> None:
        """`folder`: of the job, which needs no files of its own there.

        `find_tables`: looks for new tables, and returns how many it has found.
        """
        options, server, checkpoint = spec.options.mysql, spec.server, spec.checkpoint
        session = Session(options)
        super().__init__(options, session, server, spec.relay)
        self._spec = spec
        self._table_sets = TableSets(checkpoint)
        self._follower = SchemaEvolution(spec.options, checkpoint, spec.query_id)
        self._discovery = Discovery.of_sync(session, server, options, spec.options.tables)
        self._tables: tuple[object, Tables] = (None, {})
        self._find_tables = find_tables
        self._snapshot_rows, self._changes = Counter[str](), Counter[str]()

    def latest_offset(self, start: Offset, max_rows: int | None = None) -> Offset:
        """The end offset of the next batch; `start` if there is nothing to read."""
        before = source_offset(start)
        after = self.next_offset(before)
        if after == before:
            return start
        return {
            "batch": next_batch(start),
            "now": next_time(start),
            "of": self._spec.options.origin,
            "source": after,
        }

    def tasks(self, start: Offset, end: Offset) -> list[SyncTaskInput]:
        """The tasks of a batch; at least one."""
        if start == end:
            return []
        before = source_offset(start)
        # The first batch of a sync without a snapshot has no rows.
        reads = before or self._options.has_snapshot
        parts = self.parts(before, end["source"]) if reads else []
        zone = self._table_sets.get(int(end["source"]["table_set"])).zone
        zone = end["source"].get("zone", zone)
        groups = task_groups(self._spec, parts, start, end)
        return [
            SyncTaskInput(number, start, end, tuple(group), zone)
            for number, group in enumerate(groups)
        ]

    def committed(self, end: Offset) -> None:
        pass

    # -- progress, in the driver

    def count(self, snapshot: Mapping[str, int], changes: Mapping[str, int]) -> None:
        """Count the rows of a committed batch, by the ids of their tables."""
        self._snapshot_rows.update(snapshot)
        self._changes.update(changes)

    def caught_up(self, offset: Offset) -> bool:
        return self.has_read_all(source_offset(offset)) and not self._find_tables()

    def lag(self, start: Offset) -> Lag:
        return self.lag_at(progress_of(start))

    def rows_left(self, start: Offset) -> int | None:
        """None: a sync reports the progress of its snapshots by itself."""
        return None

    def states(self, start: Offset) -> list[TableState]:
        """The state of each followed table after a batch, in the order of their names."""
        progress, silent_s = progress_of(start), log_view(self._relay).silent_s()
        complete: set[str] = set()
        if progress is not None:
            unread = {table.names for table in self._unread_tables(progress)}
            tables = self.tables_of(progress).values()
            complete = {table.id for table in tables if table.names not in unread}
        return [
            TableState(
                table.full_name,
                table.target,
                table.id in complete,
                self._snapshot_rows[table.id],
                table.rows,
                self._changes[table.id],
                max(self._unread[table.full_name].seconds, silent_s)
                if table.id in complete
                else None,
            )
            for table in sorted(self.first_tables(), key=lambda table: table.full_name)
        ]

    # -- the tables

    def tables_of(self, progress: DatabaseProgress) -> Tables:
        newest = self._table_sets.latest()
        key = (newest.number, progress.table_set, progress.versions)
        if self._tables[0] != key:
            tables = self._table_sets.get(progress.table_set).tables
            kept = {id: progress.at(table) for id, table in tables.items() if id in newest.tables}
            self._tables = key, kept
        return self._tables[1]

    def first_tables(self) -> Collection[FollowedTable]:
        return self._table_sets.latest().tables.values()

    def _newest(self, before: DatabaseProgress) -> tuple[DatabaseProgress, Tables, Collection[str]]:
        newest = self._table_sets.latest()
        old, tables = self._table_sets.get(before.table_set).tables, newest.tables
        added = [id for id in tables if id not in old]
        compared = self._compared(added, before.table_set)
        targets = {table.target for table in tables.values()}
        versions = before.versions.items()
        unread = self._table_sets.unread_since(before.table_set)
        again = Stale(f"{UNKNOWN_STATEMENT} since it was read")
        stale = {**compared, **dict.fromkeys(unread, again), **before.stale}
        after = replace(
            before,
            table_set=newest.number,
            versions={id: table for id, table in versions if table != tables.get(id, table)},
            stale={target: entry for target, entry in stale.items() if target in targets},
            gone=frozenset(before.gone & tables.keys()),
        )
        return after, tables, added

    def _compared(self, added: Collection[str], table_set: int) -> Mapping[str, Stale]:
        """The targets of new tables that have rows of before; see `SchemaEvolution.compared`.

        `table_set`: the number of the set that did not have them.
        """
        newest = self._table_sets.latest()
        own = {table.target for table in self._table_sets.get(table_set).tables.values()}
        tables = [newest.tables[id] for id in added]
        targets = {
            table.target
            for table in tables
            if table.target not in own or table.full_name in newest.former
        }
        return self._follower.compared(targets, newest.tables.values()) if targets else {}

    # -- the rows of tables

    def _first(self, position: BinlogPosition, state: BinlogState) -> DatabaseProgress:
        return DatabaseProgress(self._table_sets.latest_number(), position, state)

    def _begin(self, max_rows: int | None) -> DatabaseProgress:
        begin = super()._begin(max_rows)
        if not self._options.starts_in_the_past:
            return begin
        tables, end = self.first_tables(), self._server.position(self._session)
        found = self._statements.between(tables, begin.position, end)
        return replace(begin, gone=absent_tables(begin, tables, found, self._options))

    def _unreadable(
        self,
        after: DatabaseProgress,
        plan: Collection[str],
        altered: Mapping[str, AlteredTableError],
    ) -> Mapping[str, Stale]:
        tables = self.tables_of(after)
        while_read = Stale(f"{UNKNOWN_STATEMENT} while it was read")
        stale = {tables[id].target: while_read for id in altered}
        begun = {tables[id].names: id for id in plan if after.snapshot[id] is None}
        found = self._discovery.described(begun)
        late = self._has_statements([tables[id] for id in begun.values()], after.position)
        for names, id in begun.items():
            now = found.get(names)
            expected = replace(tables[id].definition, hidden_in=())
            if late or now is None or now.definition != expected:
                stale[tables[id].target] = Stale(f"{UNKNOWN_STATEMENT} while it was found")
        return stale

    def _has_statements(self, tables: Collection[FollowedTable], start: BinlogPosition) -> bool:
        """Whether there are statements about one of these tables from `start` up to now."""
        if not tables:
            return False
        return bool(self._statements.between(tables, start, self._current(), wait=True))

    def _reloaded(self, after: DatabaseProgress) -> DatabaseProgress | None:
        tables = self.tables_of(after)
        names = {table.names for table in tables.values()}
        result, rows = after, 0
        for target, stale in after.stale.items():
            own = {id: table for id, table in tables.items() if table.target == target}
            rows += sum(table.rows for table in own.values())
            if result.reloaded and rows > self.batch_chunks * self._options.chunk_size:
                break
            found = self._discovery.described({table.names for table in own.values()})
            if self._has_statements(own.values(), after.position):
                continue
            by_id = {id: found[table.names] for id, table in own.items() if table.names in found}
            followed, deletes = self._follower.prepare(target, stale, own, by_id)
            for table in followed.tables:
                check_parents(table.full_name, table.definition.foreign_keys, names)
            versions = {table.id: table for table in followed.tables if table != own[table.id]}
            texts = [*followed.texts, *self._follower.targets.copy_comments(by_id.values())]
            if stale.statement != FOREIGN_KEY:
                texts.append(f"{target} was compared with MySQL")
            result = replace(
                result,
                zone=self._zone(result, followed.tables),
                snapshot={id: key for id, key in result.snapshot.items() if id not in own},
                rows={id: count for id, count in result.rows.items() if id not in own},
                versions={**result.versions, **versions},
                stale={name: entry for name, entry in result.stale.items() if name != target},
                gone=(result.gone - own.keys()) | (own.keys() - by_id.keys()),
                reloaded={**result.reloaded, target: deletes},
                statements=(*result.statements, *texts),
            )
        return result if result.reloaded else None

    # -- the binlog

    def _after_changes(
        self, before: DatabaseProgress, after: DatabaseProgress, added: Collection[str]
    ) -> DatabaseProgress:
        """Targets that foreign keys have changed become stale: no change is written to these."""
        tables, end = self.tables_of(before), after.position
        keys = any(table.definition.foreign_keys for table in tables.values())
        if not keys or end == before.position:
            return after
        changed = self._changed(before, end, self.relay_log(before))
        found = stale_by_foreign_keys(tables, before, end, changed, added, self._captured_table)
        return replace(after, stale={**found, **before.stale})

    # -- statements

    def _next_statements(
        self, before: DatabaseProgress, end: BinlogPosition
    ) -> tuple[DatabaseProgress, list[FoundStatement]]:
        """The next group, after statements that are only about stale targets."""
        start = before.position
        while True:
            _, group = super()._next_statements(replace(before, position=start), end)
            if not group or not before.stale:
                return before, group
            tables = self.tables_of(before)
            effects, tables = self._effects(tables, before.gone, group)
            if any(tables[id].target not in before.stale for id in effects):
                return before, group
            before, start = self._altered(before, effects, tables), group[0].after

    def _followed(
        self, before: DatabaseProgress, group: Sequence[FoundStatement]
    ) -> DatabaseProgress:
        effects, tables = self._effects(self.tables_of(before), before.gone, group)
        # Only a transaction with statements about temporary tables also has changes of other rows.
        up_to = self._advanced if effects else self._changed_up_to
        after = up_to(self._altered(before, effects, tables), group[0].after)
        names = {table.names for id, table in self.tables_of(after).items() if id in effects}
        texts = self._follower.targets.copy_comments(self._discovery.described(names).values())
        statements = (*after.statements, *texts)
        return replace(after, altered=frozenset(effects), statements=statements)

    def _altered(
        self,
        before: DatabaseProgress,
        effects: Mapping[str, DdlChange],
        tables: Tables,
    ) -> DatabaseProgress:
        """The progress with the consequences of statements; alters the targets."""
        old = self.tables_of(before)
        followed = self._follower.follow(tables, before, effects)
        hidden = {id: table for id, table in tables.items() if table is not old[id]}
        versions = {table.id: table for table in followed.tables}
        return replace(
            before,
            versions={**before.versions, **hidden, **versions},
            stale={**altered_parents(tables, effects), **before.stale, **followed.stale},
            gone=before.gone | followed.gone,
            zone=self._zone(before, followed.tables),
            statements=(*before.statements, *followed.texts),
        )

    def _effects(
        self,
        tables: Tables,
        gone: Collection[str],
        group: Iterable[FoundStatement],
    ) -> tuple[dict[str, DdlChange], Tables]:
        """The effects of statements, by the ids of tables.

        Also returns the tables with the sessions in which temporary tables have their names then.
        """
        ids = {table.full_name: id for id, table in tables.items()}
        found, after = dict[str, DdlChange](), dict(tables)
        for event in group:
            id = ids[event.name]
            ddls = DdlChanges(self._captured_table(after[id]), after[id].definition)
            ddl = ddls.of(event.statement, event.after, id not in gone)
            if ddl is not None:
                found[id] = ddl
            if ddls.known is not None and ddls.known != after[id].definition:
                after[id] = replace(after[id], definition=ddls.known)
        return found, after

    # -- the server

    def _zone(self, progress: DatabaseProgress, altered: Collection[FollowedTable]) -> str | None:
        """The server's time zone, if columns of altered tables need it."""
        return progress.zone or needed_zone(self._session, self._options, altered)


def progress_of(offset: Offset) -> DatabaseProgress | None:
    """How far a batch has read the databases; None before the first."""
    return DatabaseProgress.from_offset(source_offset(offset))
