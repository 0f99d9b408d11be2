"""Queries over rows that change: a retraction must find what its insert has written.

A row is added at one time and retracted at another. What is computed from the time (or joined at
it) then differs: a filter that let the row in drops its retraction, a sum subtracts another value
than it added. Such a row would stay for ever, so the time is refused there (decision 224). In a
plain column it is allowed: the target finds the row by its key.

A lookup joins the rows of a dimension as they are now. So the row that a `-U` or `-D` takes back
may have had a match that is gone, or have passed a WHERE over the dimension that fails now. If the
target has the source's key, the row is known without the lookup. Retractions then pass INNER
lookups, WHERE conditions over lookups, and never wait for a match; conditions over the source alone
still apply, as they give the same result at any time (decision 224).

The updates of a source of upserts, such as `upsert-kafka`, lack the row before the change, and its
deletes have only the key. A filter, a join that drops rows or an aggregation would keep rows that
have since changed. So the query only copies rows into a table with the same key; that table knows
the rows before each change, and other queries read its changes, as a view does.

If the target's primary key lacks the source's, such as an email address that one customer takes
over from another, two keys of the source share a key of the target. A changelog keeps the changes
of each of its own keys together, so within a batch the `-U` of the former owner may follow the `+U`
of the new one, and would remove its row. Such a query writes the rows that are current at the end
of the batch after all others (decision 224).
"""

from collections.abc import Iterator, Sequence

from sqlglot import exp

from streamhouse.errors import NotStreamedError
from streamhouse.sql.functions.expression_builders import cast, column_of, current_time_name
from streamhouse.sql.functions.macros import filled
from streamhouse.sql.options.merge_functions import (
    MERGING_ENGINES,
    group_sequence_fields,
    removes_records,
    sequence_fields,
)
from streamhouse.sql.plan import Column, TableInfo
from streamhouse.sql.streaming.retraction import retracts
from streamhouse.sql.streaming.stream_select import StreamSelect, reads_time
from streamhouse.sql.types import base, duck_type, keeps_order
from streamhouse.sql.views.stored_view import HIDDEN_KEY, is_view

_ZEROS = {
    "STRING": "", "VARCHAR": "", "CHAR": "", "BYTES": "", "VARBINARY": "", "BINARY": "",
    "BOOLEAN": "false", "DATE": "1970-01-01", "TIME": "00:00:00",
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_LTZ"), "1970-01-01 00:00:00"),
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL"), "0"),
}  # fmt: skip
_TAKEN_BACK = ("sum", "product", "count", "collect", "merge_map", "nested_update")
"""Merge functions that take a retracted value out of the merged one."""
_LAST_ROW_COUNTS = ("deduplicate", "partial-update")
"""The merge engines by which the last row of a key counts."""


def check_upserts(top: StreamSelect) -> None:
    """Raise `NotStreamedError` if the source's updates lack a row that the query needs."""
    source = top.source
    if not source.capabilities.upserts:
        return
    # Whether there is a row for each of the source, whatever that changed from.
    left = all(lookup.join.left for lookup in top.lookups)
    if top.aggregates or top.where or top.ranked is not None or not left:
        needs = "the query"
    elif top.target is not None and not _keeps_changes(top, top.target):
        needs = ".".join(top.target.name)
    else:
        return
    which = f"an update of '{source.name[-1]}' (connector '{source.connector}')"
    raise NotStreamedError(f"{which} lacks the former row, which {needs} needs")


def _keeps_changes(top: StreamSelect, table: TableInfo) -> bool:
    """Whether a table has the source's key, and finds the former row by it."""
    columns = {each.item and top.source_column(each.item) for each in top.outputs if each.in_key}
    if columns != set(top.source.primary_key):
        return False
    # A delete has only the key.
    only_key = all(c.nullable or c.name in table.primary_key for c in table.columns)
    engine = table.options.get("merge-engine", "deduplicate")
    producer = table.options.get("changelog-producer")
    return only_key and engine == "deduplicate" and producer != "input"


def check_times(top: StreamSelect) -> None:
    """Raise `NotStreamedError` for a time that a retraction would compute anew."""
    for item, where in _repeated(top) if top.source.changelog else ():
        if reads_time(item):
            raise NotStreamedError(f"the current time {where}, over rows that change")


def _repeated(top: StreamSelect) -> Iterator[tuple[exp.Expr, str]]:
    """The expressions of which a retraction must have the same value as its insert."""
    yield from ((term, "in WHERE") for term in top.where)
    yield from ((lookup.on, "in ON") for lookup in top.lookups)
    yield from ((item, "in GROUP BY") for item in top.group)
    target = top.target
    if target is None:
        return
    for each, item in top.given:
        if not target.primary_key:
            yield item, f"in '{each.name}' of a target without a primary key"
        elif each.in_key:
            yield item, f"in '{each.name}', part of the target's key"
        elif each.orders:
            if not _grows(item):
                yield item, f"in the sequence field '{each.name}'"
        elif (
            target.options.get("merge-engine") in MERGING_ENGINES
            and each.function in _TAKEN_BACK
            and not each.ignores
        ):
            yield item, f"in '{each.name}', which merges by {each.function}"


