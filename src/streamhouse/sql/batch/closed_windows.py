"""Limits windows to those that a watermark has closed, for results that show each window once.

A window is closed when the watermark has reached its last moment (`window_time`), as in Flink. A
batch takes the watermark from one value to another: `BEFORE` and `AFTER`, in epoch milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta

from sqlglot import exp

from streamhouse.sql.functions.expression_builders import (
    WINDOWED_TIME,
    call,
    cast,
    column_of,
    number,
    quoted,
)
from streamhouse.sql.parser.windowed_rows import WINDOWED, Window
from streamhouse.sql.select_parts import conjuncts

BEFORE, AFTER = "watermark_before", "watermark_after"
"""The DuckDB variables of the watermark before a batch and after it."""
FOREVER = 1 << 47
"""A watermark that has passed all windows, in the year 6429."""
_ALIAS = "_windowed"
_NONE = -62_135_596_800_000
"""The watermark before there is one: the beginning of the year 1."""


def windows(tree: exp.Expr) -> list[exp.Select]:
    """The windowed rows of a query that are in no other windows."""
    queries = {cte.alias: cte for cte in tree.find_all(exp.CTE)}
    inner: set[str] = set()
    found = [select for select in tree.find_all(exp.Select) if select.meta.get(WINDOWED)]
    open_ = list[exp.Expr](found)
    while open_:
        names = {table.name for table in open_.pop().find_all(exp.Table) if not table.db}
        open_ += [queries[name] for name in (names & queries.keys()) - inner]
        inner |= names & queries.keys()
    return [select for select in found if not _is_inner(select, inner)]


def _is_inner(select: exp.Select, queries: set[str]) -> bool:
    parent = select.parent
    while parent is not None:
        if parent.meta.get(WINDOWED) or (isinstance(parent, exp.CTE) and parent.alias in queries):
            return True
        parent = parent.parent
    return False


def close(tree: exp.Query, without_late: bool = False) -> None:
    """Let a query have the windows alone that a batch closes.

    `without_late`: as they were when they were closed, by the tables of late rows: `late_table`.
    """
    for place, select in enumerate(windows(tree)):
        rows, (start, end, time) = _rows(select), _columns(select)
        _limit(rows, select.meta[WINDOWED])
        if without_late:
            _undo(rows.find(exp.Subquery), place)
        moment = cast(time, "TIMESTAMP")
        closed = exp.and_(
            exp.GT(this=moment, expression=_variable(BEFORE)),
            exp.LTE(this=moment.copy(), expression=_variable(AFTER)),
        )
        # Operators find here which columns are those of the window. Of other kinds of windows,
        # several may begin at one time.
        aligned = [start] if select.meta[WINDOWED].kind in ("TUMBLE", "HOP") else []
        named = exp.and_(*(call("ISFINITE", each) for each in (end, time, *aligned)))
        condition = exp.Case(ifs=[exp.If(this=named, true=closed)])
        select.replace(rows.where(condition))


def _limit(rows: exp.Select, window: Window) -> None:
    """Let scans skip files without times of windows that a batch closes."""
    subquery = rows.find(exp.Subquery)
    assert subquery is not None
    for each in subquery.this.find_all(exp.Anonymous):
        if each.name == WINDOWED_TIME:
            limits = (
                exp.GT(this=each.copy(), expression=_variable(BEFORE, -window.size)),
                exp.LT(this=each.copy(), expression=_variable(AFTER, 1)),
            )
            subquery.this.where(*limits, copy=False)
            return


def late_table(number: int, kind: str) -> str:
    """The name of the rows of one of the `windows` that entered (`+I`) or left (`-D`) too late."""
    return f"late{kind}{number}"


def _undo(rows: exp.Subquery | None, number: int) -> None:
    """Take the late changes of windowed rows back."""
    assert rows is not None
    entered, left = (
        exp.Select(expressions=[exp.Star()]).from_(exp.Table(this=quoted(late_table(number, kind))))
        for kind in ("+I", "-D")
    )
    kept = exp.Except(this=rows.this, expression=entered, distinct=False)
    rows.set("this", exp.Union(this=kept, expression=left, distinct=False))


def late(tree: exp.Query) -> Iterator[exp.Query]:
    """For each of the `windows`, a query of all columns of its rows that were closed `BEFORE`.

    Without those that the query around it filters out.
    """
    with_ = tree.args.get("with_")
    for select in windows(tree):
        rows, (_, _, time) = _rows(select), _columns(select)
        alias, terms = _filters(select)
        if alias:
            subquery = rows.find(exp.Subquery)
            assert subquery is not None
            subquery.set("alias", exp.TableAlias(this=quoted(alias)))
            time.set("table", quoted(alias))
        closed = exp.LTE(this=cast(time, "TIMESTAMP"), expression=_variable(BEFORE))
        query = rows.where(closed, *terms)
        if with_ is not None:
            query.set("with_", with_.copy())
        yield query


def _filters(select: exp.Select) -> tuple[str, list[exp.Expr]]:
    """The alias of windowed rows, and the terms of the WHERE around that read them alone."""
    element = select.parent
    outer = None if element is None else element.find_ancestor(exp.Select)
    if not isinstance(element, exp.Subquery) or outer is None:
        return "", []
    from_, where = outer.args.get("from_"), outer.args.get("where")
    if from_ is None or from_.this is not element or outer.args.get("joins") or where is None:
        return "", []
    plain = [each.copy() for each in conjuncts(where) if each.find(exp.Query) is None]
    return element.alias, plain


def _rows(select: exp.Select) -> exp.Select:
    alias = exp.TableAlias(this=quoted(_ALIAS))
    rows = exp.Select(expressions=[exp.Star()])
    rows.set("from_", exp.From(this=exp.Subquery(this=select.copy(), alias=alias)))
    return rows


def _columns(select: exp.Select) -> list[exp.Column]:
    """The columns of the start, the end and the last moment of the windows."""
    return [column_of(_ALIAS, each.alias) for each in select.selects[-3:]]


def _variable(name: str, more: int = 0) -> exp.Expr:
    """A variable plus some milliseconds, as a time."""
    value: exp.Expr = call("GETVARIABLE", exp.Literal.string(name))
    if more:
        value = exp.Add(this=value, expression=number(more))
    return call("MAKE_TIMESTAMP_MS", value)


def between(sql: str, before: int | None, after: int | None) -> str:
    """The SQL of a query for a batch that takes the watermark from one value to another."""
    for name, value in ((BEFORE, before), (AFTER, after)):
        at = _NONE if value is None else value
        variable = rf"getvariable\('{name}'\)"
        time = rf"make_timestamp_ms\({variable}(?: \+ (-?\d+))?\)"
        sql = re.sub(time, lambda found: _literal(at, found[1]), sql, flags=re.IGNORECASE)  # noqa: B023
        sql = re.sub(variable, str(at), sql, flags=re.IGNORECASE)
    return sql


def _literal(millis: int, more: str | None) -> str:
    """A time as a literal; with `more` that of a limit: a whole second or beyond, as scans need."""
    if more is not None:
        seconds = (millis + int(more)) // 1000 + (int(more) > 0)
        millis = seconds * 1000
    at = datetime(1970, 1, 1) + timedelta(milliseconds=max(_NONE, millis))
    return f"CAST('{at}' AS TIMESTAMP)"
