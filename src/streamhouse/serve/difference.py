"""What changed between two states of a table, as rows with row kinds.

DuckDB compares, and gives row numbers only: the values themselves are taken from the two Arrow
tables, so that no type takes a detour. Columns are renamed for it, since its names ignore case.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from streamhouse.source import ROW_KIND

if TYPE_CHECKING:
    import duckdb

_ROW = "row"


class Differ:
    """Compares states of one table; holds an in-memory DuckDB until `close`."""

    def __init__(self) -> None:
        import duckdb

        self._connection: duckdb.DuckDBPyConnection = duckdb.connect(
            ":memory:", config={"threads": 2, "python_enable_replacements": "false"}
        )

    def close(self) -> None:
        """Free what DuckDB holds."""
        self._connection.close()

    def by_key(self, old: pa.Table, new: pa.Table, key: Sequence[str]) -> pa.Table:
        """Changes that make `new` of `old`, in the order of the key, -U just before its +U.

        Both have the same columns; the key is unique in each. Returns `rowkind`, then the columns.
        """
        names = new.schema.names
        keys = [names.index(name) for name in key]
        rest = [i for i in range(len(names)) if i not in keys]
        joined = " AND ".join(f"o.c{i} = n.c{i}" for i in keys)
        changed = " OR ".join(f"o.c{i} IS DISTINCT FROM n.c{i}" for i in rest) or "false"
        order = ", ".join(f"coalesce(o.c{i}, n.c{i})" for i in keys)
        return self._rows(
            old,
            new,
            f"SELECT o.{_ROW} AS o, n.{_ROW} AS n FROM old o FULL OUTER JOIN new n ON {joined} "
            f"WHERE o.{_ROW} IS NULL OR n.{_ROW} IS NULL OR {changed} ORDER BY {order}",
        )

    def by_row(self, old: pa.Table, new: pa.Table) -> pa.Table:
        """As `by_key` for tables without a key: rows that are gone (-D), then new ones (+I)."""
        columns = ", ".join(f"c{i}" for i in range(new.num_columns))
        # Equal rows are told apart by their running number, as EXCEPT ALL counts them.
        number = f"row_number() OVER (PARTITION BY {columns} ORDER BY {_ROW}) AS copy"
        same = " AND ".join(f"o.c{i} IS NOT DISTINCT FROM n.c{i}" for i in range(new.num_columns))
        return self._rows(
            old,
            new,
            f"SELECT o.{_ROW} AS o, n.{_ROW} AS n "
            f"FROM (SELECT *, {number} FROM old) o "
            f"FULL OUTER JOIN (SELECT *, {number} FROM new) n ON o.copy = n.copy AND {same} "
            f"WHERE o.{_ROW} IS NULL OR n.{_ROW} IS NULL "
            f"ORDER BY n.{_ROW} NULLS FIRST, o.{_ROW}",
        )

    def _rows(self, old: pa.Table, new: pa.Table, query: str) -> pa.Table:
        self._connection.register("old", _numbered(old))
        self._connection.register("new", _numbered(new))
        try:
            pairs = self._connection.sql(query).to_arrow_table()
        finally:
            self._connection.unregister("old")
            self._connection.unregister("new")
        return _changes(old, new, pairs.column("o").to_pylist(), pairs.column("n").to_pylist())


def _changes(
    old: pa.Table, new: pa.Table, olds: Sequence[int | None], news: Sequence[int | None]
) -> pa.Table:
    kinds: list[str] = []
    rows: list[int] = []
    for o, n in zip(olds, news, strict=True):
        if o is not None:
            kinds.append("-D" if n is None else "-U")
            rows.append(o)
        if n is not None:
            kinds.append("+I" if o is None else "+U")
            rows.append(old.num_rows + n)
    both = pa.concat_tables([old, new])
    return both.take(pa.array(rows, pa.int64())).add_column(
        0, ROW_KIND, pa.array(kinds, pa.string())
    )


def _numbered(table: pa.Table) -> pa.Table:
    named = table.rename_columns([f"c{i}" for i in range(table.num_columns)])
    return named.append_column(_ROW, pa.array(range(table.num_rows), pa.int64()))
