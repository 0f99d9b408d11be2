"""`ROW_NUMBER() … = 1`: the newest (or oldest) row of each key, as an upsert by that key.

A continuous query keeps no state to number rows in. But a table with that primary key keeps one row
of each key, and its `sequence.field` decides which. So the row number is removed from the query if
the target is such a table; a view computes any other ROW_NUMBER.
"""

from collections.abc import Mapping, Sequence

from sqlglot import exp

from streamhouse.errors import NotStreamedError
from streamhouse.sql.functions.expression_builders import current_time_name
from streamhouse.sql.options.merge_functions import sequence_fields
from streamhouse.sql.plan import TableInfo
from streamhouse.sql.resolution import columns
from streamhouse.sql.streaming.stream_select import Ranked, StreamSelect, is_constant, plain_text
from streamhouse.sql.types import keeps_order


def numbered(select: exp.Select) -> exp.Expr | None:
    """The only ROW_NUMBER among the projections of a SELECT, with its alias."""
    found = [
        item
        for item in select.expressions
        if isinstance(item, exp.Alias)
        and isinstance(item.this, exp.Window)
        and isinstance(item.this.this, exp.RowNumber)
    ]
    return found[0] if len(found) == 1 else None


def first_of(terms: Sequence[exp.Expr]) -> exp.Window | None:
    """The window of a condition that is `rn = 1`, `1 = rn`, `rn <= 1` or `rn < 2`, and no more."""
    term = terms[0] if len(terms) == 1 else None
    if not isinstance(term, exp.EQ | exp.LTE | exp.LT):
        return None
    left, right = term.left.unnest(), term.right.unnest()
    if isinstance(term, exp.EQ) and isinstance(right, exp.Window):
        left, right = right, left
    limit = "2" if isinstance(term, exp.LT) else "1"
    return left if isinstance(left, exp.Window) and right.sql() == limit else None


def ranked(read: StreamSelect, window: exp.Window) -> Ranked:
    """The ranking by a window, of which a WHERE selects the first rows.

    Raises `NotStreamedError` for a second one, for one without PARTITION BY, and for one of mixed
    directions.
    """
    if read.ranked is not None:
        raise NotStreamedError("a window function")
    ordered = window.args["order"].expressions if window.args.get("order") else []
    newest = {bool(item.args.get("desc")) for item in ordered}
    partition = window.args.get("partition_by") or []
    if not partition or len(newest) != 1:
        reason = "ROW_NUMBER without PARTITION BY, or without ORDER BY in one direction"
        raise NotStreamedError(reason)
    # The parser has set the default: NULL is the smallest value.
    nulls_first = tuple(bool(item.args.get("nulls_first")) for item in ordered)
    order = tuple(item.this for item in ordered)
    return Ranked(tuple(partition), order, newest.pop(), nulls_first)


def without(columns: Mapping[str, exp.Expr]) -> dict[str, exp.Expr]:
    """Columns of the first rows: their row number is 1."""
    one = exp.cast(exp.Literal.number(1), "BIGINT")
    return {
        name: one.copy() if isinstance(item, exp.Window) else item for name, item in columns.items()
    }


def check_clauses(read: StreamSelect, parts: Sequence[exp.Expr]) -> None:
    """Raise `NotStreamedError` if a SELECT does more with a row number than to pass it on.

    `parts` are its other expressions than the projections.
    """
    raw = [each.unalias() for each in read.select.expressions]
    own = [item for item, each in zip(read.items, raw, strict=True) if isinstance(each, exp.Window)]
    windows = (node for part in [*read.items, *parts] for node in part.find_all(exp.Window))
    used = [window for window in windows if all(window is not each for each in own)]
    clauses = columns.first_set(read.select.args, ("expressions", "from_", "with_"))
    if used and (clauses or not all(isinstance(item, exp.Column) for item in raw)):
        reason = "ROW_NUMBER without WHERE … = 1 alone"
        raise NotStreamedError(reason)


def check(top: StreamSelect) -> str:
    """A description of the row that the upsert keeps; empty for a query without ROW_NUMBER.

    Raises `NotStreamedError` for a target that keeps other rows.
    """
    ranked, target = top.ranked, top.target
    if ranked is None:
        return ""
    merges = target is not None and target.capabilities.merges
    if target is None or not merges or ranked.drops or not _keeps(top, target, ranked):
        reason = "ROW_NUMBER whose row the target does not keep by its key and sequence.field"
        raise NotStreamedError(reason)
    word = "newest" if ranked.newest else "oldest"
    names = (i.name if isinstance(i, exp.Column) else i.sql() for i in ranked.order)
    return f"upsert: {word} by {', '.join(names)} of each {', '.join(target.primary_key)}"


def _keeps(top: StreamSelect, target: TableInfo, ranked: Ranked) -> bool:
    """Whether the target keeps the row that the ranking selects."""
    # A constant column does not distinguish rows, so it need not be in PARTITION BY.
    keys = [each.item for each in top.outputs if each.in_key]
    keys = [item for item in keys if item is None or not is_constant(item)]
    partition = {plain_text(item) for item in ranked.partition}
    if {item and plain_text(item) for item in keys} != partition:
        return False
    if top.source.changelog:
        # If several rows share a key and the newest is deleted, the next one is not known.
        columns = {top.source_column(item) for item in ranked.partition}
        return columns.issuperset(top.source.primary_key)
    return _orders(top, target, ranked) and _keeps_order(top, target, ranked)


def _orders(top: StreamSelect, target: TableInfo, ranked: Ranked) -> bool:
    """Whether the merge engine and `sequence.field` keep the last row in the ranking's order."""
    options, sequence = target.options, sequence_fields(target.options)
    engine = options.get("merge-engine", "deduplicate")
    if len(ranked.order) == 1 and current_time_name(ranked.order[0]) == "PROCTIME":
        return not sequence and engine == ("deduplicate" if ranked.newest else "first-row")
    texts = {plain_text(item): each.name for each, item in reversed(top.given)}
    by = [texts.get(plain_text(item)) for item in ranked.order]
    descending = options.get("sequence.field.sort-order", "ascending") == "descending"
    return engine == "deduplicate" and sequence == by and descending != ranked.newest


def _keeps_order(top: StreamSelect, target: TableInfo, ranked: Ranked) -> bool:
    """Whether `sequence.field`s order values as the ranking does.

    They prefer any value to NULL, and their types must keep distinct values apart.
    """
    columns = {column.name: column for column in top.source.columns}
    stored = {column.name: column for column in target.columns}
    sequence = sequence_fields(target.options)
    for name, item, first in zip(sequence, ranked.order, ranked.nulls_first, strict=False):
        source = columns.get(top.source_column(item) or "")
        if first and stored[name].nullable and (source is None or source.nullable):
            return False
        if source is not None and not keeps_order(source.type, stored[name].type):
            return False
    return True
