"""Compiles SELECTs that read one streaming source."""

from __future__ import annotations

from streamhouse.sql.plan import Resolver, StreamQuery, TableInfo
from streamhouse.sql.streaming.query_planner import plan_stream_queries
from streamhouse.sql.syntax import Query


def analyze_stream(
    query: Query,
    resolver: Resolver,
    target: TableInfo | None = None,
    columns: tuple[str, ...] = (),
) -> StreamQuery:
    (stream,) = plan_stream_queries(query, resolver, target, columns)
    return stream
