"""UNION ALL of streams: merges parts over the same table.

They become one query, which returns their rows in the order of the table's changes. So if an update
moves a row from one part to another, the retraction and the insert stay in order. Rows of different
tables have no common order, so those parts are separate queries.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from streamhouse.sql.expressions.binder import quote
from streamhouse.sql.plan import Merging, StreamQuery, TableInfo
from streamhouse.sql.streaming import unpaired_retractions

_ROW, _KIND, _PART = "_row", "rowkind", "_part"


def merged(
    parts: Sequence[StreamQuery], ordered: bool, marks: TableInfo | None = None
) -> StreamQuery:
    """Merge parts over the same table into one query.

    With `ordered`, the parts' rows must have `_row` (before `rowkind`), and the result is sorted by
    it. `marks` is the target, if `unpaired_retractions` matter to it.
    """
    first = parts[0]
    output_columns = [quote(column.name) for column in first.rows.columns]
    output_columns += [quote(_KIND)] if first.row_kinds else []
    texts = [
        f"SELECT *, {number} AS {quote(_PART)} FROM ({part.rows.sql}) AS p{number}"
        for number, part in enumerate(parts)
    ]
    rows = f"SELECT {', '.join(output_columns)} FROM ({' UNION ALL '.join(texts)}) AS u"
    if ordered:
        rows += f" ORDER BY {quote(_ROW)}, {quote(_PART)}"
    misses = [part.misses_sql for part in parts if part.misses_sql is not None]
    prints = "".join(part.fingerprint for part in parts)
    upserts = dict.fromkeys(part.merging.upsert for part in parts if part.merging.upsert)
    grouped = any(part.merging.grouped for part in parts)
    scan = first.reading(name for part in parts for name in part.scan.columns).scan
    query = replace(
        first,
        scan=replace(scan, watermarks=max(part.scan.watermarks for part in parts)),
        fingerprint=hashlib.sha256(prints.encode()).hexdigest(),
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
