"""A SELECT with lookup joins, or windows over processing time, that takes two queries.

A streaming query joins the rows, or gives them their times, and keeps them in a table, which the
rest of the SELECT reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeAlias

from sqlglot import exp

from streamhouse.errors import StreamhouseError, TableError
from streamhouse.runtime.session.session import Session
from streamhouse.runtime.statements.result_view import result_name
from streamhouse.sql.parser.windowed_rows import WINDOWED, source_rows, windowed_time
from streamhouse.sql.plan import Column, Name, TableInfo, Watermark
from streamhouse.sql.resolution import columns as names
from streamhouse.sql.resolution.event_time import is_processing_time
from streamhouse.sql.resolution.view_expansion import inlined
from streamhouse.sql.statements.create_view import ticked
from streamhouse.sql.streaming.joined_rows import JoinedRows, joined_rows
from streamhouse.sql.streaming.query_planner import plan_stream_queries
from streamhouse.sql.syntax import Insert, Query, Select
from streamhouse.sql.text import span
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
        if session.has_table(self.table.name):
            found = session.table(self.table.name)
            if _shape(found) != _shape(self.table):
                raise TableError(
                    f"table {'.'.join(self.table.name[1:])} has the joined rows of another SELECT, "
                    "with other columns; DROP TABLE it, and run the script once with --from-scratch"
                )
        session.tables.keep(self.table)
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
    joined, time = joined_rows(statement.query, session), ""
    if joined is None:
        joined, time = _timed_rows(statement.query, session)
    if joined is None:
        return None
    query = plan_stream_queries(joined.query, session)[0]
    columns = tuple(
        Column(column.name, column.type, column.name not in joined.key)
        for column in query.rows.columns
    )
    full = session.result_table(result_name(target, "joined"))
    options = {"bucket": "1"} if joined.key else {}
    watermark = Watermark(time, ticked(time)) if time else None
    table = TableInfo(full, columns, (), joined.key, (), options, watermark=watermark)
    feed = Insert(statement.position, statement.text, full, (), joined.query)
    return StagedJoin(table, feed, replace(statement, query=joined.rest(full)))


def _timed_rows(query: Query, session: Session) -> tuple[JoinedRows | None, str]:
    """The rows of the first windows over the processing time of a table or view, and that time.

    In the table that keeps them it is a stored time: that at which each row was read, once.
    """
    parsed = names.parse_query(query)
    base = len(parsed.script.text) - len(query.text)
    for select in parsed.tree.find_all(exp.Select):
        source = source_rows(select) if WINDOWED in select.meta else None
        data = None if source is None else source.args["from_"].this
        place = span(data) if isinstance(data, exp.Table) else None
        if source is None or place is None:
            continue
        first, last = place[0] - base, place[1] - base
        read = replace(query, text=f"SELECT * FROM {query.text[first:last]}", prefix="")
        time = windowed_time(source).expressions[0].name
        try:
            tree = inlined(names.parse_query(read), session).tree
            timed = is_processing_time(tree, time, session)
        except StreamhouseError:
            # The error of the whole query says more.
            continue
        if timed:
            edits = {(first, first): "(SELECT * ", (last, last): ")"}
            return JoinedRows(read, (), query, edits, (first, last)), time
    return None, ""


def _shape(table: TableInfo) -> tuple[object, ...]:
    return [(column.name, column.type) for column in table.columns], table.primary_key
