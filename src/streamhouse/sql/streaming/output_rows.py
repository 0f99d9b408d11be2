"""The output rows of a stream, from its SELECT or from those that UNION ALL combines.

The parts of UNION ALL over one table are one query, which returns their rows in the order of the
table's changes. So if an update moves a row from one part to another, the retraction and the insert
stay in order. Rows of different tables have no common order, so those parts are separate queries.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlglot import exp

from streamhouse.sql.expressions.binder import generate, quote
from streamhouse.sql.options.merge_functions import keeps_removals_apart
from streamhouse.sql.plan import Column, LookupJoin, Merging, OutputRows
from streamhouse.sql.resolution import columns as names
from streamhouse.sql.resolution import versions
from streamhouse.sql.resolution.insert_target import needs_order
from streamhouse.sql.streaming.generated_sql import ROW, ROW_KIND, SOURCE, lookup_join, misses, rows
from streamhouse.sql.streaming.stream_select import StreamSelect
from streamhouse.sql.udf.function import PythonFunction

_PART = "_part"


@dataclass(frozen=True)
class Part:
    """One SELECT of a query, `top`; `items` are its projections, cast to the types of `columns`.

    `combined`: its rows are put in order together with other rows, so they need their numbers.
    `watermarks` is that of `StreamScan`, and `timed` has its tree.
    """

    top: StreamSelect
    items: Sequence[exp.Expr]
    columns: tuple[Column, ...]
    merging: Merging
    combined: bool
    watermarks: str
    timed: Sequence[exp.Expr]

    @property
    def row_kinds(self) -> bool:
        """Whether the rows end with `rowkind`."""
        return self.top.source.changelog and not self.merging.signed

    @property
    def row_names(self) -> list[str]:
        names = [column.name for column in self.columns]
        return [*names, ROW_KIND] if self.row_kinds else names

    @property
    def reordered(self) -> bool:
        """Whether lookups may reorder the rows, although their order matters."""
        # The changes of one key must stay in order.
        hinted = any(lookup.join.ordered for lookup in self.top.lookups)
        matters = hinted or self.row_kinds or needs_order(self.top.target)
        return bool(self.top.lookups) and not self.merging.grouped and matters

    @cached_property
    def tree(self) -> exp.Select:
        """The rows in any order; with `_row` after the columns if they are to be ordered."""
        output = [column.name for column in self.columns]
        numbered = self.combined or self.reordered
        return rows(self.top, self.items, output, self.merging.signed, numbered)

    @cached_property
    def sql(self) -> str:
        """SQL for the `tree`."""
        return generate(self.tree)

    @property
    def ordered_sql(self) -> str:
        """SQL for the rows, in the order of the source if that matters."""
        ordered = _selected(self.row_names, f"({self.sql}) AS numbered", [ROW])
        return ordered if self.reordered else self.sql

    @cached_property
    def misses(self) -> exp.Expr | None:
        """`_row` of the rows that wait for a lookup; see `StreamQuery.misses_sql`."""
        return misses(self.top)

    @property
    def _trees(self) -> list[exp.Expr]:
        return [self.tree] if self.misses is None else [self.tree, self.misses]

    @cached_property
    def source_columns(self) -> tuple[str, ...]:
        """The columns of the source that the part reads."""
        source = self.top.source
        read = names.columns_read([*self._trees, *self.timed])
        used = names.used_columns(read, SOURCE, source)
        # A source must be read even when none of its columns is needed (SELECT 1 FROM t).
        return used or (source.columns[0].name,)

    @cached_property
    def lookups(self) -> tuple[LookupJoin, ...]:
        """The lookups, with the SQL of the keys that they look up."""
        return tuple(lookup_join(self.top, each, self._trees) for each in self.top.lookups)

    @property
    def passed(self) -> dict[str, str]:
        """The source columns whose values output columns have, unconverted, by their names.

        Those for which this is certain: each row is one of the source.
        """
        top = self.top
        if top.lookups or top.group:
            return {}
        kinds = {column.name: column.type for column in top.source.columns}
        items = (item.this if isinstance(item, exp.Cast) else item for item in self.items)
        pairs = zip(map(top.source_column, items), self.columns, strict=True)
        return {c.name: name for name, c in pairs if name and kinds[name] == c.type}


def output_rows(parts: Sequence[Part], functions: tuple[PythonFunction, ...]) -> OutputRows:
    """The rows of a query with these parts over one table; `functions`: those that they call."""
    first, columns, top = parts[0], parts[0].columns, parts[0].top
    target = top.target
    marks = first.row_kinds and target is not None and keeps_removals_apart(target.options)
    texts = [part.sql if part.combined else part.ordered_sql for part in parts]
    if len(parts) > 1:
        numbered_parts = (
            f"SELECT *, {number} AS {quote(_PART)} FROM ({text}) AS p{number}"
            for number, text in enumerate(texts)
        )
        rows, by = " UNION ALL ".join(numbered_parts), [ROW, _PART]
        if marks:
            rows = _with_removals(rows, columns, top, by)
        else:
            rows = _selected(first.row_names, f"({rows}) AS u", by if first.combined else [])
        return OutputRows(rows, columns, functions=functions)
    passed, (rows,) = first.passed, texts
    if marks:
        rows = _with_removals(rows, columns, top, [ROW])
        return OutputRows(rows, columns, functions=functions, passed=passed)
    if first.row_kinds and versions.keeps_versions(top.target):
        return OutputRows(versions.kept(rows, columns), columns, functions=functions)
    numbered = first.sql if first.reordered else None
    copies = len(passed) == len(columns) and not top.where
    return OutputRows(rows, columns, numbered, functions, passed, copies)


def _selected(names: Sequence[str], rows: str, order: Sequence[str]) -> str:
    by = f" ORDER BY {', '.join(map(quote, order))}" if order else ""
    return f"SELECT {', '.join(map(quote, names))} FROM {rows}{by}"


def _with_removals(
    rows: str, columns: Sequence[Column], top: StreamSelect, order: Sequence[str]
) -> str:
    """SQL for rows with `-D` for each `-U` whose `+U` is not among them.

    A WHERE, an INNER lookup or a changed key may drop the `+U`: the row has left the result. A
    `partial-update` table with `remove-record-on-delete` removes the record then, and the key may
    occur again later in the same batch. Its writer must not take the two rows for one update, which
    keeps old values where the new row has nulls (decision 224).

    `rows` is SQL for the rows, with the output `columns` of `top`, then `_row`, `rowkind` and what
    else `order` has, by which the result is sorted.
    """
    assert top.target is not None
    row, kind = quote(ROW), quote(ROW_KIND)
    key = [column.name for column in columns if column.name in top.target.primary_key]
    outputs = ", ".join(f"o.{quote(column.name)}" for column in columns)
    keys = ", ".join(map(quote, top.source.primary_key))
    same = "".join(f" AND n.{name} IS NOT DISTINCT FROM o.{name}" for name in map(quote, key))
    # A batch may reorder the changes, but not those of one key of the source.
    window = f"({f'PARTITION BY {keys} ' if keys else ''}ORDER BY {row})"
    text = f"""
WITH _rows AS MATERIALIZED ({rows}),
_nexts AS (
  SELECT {row}, {kind}, LEAD({row}) OVER w AS _next, LEAD({kind}) OVER w AS _next_kind
  FROM src WINDOW w AS {window}
),
_pairs AS (SELECT {row}, _next FROM _nexts WHERE {kind} = '-U' AND _next_kind = '+U')
SELECT {outputs}, CASE WHEN p.{row} IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM _rows AS n WHERE n.{row} = p._next{same})
  THEN '-D' ELSE o.{kind} END AS {kind}
FROM _rows AS o LEFT JOIN _pairs AS p ON p.{row} = o.{row}
ORDER BY {", ".join(f"o.{quote(name)}" for name in order)}"""
    return text.strip()
