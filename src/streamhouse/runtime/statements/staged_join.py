"""A SELECT with lookup joins that no streaming query computes as a whole: it takes two.

A streaming query joins the rows and keeps them in a table, which the rest of the SELECT reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeAlias

from streamhouse.errors import TableError
from streamhouse.runtime.session.session import Session
from streamhouse.runtime.statements.result_view import result_name
from streamhouse.sql.plan import Column, Name, TableInfo
from streamhouse.sql.streaming.joined_rows import joined_rows
from streamhouse.sql.streaming.query_planner import plan_stream_queries
from streamhouse.sql.syntax import Insert, Select
from streamhouse.sql.views.statement import CreateMaterializedView

Reader: TypeAlias = Insert | Select | CreateMaterializedView


@dataclass(frozen=True)
class StagedJoin:
    """The statements that stand for another one: `feed` fills `table`, and `rest` reads it."""

    table: TableInfo
    feed: Insert
    rest: Reader

    def create(self, session: Session) -> None:
        """Create the table; raises `TableError` if it has the joined rows of another SELECT."""
        catalog, database, name = self.table.name
        warehouse = session.catalogs.warehouse(catalog)
        if session.has_table(self.table.name):
            found = session.table(self.table.name)
            if _shape(found) != _shape(self.table):
                raise TableError(
                    f"table {database}.{name} has the joined rows of another SELECT, with other "
                    "columns; DROP TABLE it, and run the script once with --from-scratch"
                )
        warehouse.create_table(
            database, name, self.table.columns, self.table.primary_key,
            options=self.table.options, if_not_exists=True,
        )  # fmt: skip
        session.materialized.reserved.add(self.table.name)

    @contextmanager
    def drafted(self, session: Session) -> Iterator[None]:
        """Let a session plan statements as if the table were there."""
        tables, reserved, name = (
            session.tables.temporary,
            session.materialized.reserved,
            self.table.name,
        )
        tables[name] = self.table
        reserved.add(name)
        try:
            yield
        finally:
            del tables[name]
            reserved.discard(name)


def staged_join(session: Session, statement: Reader, target: Name) -> StagedJoin | None:
    """Split a statement at its first lookup joins; None if it has none, or they cannot be split."""
    joined = joined_rows(statement.query, session)
    if joined is None:
        return None
    (query,) = plan_stream_queries(joined.query, session)
    columns = tuple(
        Column(column.name, column.type, column.name not in joined.key)
        for column in query.rows.columns
    )
    full = session.result_table(result_name(target, "joined"))
    options = {"bucket": "1"} if joined.key else {}
    table = TableInfo(full, columns, (), joined.key, (), options)
    feed = Insert(statement.position, statement.text, full, (), joined.query)
    return StagedJoin(table, feed, replace(statement, query=joined.rest(full)))


def _shape(table: TableInfo) -> tuple[object, ...]:
    return [(column.name, column.type) for column in table.columns], table.primary_key
