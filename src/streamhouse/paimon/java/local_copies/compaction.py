"""A compaction of a table with a primary key in a local copy of it (decision 217)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from streamhouse.errors import LostCommitError
from streamhouse.paimon.java.bucket_compaction import compacted
from streamhouse.paimon.java.local_copies.copy import LocalCopy
from streamhouse.paimon.java.unfinished_compactions import compaction_marker

if TYPE_CHECKING:
    from streamhouse.paimon.read.table import Table


class CopiedCompaction:
    """Compacts one copy; `options` are those of the Java core's table, `user` commits."""

    def __init__(
        self, jvm: Any, copy: LocalCopy, options: Mapping[str, str | None], user: str
    ) -> None:
        self._jvm, self._copy = jvm, copy
        self._options, self._user = options, user

    def run(self, followed: Table, full: bool, open_commit: Callable[[Any], Any]) -> bool | None:
        """Compact; returns whether it made a snapshot, as `Sidecar.compact` does.

        None if the table must be compacted in the store itself.
        """
        newest = self._copy.hold_newest()
        if newest is None:
            return None
        java = self._copy.java(self._jvm)
        buckets = self._copy.fetch(java, full)
        if not buckets:
            return None if buckets is None else False
        identifier = newest + 1
        with compaction_marker(followed.files, followed.root) as names:
            table = java.copy({**self._options, **names})
            before = self._copy.data_files()
            messages = self._messages(table, buckets, full, identifier)
            if not any(not message.isEmpty() for message in messages):
                return False
            with (
                self._copy.conflicts_reported(),
                self._copy.uploaded(before),
                closing(open_commit(table)) as commit,
            ):
                if not self._copy.commit(lambda: commit.commit(identifier, messages)):
                    raise LostCommitError(f"table {followed.identifier}: no snapshot was made")
        return True

    def _messages(
        self, table: Any, buckets: Sequence[tuple[Any, int]], full: bool, identifier: int
    ) -> Any:
        with tempfile.TemporaryDirectory(prefix="streamhouse-") as spill:
            manager = self._jvm.org.apache.paimon.disk.IOManager.create(spill)
            user = self._user
            return compacted(
                self._jvm,
                table,
                buckets,
                full,
                identifier,
                lambda: table.newWrite(user).withIOManager(manager),
            )
