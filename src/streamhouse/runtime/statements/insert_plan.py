"""Plans the continuous queries of an INSERT or a SELECT, and the strategies of their lookups."""

from collections.abc import Sequence

from streamhouse.connectors import registry
from streamhouse.errors import OptionError, SqlError, UnsupportedSqlError
from streamhouse.lookup.options import RefreshRule
from streamhouse.lookup.strategies.selection import Choice, choose_all
from streamhouse.runtime.query_spec import unshuffled
from streamhouse.runtime.session.session import Session
from streamhouse.runtime.statements.result_view import (
    SELECT,
    KeptResult,
    ResultView,
    Staged,
    kept_result,
    select_view,
)
from streamhouse.runtime.statements.staged_join import staged_join
from streamhouse.sql.options.known_options import check_lookup, is_lookup_option
from streamhouse.sql.plan import Name, StreamQuery, TableInfo
from streamhouse.sql.resolution.insert_target import given_columns
from streamhouse.sql.streaming.query_planner import is_bounded, plan_stream_queries
from streamhouse.sql.syntax import Insert, Query, Select


def is_bounded_query(session: Session, query: Query) -> bool:
    """Whether a query is bounded: all its inputs are bounded, or the runtime mode is batch."""
    return not session.settings.streaming or is_bounded(query, session)


def plan_insert(
    session: Session, statement: Insert, target: TableInfo
) -> list[StreamQuery] | KeptResult | ResultView | Staged:
    """The continuous queries of an INSERT; for a SELECT that has none, what keeps its result.

    Raises all errors that need no server and no Spark.

    Gives notices of options without effect.
    """
    registry.check_sink(target, statement.position)
    if statement.overwrite:
        raise UnsupportedSqlError.at(
            statement.position,
            "INSERT OVERWRITE from a stream; write INSERT INTO, or "
            "SET 'execution.runtime-mode' = 'batch'",
        )
    if target.connector == "paimon":
        _check_hint(session, statement)
    given = given_columns(target, statement)
    try:
        queries = plan_stream_queries(statement.query, session, target, given, statement.partition)
    except SqlError as error:
        return _staged(session, statement, target.name, error) or kept_result(
            session, statement, target, error
        )
    refused = registry.connector(target.connector).refused_changes(target)
    if refused is not None and any(query.row_kinds for query in queries):
        raise UnsupportedSqlError.at(
            statement.position,
            f"INSERT INTO {'.'.join(statement.target)} (connector '{target.connector}'): the "
            f"query updates and deletes rows; {refused}",
        )
    if any(query.source.name == target.name for query in queries):
        raise UnsupportedSqlError.at(
            statement.position,
            "INSERT into the table that the query reads would feed itself forever; write to "
            "another table, or SET 'execution.runtime-mode' = 'batch'",
        )
    if len(queries) > 1 and any(k.retry for query in queries for k in query.lookups):
        raise UnsupportedSqlError.at(
            statement.position,
            "a LOOKUP hint with a retry in a UNION ALL of several tables; leave out the retry, "
            "or look up first: INSERT each part into a table, and read these",
        )
    _check_lookups(session, queries)
    return queries


def _staged(
    session: Session, statement: Insert | Select, target: Name, refused: SqlError
) -> Staged | None:
    """What joins the rows of a SELECT first, if it is refused for what it does besides."""
    if not isinstance(refused, UnsupportedSqlError):
        return None
    return staged_join(session, statement, target)


def plan_select(session: Session, statement: Select) -> list[StreamQuery] | ResultView | Staged:
    """The continuous queries of a SELECT; if it has none, what keeps its result."""
    query = statement.query
    try:
        queries = plan_stream_queries(query, session)
    except SqlError as error:
        return _staged(session, statement, SELECT, error) or select_view(session, statement, error)
    if any(lookup.retry for stream in queries for lookup in stream.lookups):
        raise UnsupportedSqlError.at(
            query.position,
            "a LOOKUP hint with a retry needs a table where rows can wait; INSERT INTO a "
            "table, or leave out the retry",
        )
    _check_lookups(session, queries)
    return queries


def lookup_strategies(
    session: Session, query: StreamQuery, target: TableInfo | None
) -> tuple[Choice, ...]:
    """The lookup strategy of each lookup of a query."""
    specs = list(map(session.dimension, query.lookups))
    return tuple(choose_all(specs, None if target is None else unshuffled(query, target)))


def _check_hint(session: Session, statement: Insert) -> None:
    """Reject an OPTIONS hint on a continuous INSERT; give a notice for `sink.` options."""
    name = ".".join(statement.target)
    for key in statement.options:
        if key.startswith("sink."):
            session.notice(
                f"INSERT INTO {name}: option '{key}' has no effect here; SET "
                "'parallelism.default' sets the number of tasks of a batch"
            )
            continue
        raise UnsupportedSqlError.at(
            statement.position,
            f"option '{key}' of a continuous INSERT is not supported as a hint; set it on "
            f"the table: ALTER TABLE {name} SET ('{key}' = '…')",
        )


def _check_lookups(session: Session, queries: Sequence[StreamQuery]) -> None:
    for lookup in (lookup for query in queries for lookup in query.lookups):
        # `choose_all` checks the options of a table on a server.
        if lookup.on_server:
            continue
        where = f"lookup of {lookup.table.name[-1]}"
        RefreshRule.of(lookup)
        for key in check_lookup(lookup.options, where):
            session.notice(f"{where}: option '{key}' has no effect here")
        for key in lookup.options:
            if not is_lookup_option(key):
                raise OptionError(f"{where}: option '{key}' is not an option of a lookup")
