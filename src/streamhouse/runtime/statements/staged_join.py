"""A SELECT with lookup joins, windows over processing time, or versions, that takes two queries.

A streaming query joins the rows, gives them their times, or reads their versions, and keeps them in
a table, which the rest of the SELECT reads.
"""

from dataclasses import replace

from sqlglot import exp

from streamhouse.errors import StreamhouseError
from streamhouse.runtime.session.session import Session
from streamhouse.runtime.statements.result_view import Reader, Staged, result_name
from streamhouse.sql.parser.windowed_rows import WINDOWED, source_rows, windowed_time
from streamhouse.sql.plan import Column, Name, TableInfo, Watermark
from streamhouse.sql.resolution import columns as names
from streamhouse.sql.resolution.as_of_clause import is_processing_time
from streamhouse.sql.resolution.versions import REMOVED, keeping, knows_deletes, view_of
from streamhouse.sql.resolution.view_expansion import inlined
from streamhouse.sql.streaming.joined_rows import KEPT, JoinedRows, joined_rows
from streamhouse.sql.streaming.query_planner import plan_stream_queries
from streamhouse.sql.syntax import Insert, Query
from streamhouse.sql.text import span, ticked

_NOTE = "keeps the rows as they were read, from which the rest of the SELECT is computed"
_UPSERTS = (
    "'{}' FOR SYSTEM_TIME AS OF a stored time needs the times of deletes, which have a key alone; "
    "let its WATERMARK be FOR a column TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', the time of each"
    " record, or INSERT it into a table with the same key and a WATERMARK, and join that"
)
_NO_TIME = (
    "'{}' FOR SYSTEM_TIME AS OF a stored time needs the times of its versions; give it a WATERMARK "
    "in CREATE TABLE, or ALTER TABLE … ADD WATERMARK FOR ts AS ts. To join its newest rows, write "
    "AS OF a column that is computed as PROCTIME()"
)


def staged_join(session: Session, statement: Reader, target: Name) -> Staged | None:
    """Split a statement at its first lookup joins; None if it has none, or they cannot be split."""
    query = statement.query
    joined = joined_rows(query, session) or _timed_rows(query, session) or _versions(query, session)
    if joined is None:
        return None
    columns = plan_stream_queries(joined.query, session)[0].rows.columns
    of = "" if joined.versions is None else f"_{joined.versions.name[-1]}"
    full = session.result_table(result_name(target, f"joined{of}"))
    if joined.versions is not None:
        table = keeping(full, joined.versions, columns[:-1])
    else:
        columns = tuple(Column(c.name, c.type, c.name not in joined.key) for c in columns)
        options = {"bucket": "1"} if joined.key else {}
        watermark = Watermark(joined.time, ticked(joined.time)) if joined.time else None
        table = TableInfo(full, columns, (), joined.key, (), options, watermark=watermark)
    feed = Insert(statement.position, statement.text, full, (), joined.query)
    return Staged(table, feed, replace(statement, query=joined.rest(full)), _NOTE)


def _timed_rows(query: Query, session: Session) -> JoinedRows | None:
    """The rows of the first windows over the processing time of a table or view.

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
            return JoinedRows(read, query, {(first, last): f"(SELECT * FROM {KEPT})"}, time=time)
    return None


def _versions(query: Query, session: Session) -> JoinedRows | None:
    """The versions of the first table with a key that is joined as of a stored time."""
    parsed = names.parse_query(query)
    for named in names.leaves(parsed.tree):
        version = named.args.get("version")
        if version is None or not isinstance(time := version.expression, exp.Column):
            continue
        if view_of(session, named) is not None:
            continue
        try:
            table = session.table(names.table_name(named))
        except StreamhouseError:
            # The error of the whole query says more.
            continue
        if not table.primary_key or is_processing_time(parsed.tree, time.name, session):
            continue
        if table.watermark is None or not knows_deletes(table):
            reason = _NO_TIME if table.watermark is None else _UPSERTS
            raise parsed.script.unsupported(named, reason.format(named.name))
        base = len(parsed.script.text) - len(query.text)
        ends = [part.meta["end"] for part in version.walk() if "end" in part.meta]
        first, last, after = (
            at - base for at in (named.parts[0].meta["start"], version.meta["start"], max(ends) + 1)
        )
        text = f"SELECT *, FALSE AS {ticked(REMOVED)} FROM {query.text[first:last]}"
        if not table.capabilities.upserts:
            # Records of upserts have a time each.
            text += f" WHERE {ticked(table.watermark.column)} IS NOT NULL"
        alias = "" if named.alias else f" AS {ticked(named.name)}"
        edits = {(first, last): f"{KEPT} ", (after, after): alias}
        return JoinedRows(replace(query, text=text, prefix=""), query, edits, versions=table)
    return None