def _grows(item: exp.Expr) -> bool:
    """Whether a projection is the current time itself, which orders changes as they come."""
    inner = item.unnest()
    while isinstance(inner, exp.Cast):
        inner = inner.this.unnest()
    return current_time_name(inner) not in (None, "LOCALTIME")


def check_lookups(top: StreamSelect, target: TableInfo) -> None:
    """Raise `UnsupportedSqlError` if a lookup decides which row of the target a retraction means.

    That is a column of the target's key, or one that orders the rows of a key.
    """
    for each, item in top.given:
        if (each.in_key or each.orders) and top.reads_lookup(item):
            role = "part of the key" if each.in_key else "a sequence field"
            raise top.script.unsupported(
                item,
                f"column '{each.name}' of {'.'.join(target.name)} is {role} and comes from a "
                f"lookup, but rows of {'.'.join(top.source.name)} change: after a change of the "
                "lookup's table, the former row could not be found and would stay; select a column "
                "of the source here, and the lookup's column outside the key and sequence",
            )


def applied(items: list[exp.Expr], top: StreamSelect, target: TableInfo) -> list[exp.Expr]:
    """Let retractions pass what depends on a lookup, if the target can delete by the source's key.

    `items` are the projections for the target's columns; returns those to use instead. Changes
    the conditions.
    """
    if not (top.lookups and top.source.primary_key and _deletes(target) and keeps_source_key(top)):
        return items
    passes = _let_pass(top)
    return [
        item
        if each.item is None or top.reads_source_only(each.item)
        else _guarded(top, item, passes, each.column)
        for item, each in zip(items, top.outputs, strict=True)
    ]


def _deletes(target: TableInfo) -> bool:
    """Whether a retraction with the key alone removes the row (or what the query wrote of it)."""
    options = target.options
    if not target.primary_key or options.get("ignore-delete", "").lower() == "true":
        return False
    engine = options.get("merge-engine", "deduplicate")
    if engine == "partial-update":
        return removes_records(options) or bool(group_sequence_fields(options))
    return engine == "deduplicate"


def _let_pass(top: StreamSelect) -> exp.Expr | None:
    """Change WHERE for LEFT lookups: it drops the same rows, except retractions.

    Returns the condition that retractions need not fulfil; None if there is none.
    """
    always = [term for term in top.where if top.reads_source_only(term)]
    changing = [term for term in top.where if not top.reads_source_only(term)]
    changing += [
        filled("NOT key IS NULL", key=column_of(lookup.alias, lookup.join.keys[0]))
        for lookup in top.lookups
        if not lookup.join.left
    ]
    passes = None
    if changing:
        passes = exp.Paren(this=exp.and_(*map(exp.paren, changing), copy=False))
        always.append(exp.Or(this=retracts(top.alias), expression=passes))
    top.where, top.lets_pass = always, True
    return passes


def _guarded(
    top: StreamSelect, item: exp.Expr, passes: exp.Expr | None, column: Column
) -> exp.Expr:
    """An expression, null where the row does not pass: to compute it could fail.

    For the target's `column`, if that is NOT NULL, a retraction has zero or an empty value instead.
    """
    value = item if passes is None else exp.Case().when(passes.copy(), item.copy())
    zero = None if column.nullable else _ZEROS.get(base(column.type))
    if zero is None:
        return value
    zeros = [cast(exp.Literal.string(zero), duck_type(column.type))]
    either = exp.Coalesce(this=value.copy(), expressions=zeros)
    return exp.Case().when(retracts(top.alias), either).else_(value.copy())


def reorder_key(selects: Sequence[StreamSelect]) -> tuple[str, ...]:
    """The source's key if the order of the changes of two of its keys can change the target's rows.

    `selects` are those of a query whose rows have row kinds. Of several, one may give a key of the
    target to other keys of the source than another does.
    """
    target = selects[0].target if selects else None
    if target is None or not target.primary_key:
        return ()
    if sequence_fields(target.options) or group_sequence_fields(target.options):
        return ()
    if target.options.get("merge-engine", "deduplicate") not in _LAST_ROW_COUNTS:
        return ()
    if len(selects) == 1 and keeps_source_key(selects[0]):
        return ()
    return _key(selects[0].source)


def keeps_source_key(top: StreamSelect) -> bool:
    """Whether the target's key has all values of the source's, so that none of its keys moves."""
    types = {column.name: column.type for column in top.source.columns}
    kept = set()
    for each, item in top.given:
        name = top.source_column(item) if each.in_key else None
        if name in types and keeps_order(types[name], each.column.type):
            kept.add(name)
    return kept.issuperset(_key(top.source))


def _key(source: TableInfo) -> tuple[str, ...]:
    """The key by which a changelog keeps its changes together, also one that readers do not see."""
    return source.primary_key or ((HIDDEN_KEY,) if is_view(source) else ())
