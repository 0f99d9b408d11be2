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
    """A writer of the Rust core that holds its rows until it is known that they are few.

    Few rows are written at once into a folder, others to the store, by the writer that `builder`
    opens. `table` has the options of writers.
    """

    def __init__(self, table: Table, builder: Any, user: str, commutes: bool) -> None:
        self._table, self._builder, self._user = table, builder, user
        self._commutes = commutes
        self._rows: list[pa.RecordBatch] = []
        self._size = 0
        self._resources = ExitStack()
        self._folder: MirrorFolder | None = None
        self._writer: Any = None
        """The core's writer, once it is known where the rows go."""

    @classmethod
    def of(
        cls, table: Table, builder: Any, user: str, commutes: bool = False
    ) -> MirroredWrite | None:
        """None for tables whose writers need more than metadata.

        `commutes`: the order of commits does not change its rows, so the sequence numbers of its
        rows may be those of another writer.
        """
        appends = table.bucket == -1 and not table.primary_key
        if not (appends or table.bucket > 0) or table.crosses_partitions:
            return None
        if any(name.startswith("data-file.external-paths") for name in table.options):
            return None
        if object_store_parts(table) is None:
            return None
        return cls(table, builder, user, commutes)

    def write_arrow(self, rows: pa.RecordBatch) -> None:
        """Hold or write rows."""
        if self._writer is not None:
            self._writer.write_arrow(rows)
            return
        self._rows.append(rows)
        self._size += rows.nbytes
        if self._size > _MOST_BYTES:
            self._write_directly()

    def prepare_commit(self, wait_compaction: bool, identifier: int) -> Sequence[Any]:
        """Close the files, and upload those of the folder; returns the core's commit messages."""
        messages: Sequence[Any] | None = None
        first = self._writer is None
        if first and not self._rows:
            return []
        if first:
            try:
                if self._open():
                    messages = self._writer.prepare_commit(wait_compaction, identifier)
            except ERRORS as error:
                _LOG.info("%s: the core writes to the store itself: %s", self._table.root, error)
            if messages is None:
                self._write_directly()
        if messages is None:
            messages = self._writer.prepare_commit(wait_compaction, identifier)
        self._rows = []
        if self._folder is not None:
            names = sorted(self._folder.names() - self._before)
            self._folder.upload(names)
            self._folder.delete(names)
        return messages

    def _open(self) -> bool:
        """Write the held rows into a local folder; False if the table has no snapshot to hold."""
        table = self._table
        folder = self._resources.enter_context(borrowed(table))
        if table.bucket > 0:
            if not self._commutes:
                # It also probes for newer ones.
                table.snapshots.verify()
            newest = table.snapshots.latest_id(_RECENT_S)
            if newest is None or not folder.hold(newest, newest):
                return False
        folder.delete(folder.data_files())
        builder = folder.open(table.schema).new_stream_write_builder()
        self._writer = builder.with_commit_user(self._user).new_write()
        self._folder, self._before = folder, folder.names()
        for rows in self._rows:
            self._writer.write_arrow(rows)
        return True

    def _write_directly(self) -> None:
        """Write the held rows, and from now on all others, to the store by the core itself."""
        self.close()
        self._writer, self._folder = self._builder.new_write(), None
        for rows in self._rows:
            self._writer.write_arrow(rows)
        self._rows = []

    def close(self) -> None:
        """Free what is held."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        self._resources.close()
