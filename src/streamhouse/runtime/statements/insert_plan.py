"""Plans the continuous queries of an INSERT, and the strategies of their lookups."""

from __future__ import annotations

from streamhouse.connectors import registry
from streamhouse.errors import UnsupportedSqlError
from streamhouse.lookup.dimension import DimensionSpec
from streamhouse.lookup.strategies.selection import Choice, choose_all
from streamhouse.runtime.batch.insert_columns import given_columns
from streamhouse.runtime.query_spec import unshuffled
from streamhouse.runtime.session.session import Session
from streamhouse.sql.plan import StreamQuery, TableInfo
from streamhouse.sql.streaming.query_planner import plan_stream_queries
from streamhouse.sql.syntax import Insert


def plan_insert(session: Session, statement: Insert, target: TableInfo) -> list[StreamQuery]:
    """The continuous queries of an INSERT.

    Raises `UnsupportedSqlError` if the target cannot take updates and deletes, which they write.
    """
    given = given_columns(target, statement)
    queries = plan_stream_queries(statement.query, session, target, given, statement.partition)
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
