"""Counts distinct values again, in memory, for audits; independent of `state.distinct_counts`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

import pyarrow as pa

from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.runtime.state.distinct_counts import QUERY
from streamhouse.sql.plan import DistinctCounts
from streamhouse.sql.streaming.count_distinct import COLUMN, COUNT, VALUE

_Value = tuple[Hashable, ...]


class DistinctRecount:
    """The count of each value in each group of one query.

    `at` is the snapshot of the query's `__distinct` table with the initial counts; 0: no values.
    """

    def __init__(self, counts: DistinctCounts, address: TableAddress, query_id: str, at: int):
        self._counts = counts
        self._group = [column.name for column in counts.keys]
        self._totals: Counter[_Value] = Counter()
        if at:
            condition = {"method": "equal", "field": QUERY, "literals": [query_id]}
            for batch in address.open().read(snapshot=at, filter=condition):
                for row in batch.to_pylist():
                    if row[QUERY] == query_id and row[COUNT]:
                        self._totals[self._value(row)] = row[COUNT]

    def rows(self, out: pa.Table, values: Iterable[pa.Table]) -> pa.Table:
        """A batch's output with its distinct counts; `values` are the values of its input rows."""
        touched: dict[tuple[Hashable, ...], set[_Value]] = {}
        before: dict[_Value, bool] = {}
        for table in values:
            for row in table.to_pylist():
                value = self._value(row)
                before.setdefault(value, self._totals[value] > 0)
                self._totals[value] += row[COUNT]
                if not self._totals[value]:
                    del self._totals[value]
                touched.setdefault(value[:-1], set()).add(value)
        deltas = {
            group: sum((self._totals[value] > 0) - before[value] for value in group_values)
            for group, group_values in touched.items()
        }
        return self._with_deltas(out, deltas)

    def _with_deltas(self, out: pa.Table, deltas: dict[tuple[Hashable, ...], int]) -> pa.Table:
        keys = list(zip(*(out.column(name).to_pylist() for name in self._group), strict=True))
        for name in self._counts.columns:
            index = out.schema.get_field_index(name)
            # If a group has several rows, the whole change is added to the first of them.
            changes = [deltas.pop((*key, name), 0) for key in keys]
            totals = [
                old + change
                for old, change in zip(out.column(index).to_pylist(), changes, strict=True)
            ]
            field = out.schema.field(index)
            out = out.set_column(index, field, pa.array(totals, pa.int64()).cast(field.type))
        return out

    def _value(self, row: dict[str, Hashable]) -> _Value:
        group: Sequence[Hashable] = [row[name] for name in self._group]
        return (*group, row[COLUMN], row[VALUE])
