"""Hashes of the rows of a query, whose sum does not depend on their order.

docs/decisions/248-etags-are-of-rows.md says why.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from streamhouse.sql.plan import BoundedQuery

_MASK = (1 << 64) - 1


def added(plan: BoundedQuery) -> BoundedQuery:
    """The query with one more column, the last: a hash of the row."""
    row, names = "row", {name.lower() for name in plan.output}
    while row in names:
        row += "_"
    # Of the text: DuckDB's hashes of [[1, 2]] and [[1], [2]], and of 0.0 and -0.0, are equal.
    sql = f'SELECT *, hash(CAST("{row}" AS VARCHAR)) FROM ({plan.sql}) AS "{row}"'
    return replace(plan, sql=sql, output=(*plan.output, row))


class RowHashes:
    """The number of the rows, and the sum of their hashes."""

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0

    def removed(self, reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
        """The rows without their hashes, which are counted as the rows are read."""
        schema = pa.schema(list(reader.schema)[:-1])

        def rows() -> Iterator[pa.RecordBatch]:
            for batch in reader:
                self.count += batch.num_rows
                self.sum = (self.sum + sum(batch.column(-1).to_pylist())) & _MASK
                yield pa.record_batch(batch.columns[:-1], schema=schema)

        return pa.RecordBatchReader.from_batches(schema, rows())
