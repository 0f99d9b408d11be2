"""The materialized views of a session: creates their tables, and plans their queries.

A view reads sources that are no Paimon tables through tables of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streamhouse.close_matches import nearest
from streamhouse.errors import OptionError, StreamhouseError, TableError, UnsupportedSqlError
from streamhouse.operators.planning.view_plan import ViewPlan, plan_view
from streamhouse.paimon.catalog.draft_table import altered
from streamhouse.sql.plan import CURRENT, AsOf, Name, ResolverAround, TableInfo
from streamhouse.sql.schema_changes import SchemaChange, column_changes
from streamhouse.sql.statements.create_view import with_full_names
from streamhouse.sql.statements.watermark import IDLE_OPTION, by_split
from streamhouse.sql.syntax import Insert, Query, TextPosition
from streamhouse.sql.text import ticked
from streamhouse.sql.views.statement import AlterMaterializedView, CreateMaterializedView
from streamhouse.sql.views.stored_view import HIDDEN_KEY, NEXT, StoredView, keeps_result

if TYPE_CHECKING:
    from streamhouse.runtime.session.session import Session

_OPTIONS = {"bucket": "1", "changelog-producer": "input"}
"""Options of a view's table, unless WITH sets them: its changelog is exact and visible at once."""


class ViewInputTables(ResolverAround):
    """Resolves names for a view: a table of a source stands for `<view>__in_<name>`.

    A continuous INSERT (`create`) fills that table, so that the view can read the source as of any
    snapshot.
    """

    def __init__(self, session: Session, view: Name) -> None:
        super().__init__(session)
        self._session, self.owner = session, view
        self._inputs: dict[Name, TableInfo] = {}
        """The input table of each source, by the source's name."""

    def create(self, position: TextPosition) -> tuple[Insert, ...]:
        """Create the input tables of all sources; returns the statements that fill them."""
        return tuple(self._feed(name, table, position) for name, table in self._inputs.items())

    def stored_name(self, name: Name) -> Name:
        """The name that the stored definition has for a name of the query.

        Without the view's own catalog, which may have another name in another script.
        """
        full = self._session.full(name)
        if self._session.is_temporary(full):
            full = self.table(name).name
        return full[1:] if full[0] == self.owner[0] else full

    def table(self, name: Name, as_of: AsOf = CURRENT) -> TableInfo:
        info = self._session.table(name, as_of)
        if info.connector == "paimon":
            return info
        if info.name not in self._inputs:
            self._inputs[info.name] = self._input(info)
        return self._inputs[info.name]

    def _input(self, source: TableInfo) -> TableInfo:
        catalog, database, view = self.owner
        if not source.capabilities.stream:
            raise UnsupportedSqlError(
                f"view {database}.{view}: {source.name[-1]} is a {source.connector} table, whose "
                "changes cannot be followed; INSERT its rows INTO a Paimon table, and read that one"
            )
        if source.changelog and not source.primary_key:
            raise TableError(
                f"view {database}.{view}: the rows of {source.name[-1]} change, so a view needs a "
                "key to keep them; declare it with PRIMARY KEY (…) NOT ENFORCED"
            )
        columns = tuple(replace(c, metadata=None, virtual=False) for c in source.columns)
        if source.capabilities.upserts:  # A delete has only the key.
            key = source.primary_key
            columns = tuple(replace(c, nullable=c.name not in key) for c in columns)
        options = {"bucket": "1"} if source.primary_key else {}
        if source.watermark is not None and source.watermark.idle_timeout:
            options[IDLE_OPTION] = source.watermark.idle_timeout
        return TableInfo(
            (catalog, database, f"{view}__in_{source.name[-1]}"), columns, source.computed,
            source.primary_key, (), options, watermark=by_split(source),
        )  # fmt: skip

    def _feed(self, source: Name, table: TableInfo, position: TextPosition) -> Insert:
        self._session.tables.keep(table)
        listed = ", ".join(ticked(column.name) for column in table.columns)
        text = f"SELECT {listed} FROM {'.'.join(map(ticked, source))}"
        return Insert(position, text, table.name, (), Query(text, TextPosition(1, 1)))


@dataclass(frozen=True)
class DefinedView:
    """A view of the script: its full name, its definition and its plan.

    `feeds` fill the tables through which the view reads sources that are no Paimon tables.
    """

    name: Name
    stored: StoredView
    plan: ViewPlan
    feeds: tuple[Insert, ...] = ()


