"""Selects a table's compacted files: the initial state of a changelog made by compaction."""

from __future__ import annotations

from collections.abc import Sequence

from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.visibility import VisibleAt, least_level
from streamhouse.paimon.storage.split_files import SplitFrame


def compacted_only(table: Table, splits: Sequence[bytes], visible_at: VisibleAt) -> list[bytes]:
    """The splits without the files whose rows become visible only at `visible_at`.

    A `lookup` changelog covers all rows above level 0, a `full-compaction` changelog those on the
    top level. Rows on lower levels are left out: the changelog has them once they are compacted.
    """
    min_level = least_level(table.options, visible_at)
    kept = []
    for serialised in splits:
        frame = SplitFrame.parse(serialised)
        part = frame.only(lambda file: file.level >= min_level)
        if len(part.files) == len(frame.files):
            kept.append(serialised)
        elif part.files:
            kept.append(part.serialize())
    return kept
