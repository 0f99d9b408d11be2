"""State of COUNT(DISTINCT …): the table `<target>__distinct` counts each value.

One row per value of a group: `_query` (the query's id), `_column` (the target's column that counts
it), the group (the target's key), `_value` (as text) and `_count`: the number of rows with the
value, less the number of its retractions. A batch reads the counts of its values at the snapshot in
its offset, so a replay has the same result: a value whose count rises from 0 adds one to the
target's column, a value whose count returns to 0 subtracts one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from streamhouse.duckdb_connection import CONTINUOUS_QUERY, LastingConnection
from streamhouse.errors import StreamhouseError
from streamhouse.lookup.dimension import DimensionSpec
from streamhouse.lookup.options import CacheOptions
from streamhouse.lookup.strategies.partial import PartialDimension
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.schema.table_name import split_identifier
from streamhouse.runtime.query_operator import conformed
from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.sql.expressions.binder import quote
from streamhouse.sql.plan import Column, DistinctCounts, LookupJoin, TableInfo
from streamhouse.sql.streaming.count_distinct import COLUMN, COUNT, VALUE

QUERY = "_query"


def columns_of(counts: DistinctCounts) -> tuple[Column, ...]:
    """The columns of the `__distinct` table; all but the last are its primary key."""
    return (
        Column(QUERY, "STRING", False),
        Column(COLUMN, "STRING", False),
        *(replace(key, nullable=False) for key in counts.keys),
        Column(VALUE, "STRING", False),
        Column(COUNT, "BIGINT"),
    )


def create_table(address: TableAddress, counts: DistinctCounts, target: TableAddress) -> None:
    """Create the `__distinct` table if it does not exist."""
    columns = columns_of(counts)
    database, name = split_identifier(address.identifier)
    options = {
        "bucket": str(max(1, target.open().bucket)),
        "merge-engine": "aggregation",
        f"fields.{COUNT}.aggregate-function": "sum",
    }
    Warehouse(address.warehouse).create_table(
        database, name, columns, [c.name for c in columns[:-1]], options=options, if_not_exists=True
    )


class DistinctValues:
    """Computes the distinct counts of one query in one executor process. Not thread-safe."""

    def __init__(self, spec: QuerySpec) -> None:
        assert spec.query.distinct is not None and spec.distinct is not None
        self._spec = spec
        self._counts = counts = spec.query.distinct
        self._group = [column.name for column in counts.keys]
        columns = columns_of(counts)
        self._key = [column.name for column in columns[:-1]]
        names = tuple(column.name for column in columns)
        table = TableInfo(("", *split_identifier(spec.distinct.identifier)), columns,
                          primary_key=tuple(self._key))  # fmt: skip
        lookup = LookupJoin(table, "distinct", names, tuple(self._key), True)
        self._table = PartialDimension(
            DimensionSpec(lookup, spec.distinct.warehouse, spec.distinct.identifier),
            CacheOptions(),
        )
        self._schema = spec.distinct.open().arrow_schema
        self._db = LastingConnection(threads=1, memory_limit=CONTINUOUS_QUERY)

    def changes(self, parts: Sequence[pa.Table]) -> pa.Table:
        """The summed changes of values in several chunks, as rows of the `__distinct` table."""
        if not any(part.num_rows for part in parts):
            return self._schema.empty_table()
        rows = pa.concat_tables(parts)
        ids = pa.repeat(pa.scalar(self._spec.query_id), rows.num_rows)
        key = _listed(self._key)
        summed = self._db.run(
            f"SELECT {key}, CAST(SUM({COUNT}) AS BIGINT) AS {COUNT} FROM whole "
            f"GROUP BY {key} HAVING SUM({COUNT}) <> 0",
            whole=rows.append_column(QUERY, ids),
        )
        return conformed(summed.select(self._schema.names), self._schema)

    def counted(self, rows: pa.Table, changes: pa.Table, snapshot: int) -> pa.Table:
        """The rows for the target with the effect of `changes` on its distinct counts.

        `snapshot` is the snapshot of the `__distinct` table before the changes (0: before the
        first). Raises `StreamhouseError` if a value is retracted more often than it was added.
        """
        if changes.num_rows == 0:
            return rows
        self._table.at(snapshot or None)
        before = self._table.rows(changes.select(self._key))
        found = self._db.run(
            f"SELECT c.*, COALESCE(b.{COUNT}, 0) AS _before FROM changes AS c "
            f"LEFT JOIN before AS b USING ({_listed(self._key)})",
            changes=changes,
            before=before,
        )
        self._check(found)
        moved = self._db.run(
            f"SELECT {_listed(self._group)}, {COLUMN}, CAST(SUM(CASE WHEN _before = 0 THEN 1 "
            f"WHEN _before + {COUNT} = 0 THEN -1 ELSE 0 END) AS BIGINT) AS _by FROM found "
            f"GROUP BY {_listed(self._group)}, {COLUMN}",
            found=found,
        )
        return conformed(self._added(rows, moved), rows.schema)

    def _added(self, rows: pa.Table, moved: pa.Table) -> pa.Table:
        """The rows with each group's change of its counts added to the last row of the group."""
        group = _listed(self._group)
        expressions = []
        for name in rows.column_names:
            column = f"r.{quote(name)}"
            if name in self._counts.columns:
                column = (
                    f"{column} + CASE WHEN r._last THEN COALESCE(m.{quote(name)}, 0) ELSE 0 END"
                )
            expressions.append(f"{column} AS {quote(name)}")
        # One column for each counted one.
        sums = [
            f"CAST(SUM(CASE WHEN {COLUMN} = {_text(name)} THEN _by END) AS BIGINT) AS {quote(name)}"
            for name in self._counts.columns
        ]
        numbers = pa.array(range(rows.num_rows), pa.int64())
        return self._db.run(
            f"SELECT {', '.join(expressions)} FROM "
            f"(SELECT *, ROW_NUMBER() OVER (PARTITION BY {group} ORDER BY _place DESC) = 1 "
            "AS _last FROM rows_) AS r "
            f"LEFT JOIN (SELECT {group}, {', '.join(sums)} FROM moved GROUP BY {group}) AS m "
            f"USING ({group}) ORDER BY r._place",
            rows_=rows.append_column("_place", numbers),
            moved=moved,
        )

    def _check(self, found: pa.Table) -> None:
        wrong = self._db.run(
            f"SELECT * FROM found WHERE _before + {COUNT} < 0 LIMIT 1", found=found
        )
        for row in wrong.to_pylist():
            group = ", ".join(f"{name} = {row[name]}" for name in self._group)
            raise StreamhouseError(
                f"table {self._spec.target.identifier}: the value '{row[VALUE]}' of column "
                f"'{row[COLUMN]}' ({group}) is retracted {-row[COUNT]} time(s) and was counted "
                f"{row['_before']} time(s): the changes do not match the rows that were read "
                "before. If a lookup supplies the value or the group, keep the joined rows in a "
                "table with a primary key and count those; then run the script once with "
                "--from-scratch"
            )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(quote(name) for name in names)


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
