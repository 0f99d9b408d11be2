"""Writes `-D` for the `-U` of an update whose `+U` is not in the query's result.

A WHERE, an INNER lookup or a changed key may drop the `+U`: the row has left the result. A
`partial-update` table with `remove-record-on-delete` removes the record then, and the key may occur
again later in the same batch. Its writer must not take the two rows for one update, which keeps old
values where the new row has nulls (decision 160).
"""

from collections.abc import Sequence

from streamhouse.sql.expressions.binder import quote
from streamhouse.sql.options.merge_functions import removes_records
from streamhouse.sql.plan import Column, TableInfo
from streamhouse.sql.streaming.stream_select import StreamSelect

_ROW, _KIND = quote("_row"), quote("rowkind")


def are_removals(target: TableInfo | None) -> bool:
    """Whether the target distinguishes an update from a removal and a later row of its key."""
    if target is None or target.options.get("merge-engine") != "partial-update":
        return False
    return removes_records(target.options)


def marked(rows: str, columns: Sequence[Column], top: StreamSelect, order: Sequence[str]) -> str:
    """SQL for rows with `-D` for each `-U` whose `+U` is not among them.

    `rows` is SQL for the rows, with the output `columns` of `top`, then `_row`, `rowkind` and what
    else `order` has, by which the result is sorted.
    """
    assert top.target is not None
    key = [column.name for column in columns if column.name in top.target.primary_key]
    outputs = ", ".join(f"o.{quote(column.name)}" for column in columns)
    keys = ", ".join(map(quote, top.source.primary_key))
    # A batch may reorder the changes, but not those of one key of the source.
    window = f"({f'PARTITION BY {keys} ' if keys else ''}ORDER BY {_ROW})"
    text = f"""
WITH _rows AS MATERIALIZED ({rows}),
_nexts AS (
  SELECT {_ROW}, {_KIND}, LEAD({_ROW}) OVER w AS _next, LEAD({_KIND}) OVER w AS _next_kind
  FROM src WINDOW w AS {window}
),
_pairs AS (SELECT {_ROW}, _next FROM _nexts WHERE {_KIND} = '-U' AND _next_kind = '+U')
SELECT {outputs}, CASE WHEN p.{_ROW} IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM _rows AS n WHERE n.{_ROW} = p._next{_equal("n", "o", key)})
  THEN '-D' ELSE o.{_KIND} END AS {_KIND}
FROM _rows AS o LEFT JOIN _pairs AS p ON p.{_ROW} = o.{_ROW}
ORDER BY {", ".join(f"o.{quote(name)}" for name in order)}"""
    return text.strip()


def _equal(one: str, other: str, columns: Sequence[str]) -> str:
    return "".join(
        f" AND {one}.{quote(name)} IS NOT DISTINCT FROM {other}.{quote(name)}" for name in columns
    )
