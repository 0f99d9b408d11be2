"""Writes of few rows to a table in an object store: into a local folder, which is uploaded.

The Rust core looks up the sequence numbers of a bucket with ten requests, one after the other, and
makes an object for the bucket's folder.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamhouse.paimon.storage.metadata_mirror.folder import (
    MirrorFolder,
    borrowed,
    object_store_parts,
)
from streamhouse.paimon.storage.rust_core import ERRORS

if TYPE_CHECKING:
    from streamhouse.paimon.read.table import Table

_LOG = logging.getLogger("streamhouse.storage")
_MOST_BYTES = 16 << 20
_RECENT_S = 60.0


class MirroredWrite:
    """The rows of one writer: held until it is known that they are few, then written at once."""

    def __init__(self, table: Table, user: str, commutes: bool) -> None:
        self._table, self._user, self._commutes = table, user, commutes
        self._size = 0
        self._resources = ExitStack()
        self._folder: MirrorFolder | None = None
        self._writer: Any = None
        self.rows: list[pa.RecordBatch] = []
        """The rows that are held."""

    @classmethod
    def of(cls, table: Table, user: str, commutes: bool = False) -> MirroredWrite | None:
        """None for tables whose writers need more than metadata.

        `table` has the options of writers. `commutes`: the order of commits does not change its
        rows, so the sequence numbers of its rows may be those of another writer.
        """
        appends = table.bucket == -1 and not table.primary_key
        if not (appends or table.bucket > 0) or table.crosses_partitions:
            return None
        if any(name.startswith("data-file.external-paths") for name in table.options):
            return None
        return None if object_store_parts(table) is None else cls(table, user, commutes)

    def take(self, rows: pa.RecordBatch) -> bool:
        """Hold or write rows; False if those that are held are too many by now."""
        if self._writer is not None:
            self._writer.write_arrow(rows)
            return True
        self.rows.append(rows)
        self._size += rows.nbytes
        return self._size <= _MOST_BYTES

    def closed_files(self, identifier: int) -> Sequence[Any] | None:
        """Write the held rows and upload the files; returns the core's commit messages.

        None if the core must write to the store itself; `rows` are still those to write.
        """
        first = self._writer is None
        if first and not self.rows:
            return []
        try:
            if first and not self._open():
                return None
            for rows in self.rows:
                self._writer.write_arrow(rows)
            messages: Sequence[Any] = self._writer.prepare_commit(True, identifier)
        except ERRORS as error:
            if not first:
                raise
            _LOG.info("%s: the core writes to the store itself: %s", self._table.root, error)
            self.close()
            return None
        self.rows = []
        assert self._folder is not None
        names = sorted(self._folder.names() - self._before)
        self._folder.upload(names)
        self._folder.delete(names)
        return messages

    def _open(self) -> bool:
        """Open the core's writer on a local folder; False if the table has no snapshot to hold."""
        table = self._table
        folder = self._resources.enter_context(borrowed(table))
        if table.bucket > 0:
            if not self._commutes:
                # It also probes for newer ones.
                table.snapshots.verify()
            newest = table.snapshots.latest_id(_RECENT_S)
            if newest is None or not folder.hold(newest, newest):
                return False
        folder.delete([name for name in folder.names() if not name.startswith("manifest/")])
        builder = folder.open(table.schema).new_stream_write_builder()
        self._writer = builder.with_commit_user(self._user).new_write()
        self._folder, self._before = folder, folder.names()
        return True

    def close(self) -> None:
        """Free what is held."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        self._resources.close()
