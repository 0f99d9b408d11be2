"""Parses the statements of materialized views, which Flink calls materialized tables."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamhouse.sql.expressions import intervals
from streamhouse.sql.parser import elements, query_parser
from streamhouse.sql.parser.token_cursor import Cursor
from streamhouse.sql.plan import Name
from streamhouse.sql.syntax import Query, Statement


@dataclass(frozen=True)
class CreateMaterializedView(Statement):
    """CREATE [OR REPLACE] MATERIALIZED VIEW | TABLE … AS query.

    `columns` rename the query's columns. `freshness_s` is the least number of seconds between two
    refreshes; `full`: REFRESH_MODE = FULL. `altered`: it was ALTER MATERIALIZED VIEW … AS, which
    changes nothing but the query.
    """

    name: Name
    query: Query
    columns: tuple[str, ...] = ()
    primary_key: tuple[str, ...] = ()
    partitioned_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    comment: str | None = None
    freshness_s: float = 0.0
    full: bool = False
    replace: bool = False
    if_not_exists: bool = False
    altered: bool = False


def parse_create_materialized_view(cursor: Cursor, replace: bool) -> CreateMaterializedView:
    """Parse the rest after the word MATERIALIZED."""
    word = cursor.one_of("VIEW", "TABLE")
    if_not_exists = elements.if_not_exists(cursor, replace)
    name = elements.dotted_name(cursor, f"the {word.lower()}'s name")
    columns, key = elements.view_columns(cursor, keyed=True)
    comment = cursor.string("a comment") if cursor.accept("COMMENT") else None
    partitioned: tuple[str, ...] = ()
    if cursor.accept("PARTITIONED", "BY"):
        partitioned = elements.identifiers(cursor, "a partition column")
    options = elements.option_list(cursor) if cursor.accept("WITH") else {}
    freshness_s, full = 0.0, False
    while cursor.peek() in ("FRESHNESS", "REFRESH_MODE"):
        if cursor.accept("FRESHNESS"):
            freshness_s = _freshness_s(cursor)
        else:
            cursor.take()
            cursor.expect("=")
            full = cursor.one_of("CONTINUOUS", "FULL") == "FULL"
    cursor.expect("AS")
    return CreateMaterializedView(
        *cursor.place, name, _select(cursor), columns, key, partitioned, options, comment,
        freshness_s, full, replace, if_not_exists,
    )  # fmt: skip


@dataclass(frozen=True)
class AlterMaterializedView(Statement):
    """ALTER MATERIALIZED VIEW | TABLE v SUSPEND | RESUME | REFRESH | ROLLBACK | SET FRESHNESS = ….

    `partition` has the columns of REFRESH PARTITION (…). `rollback`: back to the query before.
    """

    name: Name
    suspended: bool | None = None
    refresh: bool = False
    freshness_s: float | None = None
    partition: tuple[str, ...] = ()
    rollback: bool = False


def parse_alter_materialized_view(
    cursor: Cursor,
) -> AlterMaterializedView | CreateMaterializedView:
    """Parse the rest after ALTER MATERIALIZED; with AS, it is a CREATE OR REPLACE."""
    word = cursor.one_of("VIEW", "TABLE")
    name = elements.dotted_name(cursor, f"the {word.lower()}'s name")
    if cursor.accept("AS"):
        return CreateMaterializedView(
            *cursor.place, name, _select(cursor), replace=True, altered=True
        )
    action = cursor.peek()
    suspended, freshness_s = None, None
    if action in ("SUSPEND", "RESUME"):
        cursor.take()
        suspended = action == "SUSPEND"
    elif cursor.accept("SET", "FRESHNESS"):
        freshness_s = _freshness_s(cursor)
    elif not (cursor.accept("REFRESH") or cursor.accept("ROLLBACK")):
        cursor.unknown_keyword(("AS", "SUSPEND", "RESUME", "REFRESH", "ROLLBACK", "SET FRESHNESS"))
    refreshed = action == "REFRESH"
    partition = (
        elements.partition_values(cursor) if refreshed and cursor.accept("PARTITION") else ()
    )
    cursor.end()
    return AlterMaterializedView(
        *cursor.place, name, suspended, refreshed, freshness_s, tuple(partition),
        action == "ROLLBACK",
    )  # fmt: skip


def _select(cursor: Cursor) -> Query:
    if cursor.peek() not in ("SELECT", "WITH", "VALUES", "("):
        cursor.fail("expected SELECT, WITH or VALUES")
    return elements.query(cursor)


def _freshness_s(cursor: Cursor) -> float:
    """Parse `= INTERVAL '30' SECOND`; returns its seconds, which are whole."""
    cursor.expect("=")
    tokens = cursor.until("FRESHNESS", "REFRESH_MODE", "AS")
    node = query_parser.parse_tokens(cursor.script, cursor.lexed(tokens)) if tokens else None
    length = None if node is None else intervals.milliseconds(node)
    if length is None or length < 0 or length % 1000:
        message = "expected an interval such as INTERVAL '30' SECOND (or MINUTE, HOUR, DAY)"
        raise cursor.script.error_in(tokens or [cursor.previous], message)
    return length / 1000
