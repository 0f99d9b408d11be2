"""The changes of many snapshots in a row, from one read of the rows as they were before them.

Only where the last row written is the row: then a commit's own files say what its keys are after
it, and what they were before is known from the commits before, down to one read of the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pypaimon_rust.datafusion import Split

from streamhouse.paimon.changes import (
    MOST_KEYS,
    Difference,
    bucket_folder,
    gathered,
    hides_new_rows,
    keys_of,
)
from streamhouse.paimon.difference import Differ
from streamhouse.paimon.pieces import file_ids
from streamhouse.paimon.table import Table
from streamhouse.source import ROW_KIND


def last_row_wins(table: Table) -> bool:
    """Whether the newest version of a key, by the order of commits alone, is its row."""
    options = table.options
    return (
        options.get("merge-engine", "deduplicate") == "deduplicate"
        and "sequence.field" not in options
        and options.get("ignore-delete", "false") == "false"
        and not hides_new_rows(table)
    )


def stretches(
    table: Table, groups: Sequence[tuple[bytes, ...] | Difference]
) -> Iterator[list[tuple[bytes, ...] | Difference]]:
    """The groups of a piece in order, those together that `successive_changes` can read."""
    simple = last_row_wins(table)
    stretch: list[tuple[bytes, ...] | Difference] = []
    rows = 0
    for group in groups:
        count = _rows(group) if simple and isinstance(group, Difference) else None
        if count is None or rows + count > MOST_KEYS:
            if stretch:
                yield stretch
            stretch, rows = [], 0
        if count is None or count > MOST_KEYS:
            yield [group]
        else:
            stretch.append(group)
            rows += count
    if stretch:
        yield stretch


def successive_changes(
    table: Table, stretch: Sequence[Difference], columns: Sequence[str], differ: Differ
) -> Iterator[pa.RecordBatch]:
    """As `changed_rows` of each difference, one after the other."""
    key = table.primary_key
    wanted = [*columns, *(name for name in key if name not in columns)]
    schema = table.read_schema(columns, row_kind=True)
    parts: dict[str, list[Difference]] = {}
    for one in stretch:
        parts.setdefault(bucket_folder(one.written[0]), []).append(one)
    states = {
        folder: gathered(
            table,
            wanted,
            found[0].old,
            keys_of(table, [split for one in found for split in one.written]),
        )
        for folder, found in parts.items()
    }
    for one in stretch:
        folder = bucket_folder(one.written[0])
        old = states[folder]
        written = _written(table, wanted, one, old.schema)
        kept = differ.without(old, written.select(list(key)), key)
        there = pc.invert(pc.starts_with(written.column(ROW_KIND), "-"))
        states[folder] = pa.concat_tables([kept, written.filter(there).select(wanted)])
        found = differ.by_key(old, states[folder], key)
        yield from found.select([*columns, ROW_KIND]).cast(schema).to_batches()


def is_simple(table: Table, difference: Difference) -> bool:
    """Whether `successive_changes` can read a difference, alone or with others."""
    rows = _rows(difference) if last_row_wins(table) else None
    return rows is not None and rows <= MOST_KEYS


def _rows(difference: Difference) -> int | None:
    """Rows that were written; None unless by one file, in which each key is there once."""
    if len(difference.written) != 1 or len(file_ids(*difference.written)) != 1:
        return None
    return int(Split.deserialize(difference.written[0]).row_count())


def _written(
    table: Table, columns: Sequence[str], difference: Difference, schema: pa.Schema
) -> pa.Table:
    kinds = schema.append(pa.field(ROW_KIND, pa.string()))
    batches = table.read(columns, splits=difference.written, row_kind=True)
    return pa.Table.from_batches([batch.cast(kinds) for batch in batches], kinds)
