"""Detects that a table was recreated under its name, or rolled back."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING

from streamhouse.paimon.storage.files import is_local, numbered_files
from streamhouse.paimon.storage.snapshots import Snapshots

if TYPE_CHECKING:
    from streamhouse.paimon.read.table import Table

_REMOTE_EVERY_S = 2.0


class Identity:
    """Identifies a table as it was opened; a table recreated under its name is another one.

    The identity is the file of the table's first schema, which holds the creation time and is never
    rewritten; `digest` is its hash.
    """

    def __init__(self, table: Table) -> None:
        self._files = table.files
        # Read each time, unlike those of a table that is followed.
        self._snapshots = Snapshots(table.files, table.root, table.identifier)
        self._local = is_local(table.location)
        numbers = numbered_files(self._files, f"{table.root}/schema", "schema-")
        self._schema = f"{table.root}/schema/schema-{min(numbers, default=0)}"
        self._text = self._files.read_text(self._schema)
        self._checked_at = 0.0
        self.digest: str = hashlib.blake2b((self._text or "").encode(), digest_size=16).hexdigest()

    def is_unchanged(self, snapshot: int, time_ms: int, certain: bool = True) -> bool:
        """Whether the table is still the same, and `snapshot` still the one committed at `time_ms`.

        False if the table was recreated or rolled back. A snapshot that has expired counts as the
        same; `snapshot` 0 checks the table only. Unless `certain`, a table in an object store is
        checked at most every 2 seconds.
        """
        now = time.monotonic()
        if not self._local and not certain and now - self._checked_at < _REMOTE_EVERY_S:
            return True
        self._checked_at = now
        text = self._files.read_text(self._schema)
        if text is None or text != self._text:
            return False
        if not snapshot:
            return True
        current = self._snapshots.find(snapshot)
        if current is None:
            latest = self._snapshots.latest_id()
            return latest is not None and latest > snapshot
        return current.time_ms == time_ms
