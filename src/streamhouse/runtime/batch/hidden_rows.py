"""Rows of an INSERT that a deletion with a greater `sequence.field` hides."""

import pyarrow as pa

from streamhouse.paimon.read.conditions import keys_filter
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.visibility import hides_new_rows
from streamhouse.sql.options.merge_functions import sequence_fields

_MOST_KEYS = 10_000
"""More rows are not looked for: that would take as long as the INSERT."""


class WrittenKeys:
    """The keys that an INSERT writes, if its table has a `sequence.field` and they are few."""

    def __init__(self, table: Table) -> None:
        applies = table.primary_key and sequence_fields(table.options) and not hides_new_rows(table)
        self._table = table
        self._keys = list(table.primary_key) if applies else []
        self.clear()

    def clear(self) -> None:
        """Forget all keys, since the rows are read again."""
        self._rows: list[pa.Table] = []
        self._count = 0

    def add(self, rows: pa.Table) -> None:
        """Note the keys of rows."""
        self._count += rows.num_rows
        if self._keys and self._count <= _MOST_KEYS:
            self._rows.append(rows.select(self._keys))

    def hidden(self, table: Table) -> int:
        """How many of these keys `table`, at its newest snapshot, has no row of."""
        if not self._rows or self._count > _MOST_KEYS:
            return 0
        schema = table.read_schema(self._keys)
        written = pa.concat_tables(self._rows).cast(schema)
        visible = table.rows(self._keys, filter=keys_filter(schema, written))
        missing = written.join(visible, self._keys, join_type="left anti")
        return int(missing.group_by(self._keys).aggregate([]).num_rows)
