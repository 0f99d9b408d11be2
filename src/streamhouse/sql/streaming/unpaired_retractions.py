"""Writes `-D` for the `-U` of an update whose `+U` is not in the query's result.

A WHERE, an INNER lookup or a changed key may drop the `+U`: the row has left the result. A
`partial-update` table with `remove-record-on-delete` removes the record then, and the key may occur
again later in the same batch. Its writer must not take the two rows for one update, which keeps old
values where the new row has nulls (decision 160).
"""

from collections.abc import Sequence
from dataclasses import replace

from streamhouse.sql.expressions.binder import quote
from streamhouse.sql.options.merge_functions import removes_records
from streamhouse.sql.plan import StreamQuery, TableInfo

_ROW, _KIND = quote("_row"), quote("rowkind")


def are_removals(target: TableInfo | None) -> bool:
    """Whether the target distinguishes an update from a removal and a later row of its key."""
    if target is None or target.options.get("merge-engine") != "partial-update":
        return False
    return removes_records(target.options)


def marked(
    query: StreamQuery, target: TableInfo, rows: str | None = None, order: Sequence[str] = ("_row",)
) -> StreamQuery:
    """The query with `-D` for each `-U` whose `+U` is not in the result.

    `rows` is SQL for its rows, by default `OutputRows.sql`, with `_row` and the columns of `order`.
    """
    key = [c.name for c in query.rows.columns if c.name in target.primary_key]
    source_key = query.source.primary_key
    outputs = ", ".join(f"o.{quote(column.name)}" for column in query.rows.columns)
    keys = ", ".join(quote(name) for name in source_key)
    # A batch may reorder the changes, but not those of one key of the source.
    window = f"({f'PARTITION BY {keys} ' if keys else ''}ORDER BY {_ROW})"
    text = f"""
WITH _rows AS MATERIALIZED ({rows or query.rows.sql}),
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
    output = replace(query.rows, sql=text.strip(), numbered_sql=None)
    return replace(query.reading(source_key), rows=output)


def _equal(one: str, other: str, columns: Sequence[str]) -> str:
    return "".join(
        f" AND {one}.{quote(name)} IS NOT DISTINCT FROM {other}.{quote(name)}" for name in columns
    )
