"""The session's time zone in DuckDB's SQL, whose own sessions are all in UTC.

A cast between a local time (DATE, TIME, TIMESTAMP) and an instant (TIMESTAMP_LTZ) is marked when an
expression is translated, and `in_zone` lets it convert by the zone. So the text of a query has the
zone, and means the same in each task, audit and restart. In UTC no text changes.

A local time that a zone has twice is the first of both instants, and one that it skips is as much
later as the zone skips, as in Java.
"""

import re
from functools import cache

from sqlglot import exp

from streamhouse.errors import OptionError
from streamhouse.sql.expressions.sandboxed_connection import sandboxed
from streamhouse.sql.functions.expression_builders import (
    AS_IS,
    DIGITS,
    FROM_LOCAL,
    INSTANT,
    LOCAL,
    TO_LOCAL,
    UTC_ONLY,
    ZONE,
    call,
    zone_marked,
)
from streamhouse.sql.functions.macros import filled

UTC = "UTC"
ZONE_OPTION = "table.local-time-zone"
_UTC_NAMES = ("UTC", "ETC/UTC", "GMT", "Z", "+00:00")
_OFFSET = re.compile(r"GMT[+-](0\d|1[0-7]):[0-5]\d")
_LEAST_NAME = 4
"""Names of three letters, such as PST, mean other zones in other programs."""
INSTANTS = (exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ)
LOCALS = (
    exp.DType.DATE, exp.DType.TIME, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ,
    exp.DType.TIMESTAMP_MS, exp.DType.TIMESTAMP_NS,
)  # fmt: skip


def zone_named(key: str, name: str) -> str:
    """The zone of an option's value, `UTC` for all its names; raises `OptionError`."""
    if name.upper() in _UTC_NAMES:
        return UTC
    if not _OFFSET.fullmatch(name) and (len(name) < _LEAST_NAME or name not in _names()):
        raise OptionError(
            f"option '{key}': '{name}' is not a time zone; write a name such as "
            "'America/New_York', an offset such as 'GMT+08:00', or 'UTC'"
        )
    return name


@cache
def _names() -> frozenset[str]:
    """The names of time zones that DuckDB knows."""
    with sandboxed() as connection:
        rows = connection.execute("SELECT name FROM pg_timezone_names()").fetchall()
    return frozenset(name for (name,) in rows)


def mark(node: exp.Cast, source: exp.DataType | None) -> None:
    """Note how a cast of a value of type `source` converts between local times and instants."""
    if source is None or ZONE in node.meta:
        return
    if source.is_type(*INSTANTS):
        if node.to.is_type(*LOCALS):
            zone_marked(node, LOCAL)
    elif node.to.is_type(*INSTANTS):
        if source.is_type(*LOCALS, *exp.DataType.TEXT_TYPES):
            zone_marked(node, INSTANT)


def prepared(tree: exp.Expr, zone: str) -> exp.Expr:
    """Let the functions of a tree return their times in the zone, before types are inferred."""
    for node in list(tree.find_all(exp.Cast)):
        how = node.meta.get(ZONE)
        if zone == UTC and how in (TO_LOCAL, FROM_LOCAL):
            if node is tree:
                inner: exp.Expr = node.this
                return inner
            node.replace(node.this)
        elif how == UTC_ONLY and zone != UTC:
            node.set("to", exp.DataType.build("TIMESTAMPTZ", dialect="duckdb"))
            zone_marked(node, AS_IS).meta[DIGITS] = 3
    return tree


def in_zone(tree: exp.Expr, zone: str) -> exp.Expr:
    """Let the marked casts of a tree convert by the zone; changes the tree."""
    if zone == UTC:
        return tree
    for node in reversed(list(tree.find_all(exp.Cast))):
        how = node.meta.pop(ZONE, None)
        value = node.this
        if how == LOCAL:
            node.set("this", _shifted(value, zone))
        elif how == INSTANT:
            if not value.is_type(exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ):
                value = type(node)(this=value, to=exp.DataType.build("TIMESTAMP", dialect="duckdb"))
            node.set("this", _instant(value, zone))
        elif how == TO_LOCAL:
            node.set("this", _shifted(_shifted(value, UTC), zone))
        elif how == FROM_LOCAL:
            node.set("this", _shifted(_instant(value, zone), UTC))
    return tree


def _shifted(time: exp.Expr, zone: str) -> exp.Expr:
    """An instant as a local TIMESTAMP of a zone, or the reverse."""
    return call("TIMEZONE", exp.Literal.string(zone), time)


def _instant(local: exp.Expr, zone: str) -> exp.Expr:
    """The instant of a TIMESTAMP. Of two instants DuckDB has the last one."""
    last = _shifted(local, zone)
    if _OFFSET.fullmatch(zone):
        return last
    in_zone, in_utc = (f"TIMEZONE('{name}', (last - TO_DAYS(1)))" for name in (zone, UTC))
    first = f"TIMEZONE('{UTC}', (local - ({in_zone} - {in_utc})))"
    same = f"TIMEZONE('{zone}', {first}) = local"
    return filled(
        f"CASE WHEN {same} THEN LEAST({first}, last) ELSE last END", local=local.copy(), last=last
    )
