"""The changes of a view's table that turn some rows into others.

They are paired by the view's key; without a key they are a bag of rows that enter or leave.
"""

from collections.abc import Iterator

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.duckdb_engine import BATCH_ROWS
from streamhouse.operators.operator import WEIGHT
from streamhouse.operators.planning.view_plan import ViewPlan
from streamhouse.sql.expressions.binder import quote

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


def bag_changes(
    connection: duckdb.DuckDBPyConnection, delta: str
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The change of a table without a key, of the SQL of rows with `WEIGHT`: `+I` and `-D`.

    `WEIGHT` is the last column. No row enters and leaves at once.
    """
    for batch in connection.sql(delta).to_arrow_reader(BATCH_ROWS):
        rows, weights = batch.drop_columns([WEIGHT]), batch.column(WEIGHT)
        extremes = pc.min_max(weights).as_py()
        if batch.num_rows and extremes["min"] < 0:
            yield "-D", rows.filter(pc.less(weights, 0))
            rows, weights = (each.filter(pc.greater(weights, 0)) for each in (rows, weights))
        if extremes["max"] is not None and extremes["max"] > 1:
            rows = rows.take(pa.array(np.repeat(np.arange(rows.num_rows), weights.to_numpy())))
        if rows.num_rows:
            yield "+I", rows


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
