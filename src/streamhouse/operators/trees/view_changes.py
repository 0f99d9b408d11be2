"""The changes of a view's table that turn some rows into others, paired by the view's key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from streamhouse.duckdb_engine import BATCH_ROWS
from streamhouse.operators.planning.view_plan import ViewPlan
from streamhouse.sql.expressions.binder import quote

if TYPE_CHECKING:
    import duckdb

_CHANGES = "view_changes"


def view_changes(
    connection: duckdb.DuckDBPyConnection, plan: ViewPlan, old: str, new: str, updates: bool = True
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The changes that turn the rows of relation `old` into those of `new`: row kinds, with rows.

    First all that leave (`-D`, `-U`), then all that enter (`+U`, `+I`). Without `updates` those
    that others replace (`-U`) are left out.
    """
    connection.execute(_difference(plan, old, new))
    for kind, sql in _parts(plan):
        if kind == "-U" and not updates:
            continue
        for batch in connection.sql(sql).to_arrow_reader(BATCH_ROWS):
            if batch.num_rows:
                yield kind, batch


def _difference(plan: ViewPlan, old: str, new: str) -> str:
    """Creates the table of changes: columns `o0`, … of the old rows, `n0`, … of the new ones."""
    names = [column.name for column in plan.columns]
    before = ", ".join(f"{quote(name)} AS o{i}" for i, name in enumerate(names))
    after = ", ".join(f"{quote(name)} AS n{i}" for i, name in enumerate(names))
    joined, differs = [], []
    for i, column in enumerate(plan.columns):
        if column.name in plan.key:
            joined.append(f"o{i} = n{i}")
            if column.type in ("DOUBLE", "FLOAT"):
                # Paimon's keys tell 0.0 from -0.0, and DuckDB's do not.
                joined.append(f"CAST(o{i} AS VARCHAR) = CAST(n{i} AS VARCHAR)")
            continue
        differs.append(f"o{i} IS DISTINCT FROM n{i}")
        if column.type in ("DOUBLE", "FLOAT"):
            differs[-1] += f" OR signbit(o{i}) <> signbit(n{i}) AND NOT isnan(n{i})"
    first = names.index(plan.key[0])
    where = " OR ".join([f"o{first} IS NULL", f"n{first} IS NULL", *differs])
    return (
        f"CREATE TEMP TABLE {_CHANGES} AS SELECT * FROM (SELECT {before} FROM {old} AS a) AS o "
        f"FULL OUTER JOIN (SELECT {after} FROM {new} AS b) AS n "
        f"ON {' AND '.join(joined)} WHERE {where}"
    )


def _parts(plan: ViewPlan) -> Iterator[tuple[str, str]]:
    """The row kinds, each with the SQL of its rows."""
    names = [column.name for column in plan.columns]
    first = names.index(plan.key[0])
    gone, fresh = f"n{first} IS NULL", f"o{first} IS NULL"
    for kind, side, where in (
        ("-D", "o", gone),
        ("-U", "o", f"NOT ({gone} OR {fresh})"),
        ("+U", "n", f"NOT ({gone} OR {fresh})"),
        ("+I", "n", fresh),
    ):
        columns = ", ".join(f"{side}{i} AS {quote(n)}" for i, n in enumerate(names))
        yield kind, f"SELECT {columns} FROM {_CHANGES} WHERE {where}"