class MaterializedViews:
    """Creates and finds the materialized views of a session's warehouses."""

    def __init__(self, session: Session) -> None:
        self._session, self._catalogs = session, session.catalogs
        self._defined: dict[Name, DefinedView] = {}
        self.reserved: set[Name] = set()
        """Names that no other result of the script may have."""

    def create(self, statement: CreateMaterializedView, at_once: bool = False) -> bool:
        """Run CREATE MATERIALIZED VIEW: create its table (True), or find it, defined alike.

        With OR REPLACE, another query becomes the `next` one of the view, which goes on with its
        own until that is computed (decision 359); `at_once`: it takes over now. Raises `TableError`
        if the table exists and is no view, a view of another query without OR REPLACE, or if it
        cannot have the columns of the new query.
        """
        full = self._session.full(statement.name)
        exists = self._session.has_table(full)
        if statement.altered:
            before = self.existing(full)
            statement = replace(statement, freshness_s=before.freshness_s, full=before.full)
        self._defined[full] = self._create_or_find(statement, full, exists, at_once)
        return not exists

    def _create_or_find(
        self, statement: CreateMaterializedView, full: Name, exists: bool, at_once: bool
    ) -> DefinedView:
        name = ".".join(full[1:])
        if self._session.view(full) is not None:
            raise TableError(f"view {name}: there is a view of that name; DROP VIEW it first")
        inputs = ViewInputTables(self._session, full)
        text = with_full_names(statement.query, inputs.stored_name)
        stored = StoredView(text, statement.freshness_s, statement.full, zone=inputs.zone)
        key = self._table(full).primary_key if exists else ()
        plan = plan_view(statement.query, inputs, statement.columns, statement.primary_key, key)
        feeds = inputs.create(statement.position)
        if not exists:
            self._create(statement, full, stored, plan)
            return DefinedView(full, stored, plan, feeds)
        before = self.find(full)
        if before is None:
            raise TableError(f"'{name}' is a table; give the view another name, or DROP TABLE it")
        stored = replace(stored, suspended=before.suspended)
        new = DefinedView(full, stored, plan, feeds)
        if before.same_query(stored) and self._same_columns(full, plan):
            self.withdraw_next(full)
            self._store(full, before, stored)
            return new
        if statement.replace:
            return self._replaced(statement, before, new, at_once)
        if statement.if_not_exists:
            view = self._planned(full, before)
            self._session.notice(
                f"view {name} exists with another query, which goes on; write CREATE OR REPLACE "
                "MATERIALIZED VIEW to change it"
            )
            return view
        raise TableError(
            f"view {name} exists with another query or another time zone, or its query had "
            "other columns; write CREATE OR REPLACE MATERIALIZED VIEW, or give the view "
            "another name"
        )

    def _replaced(
        self, statement: CreateMaterializedView, before: StoredView, new: DefinedView, at_once: bool
    ) -> DefinedView:
        """Make a definition the next one of its view; returns that which goes on until then.

        It takes over at once if nothing follows the tables of the view until then: the view has no
        rows yet, or its query cannot be planned any more, or each run refreshes it once.
        """
        full, stored, following = new.name, new.stored, next_name(new.name)
        self._check_columns(full, new.plan, statement.partitioned_by)
        goes_on = None
        if not (
            at_once or stored.full or before.full or self._stored(full).latest_snapshot_id() is None
        ):
            with suppress(StreamhouseError):
                goes_on = self._planned(full, before)
        pending = self.find(following)
        if goes_on is not None and pending is not None and pending.same_query(stored):
            self._defined[following] = replace(new, name=following)
            return goes_on
        self.withdraw_next(full)
        if goes_on is None:
            self.take_over(new)
            return new
        self._create(statement, following, stored, new.plan)
        self._defined[following] = replace(new, name=following)
        self._session.notice(
            f"{'.'.join(full[1:])}: goes on with its former query until the pipeline that runs "
            "it has computed the new one, or REFRESH does; ROLLBACK withdraws the new one"
        )
        return goes_on

    def next(self, full: Name) -> DefinedView | None:
        """The next definition of a view, which is computed in a table of its own; None: none."""
        name = next_name(full)
        return self.defined(name) if self.find(name) is not None else None

    def withdraw_next(self, full: Name) -> None:
        """Drop the table of the next query of a view, if it has one."""
        name = next_name(full)
        if self.find(name) is not None:
            self._catalogs.warehouse(full[0]).drop_table(full[1], name[2])
            self._defined.pop(name, None)

    def gaining(self, column: str) -> str | None:
        """Which view of the script gets a column with its next query; for error messages."""
        for name, defined in self._defined.items():
            if name[2].endswith(NEXT) and column in [each.name for each in defined.plan.columns]:
                view = name[2].removesuffix(NEXT)
                return f"view {view} gets it with its new query; run that statement alone first"
        return None

    def take_over(self, new: DefinedView) -> None:
        """Store a definition and its columns as those of its view, in one version of the schema."""
        before = self.existing(new.name)
        columns = column_changes(self._table(new.name).columns, new.plan.columns)
        self._store(new.name, before, replace(new.stored, suspended=before.suspended), *columns)
        self._defined[new.name] = new

    def _check_columns(self, full: Name, plan: ViewPlan, partitioned_by: Sequence[str]) -> None:
        """Raise `TableError` if the table of a view cannot be altered to have a plan's rows."""
        table = self._table(full)
        problem = ""
        if table.primary_key != plan.key:
            old, new = map(", ".join, (table.primary_key, plan.key))
            problem = f"the key of its table is ({old}), and that of the new query ({new})"
        elif partitioned_by and tuple(partitioned_by) != table.partitioned_by:
            now = ", ".join(table.partitioned_by) or "not partitioned"
            problem = f"its partitions cannot change; they are: {now}"
        else:
            try:
                altered(self._stored(full), list(column_changes(table.columns, plan.columns)))
            except StreamhouseError as error:
                problem = str(error)
        dropped = {column.name for column in table.columns} - {c.name for c in plan.columns}
        for reader in self.listed(*full[:2]) if dropped else ():
            with suppress(StreamhouseError):
                scans = self.defined((*full[:2], reader)).plan.query.scans
                read = {name for each in scans if each.table.name == full for name in each.columns}
                if read & dropped:
                    names = ", ".join(sorted(read & dropped))
                    problem = f"view {reader} reads {names}, which it drops; change that view first"
        if problem:
            raise TableError(
                f"view {'.'.join(full[1:])} cannot get this query: {problem}. Nothing has changed; "
                "CAST its columns, give it a view of another name, or DROP MATERIALIZED VIEW first"
            )

    def unused(self, full: Name) -> Name:
        """The name, or the same with a number if the script has such a view, or reserved it."""
        number, name = 1, full
        while name in self._defined or name in self.reserved:
            number += 1
            name = (*full[:2], f"{full[2]}_{number}")
        return name

    def alter(self, statement: AlterMaterializedView) -> None:
        """Run SUSPEND, RESUME, SET FRESHNESS or ROLLBACK."""
        full = self._session.full(statement.name)
        before = self.existing(full)
        if statement.rollback:
            self._roll_back(full, before, statement.position)
            return
        stored = before
        if statement.suspended is not None:
            stored = replace(stored, suspended=statement.suspended)
        if statement.freshness_s is not None:
            stored = replace(stored, freshness_s=statement.freshness_s)
        self._store(full, before, stored)

    def _roll_back(self, full: Name, before: StoredView, position: TextPosition) -> None:
        """Withdraw the next query of a view; without one, its former query becomes the next."""
        pending = self.find(next_name(full))
        if pending is not None and not pending.same_query(before):
            self.withdraw_next(full)
            return
        table = self._catalogs.warehouse(full[0]).table(_table_of(full))
        for version in map(table.find_version, range(table.schema_id - 1, -1, -1)):
            former = None if version is None else StoredView.of(version.options)
            if version is not None and former is not None and not former.same_query(before):
                stored = replace(before, query=former.query, zone=former.zone)
                view = self._planned(full, stored, _table_info(full, version))
                text = Query(stored.query, position)
                statement = CreateMaterializedView(position, stored.query, full, text)
                self._defined[full] = self._replaced(statement, before, view, at_once=False)
                return
        raise TableError(
            f"view {'.'.join(full[1:])} has had no other query; ROLLBACK goes back to a former one"
        )

    def defined(self, full: Name) -> DefinedView:
        """A view as the script has defined it; else by its stored definition."""
        stored = self.existing(full)
        known = self._defined.get(full)
        if known is not None and known.stored.same_query(stored):
            return replace(known, stored=stored)
        return self._planned(full, stored)

    def existing(self, full: Name) -> StoredView:
        """The view of a full name; `TableError` if there is none."""
        stored = self.find(full)
        if stored is None:
            close = nearest(full[2], self.listed(full[0], full[1]))
            raise TableError(
                f"there is no materialized view '{full[2]}' in database '{full[1]}'; {close}"
            )
        return stored

    def find(self, full: Name) -> StoredView | None:
        """The view of a full name; None for an ordinary table, and without a table."""
        if not self._session.has_table(full):
            return None
        return StoredView.of(self._table(full).options)

    def drop(self, full: Name, if_exists: bool) -> bool:
        """Drop a view with its table; `TableError` for an ordinary table."""
        if self._session.has_table(full) and self.find(full) is None:
            raise TableError(f"'{'.'.join(full[1:])}' is no materialized view; write DROP TABLE")
        self.withdraw_next(full)
        return self._catalogs.warehouse(full[0]).drop_table(full[1], full[2], if_exists)

    def listed(self, catalog: str, database: str) -> list[str]:
        """The names of a database's materialized views, sorted; without their next queries."""
        tables = self._catalogs.warehouse(catalog).tables(database)
        views = [name for name in tables if self.find((catalog, database, name)) is not None]
        return [name for name in views if name.removesuffix(NEXT) not in set(views) - {name}]

    def _create(
        self, statement: CreateMaterializedView, full: Name, stored: StoredView, plan: ViewPlan
    ) -> None:
        warehouse = self._catalogs.warehouse(full[0])
        options = {**_OPTIONS, **self._catalogs.table_options(full[0]), **statement.options}
        for column in statement.partitioned_by:
            if column not in plan.key:
                key = ", ".join(["…"] if plan.hidden else plan.key)
                raise TableError(
                    f"view {'.'.join(full[1:])}: PARTITIONED BY ({column}) needs the column in the "
                    f"key; if it is never null, declare PRIMARY KEY ({key}, {column}) NOT ENFORCED"
                )
        table = TableInfo(full, plan.columns, (), plan.key, statement.partitioned_by, dict(options))
        if not keeps_result(table):
            raise OptionError(
                f"view {'.'.join(full[1:])}: an option of WITH lets the table merge or hide rows, "
                "so it would not have those of the query; leave out the options for merging and "
                "deletion vectors"
            )
        warehouse.create_table(
            full[1], full[2], plan.columns, plan.key, statement.partitioned_by,
            {**options, **stored.options}, statement.comment,
        )  # fmt: skip

    def _store(
        self, full: Name, before: StoredView, stored: StoredView, *columns: SchemaChange
    ) -> None:
        changed = [*columns, *before.option_changes(stored)]
        if changed:
            self._catalogs.warehouse(full[0]).alter_table(_table_of(full), *changed)

    def _same_columns(self, full: Name, plan: ViewPlan) -> bool:
        """Whether the table of a view can have the rows of a plan."""
        table = self._table(full)
        if table.primary_key != plan.key or len(table.columns) != len(plan.columns):
            return False
        return all(
            (stored.name, stored.type) == (column.name, column.type)
            and stored.nullable >= column.nullable
            for stored, column in zip(table.columns, plan.columns, strict=True)
        )

    def _planned(
        self, full: Name, stored: StoredView, former: TableInfo | None = None
    ) -> DefinedView:
        """A view by a stored definition, or a former one, when its table was the `former` one."""
        start = TextPosition(1, 1)
        text = with_full_names(Query(stored.query, start), lambda name: (full[0], *name)[-3:])
        table = former or self._table(full)
        names = [column.name for column in table.columns if column.name != HIDDEN_KEY]
        key = () if HIDDEN_KEY in table.primary_key else table.primary_key
        resolver = ResolverAround(self._session, stored.zone)
        plan = plan_view(Query(text, start), resolver, names, key, table.primary_key)
        if former is None and not self._same_columns(full, plan):
            raise TableError(
                f"view {'.'.join(full[1:])}: a table that it reads was altered, so that its query "
                "has other columns now; run its CREATE OR REPLACE MATERIALIZED VIEW statement"
            )
        return DefinedView(full, stored, plan)

    def _stored(self, full: Name) -> Any:
        """The table of a full name, as the script has changed it; it may be a system table."""
        return self._catalogs.warehouse(full[0]).readable(_table_of(full))

    def _table(self, full: Name) -> TableInfo:
        return _table_info(full, self._stored(full))


def next_name(full: Name) -> Name:
    """The name of the table in which the next query of a view is computed."""
    return (*full[:2], full[2] + NEXT)


def _table_of(full: Name) -> str:
    return f"{full[1]}.{full[2]}"


def _table_info(full: Name, table: Any) -> TableInfo:
    return TableInfo(
        full, tuple(table.columns), (), tuple(table.primary_key),
        tuple(table.partition_keys), dict(table.options),
    )  # fmt: skip
