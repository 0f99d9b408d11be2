"""Tables with `ignore-delete` whose files have retractions (`-U`, `-D`).

Writers of such a table drop retractions, so its files have only those from before the option was
set. Paimon's Java core ignores these, too: it returns the deleted rows in reads, and writes them
again when it compacts. The Rust core applies them. So the same table would have other rows before
a compaction than after it (decision 105).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from streamhouse.errors import TableError
from streamhouse.paimon.storage.split_files import SplitFrame

if TYPE_CHECKING:
    from streamhouse.paimon.read.table import Table

OPTION = "ignore-delete"
_ENGINES = ("deduplicate", "partial-update")
"""The merge engines that ignore retractions when they merge."""


def ignores_deletes(options: Mapping[str, str], primary_key: Sequence[str]) -> bool:
    """Whether the Java core ignores retractions when it merges rows of the table."""
    return (
        bool(primary_key)
        and options.get(OPTION, "").lower() == "true"
        and options.get("merge-engine", "deduplicate").lower() in _ENGINES
    )


def deleted_rows(splits: Sequence[bytes]) -> int:
    """How many retractions the files have whose rows a read of the splits merges."""
    frames = map(SplitFrame.parse, splits)
    return sum(file.deleted_rows for frame in frames if not frame.streaming for file in frame.files)


def check_read(table: Table, splits: Sequence[bytes]) -> None:
    """Raise `TableError` if the Rust core would hide rows that the Java core returns."""
    if not ignores_deletes(table.options, table.primary_key):
        return
    deleted = deleted_rows(splits)
    if deleted:
        rows = "1 delete" if deleted == 1 else f"{deleted:,} deletes"
        raise TableError(
            f"table {table.identifier} has '{OPTION}' = 'true', and {rows} in its files from "
            "before that option was set, which Flink ignores: it returns the deleted rows again; "
            f"CALL sys.compact('{table.identifier}') restores them for all readers"
        )
