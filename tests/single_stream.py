"""Compiles SELECTs that read one streaming source."""

from __future__ import annotations

from streamhouse.sql.plan import Query, Resolver, StreamQuery, TableInfo
from streamhouse.sql.streaming.analysis import analyze_streams


def analyze_stream(
    query: Query,
    resolver: Resolver,
    target: TableInfo | None = None,
    columns: tuple[str, ...] = (),
) -> StreamQuery:
    (stream,) = analyze_streams(query, resolver, target, columns)
    return stream
