"""UNION ALL of streams: splits a query into its parts, and merges parts over the same table.

Projections, filters, lookups and also sums around a UNION ALL are applied to each part, since the
target adds up the sums. Parts over the same table are merged into one query, which returns
their rows in the order of the table's changes. So if an update moves a row from one part to
another, the retraction and the insert stay in order. Rows of different tables have no common
order, so those parts are separate queries.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from streamhouse.sql import node_errors
from streamhouse.sql.expressions.binder import quote
from streamhouse.sql.plan import Merging, StreamQuery, TableInfo
from streamhouse.sql.streaming import unpaired_retractions
from streamhouse.sql.text import Script

LIKE = "like"
"""Key of a part's `meta`: the first part, whose column names it takes."""
_ROW, _KIND, _PART = "_row", "rowkind", "_part"
_OUTER_CLAUSES = ("order", "limit", "offset", "with_")


def branches(script: Script, tree: exp.Expr) -> list[exp.Expr]:
    """The SELECTs that UNION ALL combines; WITH queries must have been inlined before.

    Raises `NotStreamedError` for a UNION that removes duplicates, and for ORDER BY, LIMIT or OFFSET
    around a UNION ALL.
    """
    inner = tree.unnest() if isinstance(tree, exp.Subquery) else tree
    if isinstance(inner, exp.Union):
        return _union_branches(script, inner)
    clause = inner.args.get("from_") if isinstance(inner, exp.Select) else None
    if clause is None or not isinstance(clause.this, exp.Subquery):
        return [inner]
    below = branches(script, clause.this)
    if len(below) == 1:
        return [inner]
    selects = []
    for part in below:
        copied = inner.copy()
        subquery = copied.args["from_"].this
        while isinstance(subquery.this, exp.Subquery):
            subquery = subquery.this
        subquery.set("this", part)
        selects.append(copied)
    return selects


def _union_branches(script: Script, union: exp.Union) -> list[exp.Expr]:
    if union.args.get("distinct"):
        raise node_errors.not_streamed(script, union.expression, "UNION without ALL")
    for key in _OUTER_CLAUSES:
        if union.args.get(key):
            reason = f"{key.strip('_').upper()} around UNION ALL"
            raise node_errors.not_streamed(script, union.args[key], reason)
    first, *others = [*branches(script, union.this), *branches(script, union.expression)]
    for other in others:
        other.meta[LIKE] = first
    return [first, *others]


def merged(
    parts: Sequence[StreamQuery], ordered: bool, marks: TableInfo | None = None
) -> StreamQuery:
    """Merge parts over the same table into one query.

    With `ordered`, the parts' rows must have `_row` (before `rowkind`), and the result is sorted by
    it. `marks` is the target, if `unpaired_retractions` matter to it.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    output_columns = [quote(column.name) for column in first.rows.columns]
    output_columns += [quote(_KIND)] if first.row_kinds else []
    texts = [
        f"SELECT *, {number} AS {quote(_PART)} FROM ({part.rows.sql}) AS p{number}"
        for number, part in enumerate(parts)
    ]
    rows = f"SELECT {', '.join(output_columns)} FROM ({' UNION ALL '.join(texts)}) AS u"
    if ordered:
        rows += f" ORDER BY {quote(_ROW)}, {quote(_PART)}"
    used = {name for part in parts for name in part.scan.columns}
    misses = [part.misses_sql for part in parts if part.misses_sql is not None]
    prints = "".join(part.fingerprint for part in parts)
    upserts = dict.fromkeys(part.merging.upsert for part in parts if part.merging.upsert)
    grouped = any(part.merging.grouped for part in parts)
    query = replace(
        first,
        fingerprint=hashlib.sha256(prints.encode()).hexdigest(),
        scan=replace(
            first.scan,
            columns=tuple(c.name for c in first.source.columns if c.name in used),
            watermarks=max(part.scan.watermarks for part in parts),
        ),
        # A shuffle sends a row to one task, but each part may look up another key.
        lookups=tuple(
            replace(lookup, row_keys_sql=None) for part in parts for lookup in part.lookups
        ),
        rows=replace(first.rows, sql=rows, numbered_sql=None, passed={}),
        misses_sql=" UNION ".join(f"({sql})" for sql in misses) if misses else None,
        merging=Merging(grouped, first.merging.signed, "; ".join(upserts)),
    )
    if marks is None or not (ordered and query.row_kinds):
        return query
    return unpaired_retractions.marked(query, marks, " UNION ALL ".join(texts), (_ROW, _PART))
