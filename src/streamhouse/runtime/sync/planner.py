"""Plans the batches of a sync, and follows statements that alter its tables.

An offset is `{"batch", "now", "of", "source"}`: the number of the batch that ends there, its time
(epoch ms), what the offsets belong to, and the `DatabaseProgress`.
docs/decisions/195-schema-changes-of-a-sync.md says how schema changes are followed.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.connectors.mysql_cdc.binlog.ddl_change import DdlChange, DdlChanges
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
from streamhouse.connectors.mysql_cdc.database.statement_scan import FoundStatement
from streamhouse.connectors.mysql_cdc.database.sync_startup import STARTUP_FILE
from streamhouse.connectors.mysql_cdc.database.table_sets import TableSet, TableSets, TableVersions
from streamhouse.connectors.mysql_cdc.database.tables_planner import BATCH_CHUNKS, TablesPlanner
from streamhouse.connectors.mysql_cdc.relay.files import bounded
from streamhouse.connectors.mysql_cdc.relay.state import BATCH_BYTES, RelayState, RelayView
from streamhouse.durable_files import read_json
from streamhouse.errors import DataLossError
from streamhouse.mysql.connection import Session
from streamhouse.mysql.position import BinlogPosition, KeyJson
from streamhouse.mysql.table import check_server
from streamhouse.runtime.state.batch_logs import next_batch
from streamhouse.runtime.sync.evolution import SchemaEvolution
from streamhouse.runtime.sync.schema_changes import AddedColumns
from streamhouse.runtime.sync.spec import SyncSpec, SyncTaskInput, UnreadTargets, task_groups
from streamhouse.runtime.sync.tables import needed_zone
from streamhouse.source import Offset


class RelayBehindError(Exception):
    """The relay log has not reached a position yet, or has ended."""


class SyncPlanner(TablesPlanner):
    """Plans the batches of one sync; in a Python process of the driver.

    The relay log has the changes of all tables. `SchemaEvolution` decides about statements that
    alter the tables. Without a snapshot, the first tables are followed from now on, or from the
    startup position that the checkpoint has.
    """

    def __init__(self, spec: SyncSpec, folder: Path) -> None:
        """`folder`: of the job, which needs no files of its own there."""
        options, checkpoint = spec.options.mysql, spec.checkpoint
        session = Session(options)
        try:
            server = check_server(session, options)
        except BaseException:
            session.close()
            raise
        super().__init__(options, session, server, spec.relay, spec.options.skips_snapshot)
        self._spec = spec
        self._table_sets, self._versions = TableSets(checkpoint), TableVersions(checkpoint)
        self._startup = read_json(checkpoint / STARTUP_FILE) if options.starts_in_the_past else None
        self._follower = SchemaEvolution(spec.options, AddedColumns(checkpoint), spec.query_id)
        self._discovery = Discovery(session, options, spec.options.tables, compares=server.mariadb)
        self._unread_targets = UnreadTargets(checkpoint)
        self._unread: Collection[str] = ()
        self._planned_log: RelayState | None = None

    def latest_offset(self, start: Offset, max_rows: int | None = None) -> Offset:
        """The end offset of the next batch; `start` if there is nothing to read."""
        before = start.get("source", {})
        # The last batch could not read their rows, as their tables were altered.
        self._unread = self._unread_targets.of(int(start.get("batch", -1)))
        try:
            after = self._next(before)
        except RelayBehindError:
            return start  # If the log has ended, the driver reports the reason.
        if after == before:
            return start
        return {
            "batch": next_batch(start),
            "now": max(time.time_ns() // 1_000_000, int(start.get("now", 0)) + 1),
            "of": self._spec.options.origin,
            "source": after,
        }

    def tasks(self, start: Offset, end: Offset) -> list[SyncTaskInput]:
        """The tasks of a batch; at least one."""
        if start == end:
            return []
        parts = self.parts(start.get("source", {}), end["source"])
        zone = self._table_sets.get(int(end["source"]["table_set"])).zone
        zone = end["source"].get("zone", zone)
        groups = task_groups(self._spec, parts, start, end)
        return [
            SyncTaskInput(number, start, end, tuple(group), self._server, zone)
            for number, group in enumerate(groups)
        ]

    def committed(self, end: Offset) -> None:
        pass

    def _next(self, start: Offset) -> Offset:
        newest = self._table_sets.latest()
        before = DatabaseProgress.from_offset(start)
        if before is None:
            return self._begin(newest)
        moved = self._moved(before, self._relay_log())
        if moved is not None:
            return moved.to_offset()
        before = self._of_newest(before, newest)
        if before.snapshot or before.stale:
            return self._next_rows(start, before, newest)
        if self._options.startup_mode == "snapshot":
            return start
        return self._next_changes(start, before, newest)

    def _of_newest(self, before: DatabaseProgress, newest: TableSet) -> DatabaseProgress:
        """The progress with the tables of the newest table set, without what its batch did."""
        old, tables = self._table_sets.get(before.table_set).tables, newest.tables
        snapshot = {id: key for id, key in before.snapshot.items() if id in tables}
        added = [id for id in tables if id not in old]
        compared = self._compared(added, old.values(), newest)
        targets = {table.target for table in tables.values()}
        unread = Stale(f"{UNKNOWN_STATEMENT} since it was read")
        stale = {**compared, **dict.fromkeys(self._unread, unread), **before.stale}
        return replace(
            before,
            table_set=newest.number,
            snapshot={**snapshot, **dict.fromkeys(added)},
            versions={id: name for id, name in before.versions.items() if id in tables},
            stale={target: entry for target, entry in stale.items() if target in targets},
            gone=frozenset(before.gone & tables.keys()),
            hidden={id: own for id, own in before.hidden.items() if id in tables},
            reloaded={},
            altered=frozenset(),
            statements=(),
            moved=False,
        )

    def _compared(
        self, added: Iterable[str], old: Iterable[FollowedTable], newest: TableSet
    ) -> Mapping[str, Stale]:
        """The targets of new tables that have rows of before; see `SchemaEvolution.compared`."""
        own = {table.target for table in old}
        tables = [newest.tables[id] for id in added]
        targets = {
            table.target
            for table in tables
            if table.target not in own or table.full_name in newest.former
        }
        return self._follower.compared(targets, newest.tables.values()) if targets else {}

    # -- the rows of tables

    def _begin(self, newest: TableSet) -> Offset:
        if self._startup is not None:
            return dict(self._startup)
        snapshot: dict[str, KeyJson | None] = dict.fromkeys(newest.tables)
        position, binlog_state = self._binlog.snapshot_position(self._current)
        self._binlog.check_prepared(position)
        begin = DatabaseProgress(newest.number, position, binlog_state, snapshot)
        if self._skip_snapshot:
            return replace(begin, snapshot={}).to_offset()
        stale = self._compared(newest.tables, (), newest)
        begin = replace(begin, stale=stale)
        if stale or not self._server.mariadb:
            # The next batch compares.
            # On MySQL, the binlog from this position on will correct the SELECTs (`lookback`).
            return begin.to_offset()
        return self._chunked(begin, newest, set(newest.tables))

    def _next_rows(self, start: Offset, before: DatabaseProgress, newest: TableSet) -> Offset:
        """A batch with rows of tables; all earlier statements are followed before it."""
        old = self._table_sets.get(int(start["table_set"])).tables
        added = {id for id in before.snapshot if id not in old}
        position, binlog_state = self._binlog.snapshot_position(self._current)
        view = self._relay_log()
        bound = position
        if before.stale and view is not None:
            bound = bounded(view.folder, before.position, position, BATCH_BYTES)
        before, group = self._next_statements(before, newest, bound)
        if group:
            return self._up_to_statements(before, newest, group, added)
        if bound < position:
            return self._changed_up_to(before, newest, bound, added).to_offset()
        if added:
            self._binlog.check_prepared(position)
        after = replace(
            before,
            position=position,
            binlog_state=binlog_state.following(before.binlog_state, position),
            hidden=_hidden(before, position),
            stale=self._stale_by_foreign_keys(before, newest, position, added),
        )
        if after.stale:
            if before.statements and not self._server.mariadb:
                # On MySQL, the batch of a reload reads the binlog, too, by the columns at its end.
                return after.to_offset()
            reloaded = self._reloaded(after, newest, added)
            if reloaded is not None:
                return reloaded.to_offset()
            # There is a new statement, which is followed first.
            return start if position == before.position else after.to_offset()
        return self._chunked(after, newest, added)

    def _chunked(self, after: DatabaseProgress, newest: TableSet, added: Collection[str]) -> Offset:
        """A batch with chunks of unread tables, the smallest first.

        On MySQL, `lookback` begins here, and the next batch reads the tables in `added`.
        """
        tables = self._versions.all(after, newest)
        ready = set(after.snapshot) - (set() if self._server.mariadb else set(added))
        plan, snapshot, altered = self._planned(
            tables, after.snapshot, ready, self._options.chunk_size
        )
        while_read = Stale(f"{UNKNOWN_STATEMENT} while it was read")
        stale = {tables[id].target: while_read for id in altered}
        begun = [id for id in plan if after.snapshot[id] is None]
        stale |= self._altered_since(tables, after.position, begun)
        for id, table in tables.items():
            if table.target in stale and id in plan:
                del plan[id]
                snapshot[id] = after.snapshot[id]
        end = replace(after, snapshot=snapshot, stale={**after.stale, **stale}).to_offset()
        self._plan = (end, plan)
        return end

    def _altered_since(
        self, tables: Mapping[str, FollowedTable], position: BinlogPosition, begun: Collection[str]
    ) -> dict[str, Stale]:
        """The targets of tables that were altered since they were found."""
        names = {tables[id].names: id for id in begun}
        found = self._discovery.described(names)
        late = self._has_statements(begun, tables, position)
        stale = {}
        for table_names, id in names.items():
            now = found.get(table_names)
            expected = replace(tables[id].definition, hidden_in=())
            if late or now is None or now.definition != expected:
                stale[tables[id].target] = Stale(f"{UNKNOWN_STATEMENT} while it was found")
        return stale

    def _has_statements(
        self, ids: Collection[str], tables: Mapping[str, FollowedTable], start: BinlogPosition
    ) -> bool:
        """Whether there are statements about one of these tables from `start` up to now."""
        now = self._current()
        if now == start or not ids:
            return False
        return bool(self._statements_between([tables[id] for id in ids], start, now))

    def _reloaded(
        self, after: DatabaseProgress, newest: TableSet, added: Collection[str]
    ) -> DatabaseProgress | None:
        """The end of a batch that reloads stale targets; None if no target can be reloaded yet."""
        tables = self._versions.all(after, newest)
        result, rows = after, 0
        for target, stale in after.stale.items():
            own = {id: table for id, table in tables.items() if table.target == target}
            rows += sum(table.rows for table in own.values())
            if result.reloaded and rows > BATCH_CHUNKS * self._options.chunk_size:
                break
            if not self._server.mariadb and not own.keys().isdisjoint(added):
                continue
            found = self._discovery.described({table.names for table in own.values()})
            if self._has_statements(own.keys(), tables, after.position):
                continue
            by_id = {id: found[table.names] for id, table in own.items() if table.names in found}
            prepared = self._follower.prepare(target, stale, own, by_id)
            followed = newest.by_names()
            for table in prepared.tables:
                check_parents(table.full_name, table.definition.foreign_keys, followed)
            # The estimate of the rows alone is no other version.
            versions = {
                table.id: self._versions.add(table)
                for table in prepared.tables
                if table != replace(own[table.id], rows=table.rows)
            }
            texts = [*prepared.texts]
            if stale.statement != FOREIGN_KEY:
                texts.append(f"{target} was compared with MySQL")
            result = replace(
                result,
                zone=self._zone(result, prepared.tables),
                snapshot={id: key for id, key in result.snapshot.items() if id not in own},
                versions={**result.versions, **versions},
                stale={name: entry for name, entry in result.stale.items() if name != target},
                gone=(result.gone - own.keys()) | (own.keys() - by_id.keys()),
                reloaded={**result.reloaded, target: prepared.deletes},
                statements=(*result.statements, *texts),
            )
        return result if result.reloaded else None

    # -- the binlog

    def _next_changes(self, start: Offset, before: DatabaseProgress, newest: TableSet) -> Offset:
        view = self._relay_log()
        state = None if view is None else view.state()
        if view is None or state is None:
            return start  # The reader of the binlog has ended; the driver reports the reason.
        tables = [table.definition for table in newest.tables.values()]
        self._planned_log = state
        end = self._relayed.end(view, state, before.position, tables, None)
        if end == before.position:
            return start
        before, group = self._next_statements(before, newest, end)
        if group:
            return self._up_to_statements(before, newest, group)
        return self._changed_up_to(before, newest, end).to_offset()

    def _changed_up_to(
        self,
        before: DatabaseProgress,
        newest: TableSet,
        end: BinlogPosition,
        added: Collection[str] = (),
    ) -> DatabaseProgress:
        """The end of a batch of changes; targets that foreign keys have changed become stale.

        No change in the batch is written to these: their rows of before are compared.
        """
        stale = self._stale_by_foreign_keys(before, newest, end, added)
        return replace(self._advanced(before, end), stale=stale)

    def _stale_by_foreign_keys(
        self,
        before: DatabaseProgress,
        newest: TableSet,
        end: BinlogPosition,
        added: Collection[str],
    ) -> dict[str, Stale]:
        tables = self._versions.all(before, newest)
        keys = any(table.definition.foreign_keys for table in tables.values())
        if not keys or end == before.position:
            return dict(before.stale)
        changed = self._changed(before, end, self._relay_log())
        found = stale_by_foreign_keys(tables, before, end, changed, added, self._captured_table)
        return {**found, **before.stale}

    def _advanced(self, before: DatabaseProgress, end: BinlogPosition) -> DatabaseProgress:
        state = self._planned_log
        if state is None or state.end != end:
            # Only the log that ends there has its GTIDs.
            view = self._relay_log()
            state = None if view is None else view.state()
        if state is None:
            raise DataLossError(f"the reader of the binlog has ended before {end}")
        binlog_state = self._binlog.completed(state.binlog_state_at(end), end)
        binlog_state = binlog_state.following(before.binlog_state, end)
        return replace(before, position=end, binlog_state=binlog_state, hidden=_hidden(before, end))

    # -- statements

    def _statements_between(
        self, tables: Iterable[FollowedTable], start: BinlogPosition, end: BinlogPosition
    ) -> list[FoundStatement]:
        """The statements about tables.

        Raises `RelayBehindError` if the relay log does not reach `end` within 10 s.
        """
        view = self._relay_log()
        if view is None or not view.reaches(end):
            raise RelayBehindError
        return self._statements.between(tables, start, end)

    def _next_statements(
        self, before: DatabaseProgress, newest: TableSet, end: BinlogPosition
    ) -> tuple[DatabaseProgress, list[FoundStatement]]:
        """The next group of statements up to `end` at which a batch has to end; [] if none.

        Follows statements that are only about stale targets, which need no batches of their own;
        the returned progress has their consequences.
        """
        tables, start = self._versions.all(before, newest), before.position
        while True:
            found = self._statements_between(tables.values(), start, end)
            group = [event for event in found if event.before == found[0].before]
            if not group or not before.stale:
                return before, group
            effects, hidden = self._effects(tables, before.gone, group)
            if any(tables[id].target not in before.stale for id in effects):
                return before, group
            followed = self._follower.follow(tables, before, effects)
            start = group[0].after
            before = replace(
                before,
                hidden={**before.hidden, **hidden},
                stale={**altered_parents(tables, effects), **before.stale, **followed.stale},
                statements=(*before.statements, *followed.texts),
            )
            if hidden:
                tables = self._versions.all(before, newest)

    def _up_to_statements(
        self,
        before: DatabaseProgress,
        newest: TableSet,
        group: Sequence[FoundStatement],
        added: Collection[str] = (),
    ) -> Offset:
        """A batch that ends before statements about tables, or that consists of them."""
        if before.position < group[0].before:
            return self._changed_up_to(before, newest, group[0].before, added).to_offset()
        tables = self._versions.all(before, newest)
        effects, hidden = self._effects(tables, before.gone, group)
        followed = self._follower.follow(tables, before, effects)
        before = replace(before, hidden={**before.hidden, **hidden})
        versions = {table.id: self._versions.add(table) for table in followed.tables}
        after = replace(
            self._advanced(before, group[0].after),
            versions={**before.versions, **versions},
            stale={**altered_parents(tables, effects), **before.stale, **followed.stale},
            gone=before.gone | followed.gone,
            zone=self._zone(before, followed.tables),
            altered=frozenset(effects),
            statements=(*before.statements, *followed.texts),
        )
        return after.to_offset()

    def _effects(
        self,
        tables: Mapping[str, FollowedTable],
        gone: Collection[str],
        group: Iterable[FoundStatement],
    ) -> tuple[dict[str, DdlChange], dict[str, tuple[tuple[str, int], ...]]]:
        """The effects of statements, by the ids of tables.

        The second result has, for tables for which that changes, the sessions in which a temporary
        table has the table's name afterwards.
        """
        by_names = {table.full_name: table for table in tables.values()}
        found: dict[str, DdlChange] = {}
        hidden: dict[str, tuple[tuple[str, int], ...]] = {}
        for event in group:
            table = by_names[event.name]
            before = hidden.get(table.id, table.definition.hidden_in)
            table = table.hidden_in(before)
            ddls = DdlChanges(self._captured_table(table), table.definition)
            ddl = ddls.of(event.statement, event.after, table.id not in gone)
            if ddl is not None:
                found[table.id] = ddl
            if ddls.hidden_in != before:
                hidden[table.id] = ddls.hidden_in
        return found, hidden

    # -- the server

    def _zone(self, progress: DatabaseProgress, altered: Collection[FollowedTable]) -> str | None:
        """The server's time zone, if columns of altered tables need it."""
        return progress.zone or needed_zone(self._session, self._options, altered)

    def tables_of(self, progress: DatabaseProgress) -> Mapping[str, FollowedTable]:
        newest = self._table_sets.latest().tables
        tables = self._table_sets.get(progress.table_set).tables
        return {id: table for id, table in tables.items() if id in newest}

    def _relay_log(self) -> RelayView | None:
        return log_view(self._relay)

    def _view(self, before: DatabaseProgress) -> RelayView | None:
        return self._relay_log()

    def _captured_table(self, table: FollowedTable) -> CapturedTable:
        return table.captured_table(self._options, self._server, self._relay)

    def _at(self, progress: DatabaseProgress, table: FollowedTable) -> FollowedTable:
        return self._versions.at(progress, table)


def _hidden(
    before: DatabaseProgress, end: BinlogPosition
) -> dict[str, tuple[tuple[str, int], ...]]:
    """The sessions with temporary tables at the end of a batch: those of its binlog file."""
    kept = {
        id: tuple((file, thread) for file, thread in own if file == end.file)
        for id, own in before.hidden.items()
    }
    return {id: own for id, own in kept.items() if own}
