"""Counts the rows that a statement changes, and checks that it changes none twice."""

import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.errors import TableError
from streamhouse.paimon.read.key_set import KeySet
from streamhouse.paimon.read.table import Table
from streamhouse.runtime.batch.row_kinds import actions_of, after, before
from streamhouse.sql.plan import ROW, DmlQuery


class ChangeCount:
    """Counts the changes of one try; keeps the keys of changed rows for `check`."""

    def __init__(self, table: Table, change: DmlQuery) -> None:
        self._table = table
        self._change = change
        self._changed: list[pa.Table] = []
        self._inserted: list[pa.Table] = []
        self.inserted = 0
        self.updated = 0
        self.deleted = 0

    @property
    def any(self) -> bool:
        """Whether anything is changed."""
        return bool(self.inserted or self.updated or self.deleted)

    def add(self, batch: pa.Table) -> None:
        """Count a batch of changes."""
        actions = actions_of(self._change, batch)
        new = pc.fill_null(pc.equal(actions, "insert"), False)
        updated, deleted = (pc.fill_null(pc.equal(actions, a), False) for a in ("update", "delete"))
        self.inserted += new.true_count
        self.updated += updated.true_count
        self.deleted += deleted.true_count
        if not self._change.joined:
            return
        keys = list(self._table.primary_key)
        changed = pc.or_(updated, deleted)
        rows = before(self._table, batch).append_column(ROW, batch.column(1))
        self._changed.append(
            rows.filter(changed).select([*(keys or self._identifying_columns), ROW])
        )
        if keys:
            self._inserted.append(after(self._table, batch).filter(new).select(keys))

    @property
    def _identifying_columns(self) -> list[str]:
        """The columns that identify a row in error messages, for a table without a primary key."""
        return [column.name for column in self._table.columns[:3]]

    def check(self) -> None:
        """Raise `TableError` if a row is changed twice, or a key inserted twice."""
        keys = list(self._table.primary_key)
        duplicate = _first_duplicate(self._changed, [ROW])
        if duplicate is not None:
            row = {name: duplicate[name] for name in keys or self._identifying_columns}
            raise TableError(
                f"MERGE into {self._table.identifier}: several rows of the source match the row "
                f"{_text(row)}, so the result is undefined; reduce the source to one "
                "row for each target row (SELECT DISTINCT, GROUP BY), or narrow ON or WHEN "
                "MATCHED AND"
            )
        duplicate = _first_duplicate(self._inserted, keys)
        if duplicate is not None:
            raise TableError(
                f"MERGE into {self._table.identifier}: several rows of the source are inserted "
                f"with the primary key {_text(duplicate)}; reduce the source to one row "
                "for each key (SELECT DISTINCT, GROUP BY)"
            )


def _first_duplicate(parts: list[pa.Table], keys: list[str]) -> dict[str, object] | None:
    """The first row whose `keys` occur twice; None if there is none."""
    if not parts or not keys:
        return None
    rows = pa.concat_tables(parts)
    counts = rows.group_by(keys).aggregate([([], "count_all")])
    duplicates = counts.filter(pc.greater(counts.column("count_all"), 1))
    if duplicates.num_rows == 0:
        return None
    first = duplicates.slice(0, 1).select(keys)
    row: dict[str, object] = KeySet(first).rows(rows).slice(0, 1).to_pylist()[0]
    return row


def _text(row: dict[str, object]) -> str:
    return "(" + ", ".join(f"{name} = {value!r}" for name, value in row.items()) + ")"
