"""A query that ends: any SELECT or VALUES over tables as they are at one moment."""

from __future__ import annotations

from streamhouse.sql.plan import BoundedQuery, Query, Resolver, TableInfo


def analyze_bounded(
    query: Query,
    resolver: Resolver,
    target: TableInfo | None = None,
    columns: tuple[str, ...] = (),
) -> BoundedQuery:
    raise NotImplementedError
