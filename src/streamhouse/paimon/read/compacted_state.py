"""The compacted part of a table: the state that a changelog made by compaction continues."""

from __future__ import annotations

from collections.abc import Sequence

from streamhouse.paimon.read.table import Table
from streamhouse.paimon.read.visibility import Moment, least_level
from streamhouse.paimon.storage.split_files import SplitFrame


def compacted_only(table: Table, splits: Sequence[bytes], moment: Moment) -> list[bytes]:
    """The splits without files that wait for `moment`.

    A `lookup` changelog holds all rows above level 0, a `full-compaction` one those of the top
    level. Rows below are left out: the changelog will bring them once they are compacted.
    """
    least = least_level(table.options, moment)
    kept = []
    for serialised in splits:
        whole = SplitFrame.parse(serialised)
        part = whole.only(lambda file: file.level >= least)
        if len(part.files) == len(whole.files):
            kept.append(serialised)
        elif part.files:
            kept.append(part.serialize())
    return kept
