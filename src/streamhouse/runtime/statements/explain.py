"""EXPLAIN, and the plans that it describes: those of an INSERT, and the strategies of lookups."""

from __future__ import annotations

from streamhouse.connectors import registry
from streamhouse.errors import UnsupportedSqlError
from streamhouse.lookup.dimension import DimensionSpec
from streamhouse.lookup.strategies.selection import Choice, choose_all, refresh_rule
from streamhouse.runtime.batch.insert_columns import given_columns
from streamhouse.runtime.query_spec import unshuffled
from streamhouse.runtime.session.session import Session
from streamhouse.sql import plan
from streamhouse.sql.plan import Insert, StreamQuery, TableInfo
from streamhouse.sql.streaming.analysis import analyze_streams


def explain(session: Session, statement: plan.Explain) -> list[str]:
    """The lines of EXPLAIN; raises `UnsupportedSqlError` for statements without a plan."""
    inner = statement.statement
    if isinstance(inner, plan.StatementSet):
        lines = []
        for insert in inner.inserts:
            lines += [f"INSERT INTO {'.'.join(insert.target)}", *_insert_lines(session, insert)]
        return lines
    if isinstance(inner, Insert):
        return _insert_lines(session, inner)
    if isinstance(inner, plan.Select):
        queries = analyze_streams(inner.query, session)
        return [line for query in queries for line in _query_lines(session, query, None)]
    raise UnsupportedSqlError("EXPLAIN takes an INSERT or a SELECT")


def planned_insert(session: Session, statement: Insert, target: TableInfo) -> list[StreamQuery]:
    """The continuous queries of an INSERT.

    Raises `UnsupportedSqlError` if the target cannot take updates and deletes, which they write.
    """
    given = given_columns(target, statement)
    queries = analyze_streams(statement.query, session, target, given, statement.partition)
    refused = registry.connector(target.connector).refused_changes(target)
    if refused is not None and any(query.row_kinds for query in queries):
        raise UnsupportedSqlError.at(
            statement.position,
            f"INSERT INTO {'.'.join(statement.target)} (connector '{target.connector}'): the "
            f"query updates and deletes rows; {refused}",
        )
    return queries


def lookup_strategies(
    session: Session, query: StreamQuery, target: TableInfo | None
) -> tuple[Choice, ...]:
    """The lookup strategy of each lookup of a query."""
    addresses = [(lookup, session.endpoints.dimension(lookup)) for lookup in query.lookups]
    specs = [
        DimensionSpec(lookup, at.warehouse, at.identifier, at.schema_id) for lookup, at in addresses
    ]
    return tuple(choose_all(specs, None if target is None else unshuffled(query, target)))


def _insert_lines(session: Session, statement: Insert) -> list[str]:
    target = session.table(statement.target)
    queries = planned_insert(session, statement, target)
    lines = [line for query in queries for line in _query_lines(session, query, target)]
    options = {**registry.table_options(target), **statement.options}
    delivery = registry.connector(target.connector).delivery(target, options)
    sink = f"sink: {'.'.join(target.name)} (connector '{target.connector}'), {delivery}"
    return [*lines, sink.replace("`", "'")]


def _query_lines(session: Session, query: StreamQuery, target: TableInfo | None) -> list[str]:
    lines = [f"source: {'.'.join(query.source.name)} ({', '.join(query.source_columns)})"]
    strategies = lookup_strategies(session, query, target)
    for lookup, choice in zip(query.lookups, strategies, strict=True):
        refresh = refresh_rule(lookup, choice).describe()
        refresh = f", {refresh}" if refresh else ""
        retry = "" if lookup.retry is None else f", retries every {lookup.retry.delay_ms} ms"
        lines.append(
            f"lookup: {'.'.join(lookup.table.name)} by {', '.join(lookup.keys)}, "
            f"{'LEFT' if lookup.left else 'INNER'}{retry}{refresh}; strategy: {choice}"
        )
    if query.upsert:
        lines.append(query.upsert)
    if query.distinct is not None:
        lines.append(
            f"count of distinct values: {', '.join(query.distinct.columns)}, from a table of "
            f"values; computed by: {query.distinct.sql}"
        )
    return [*lines, f"DuckDB: {query.rows_sql}"]
