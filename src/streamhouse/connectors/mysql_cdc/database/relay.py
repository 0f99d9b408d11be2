"""The relay of a sync: its log has everything that the batches of all tables need."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from streamhouse.connectors.mysql_cdc.database.tables.discovery import TableNames
from streamhouse.connectors.mysql_cdc.relay.log import RelayTable
from streamhouse.connectors.mysql_cdc.relay.relay import MOST_BYTES, Relay
from streamhouse.connectors.mysql_cdc.relay.relays import FOLDER, own_folder
from streamhouse.connectors.mysql_cdc.relay.state import RelayView
from streamhouse.mysql.options import MySqlOptions
from streamhouse.mysql.position import BinlogPosition


class DatabaseRelay:
    """Reads the binlog for all tables of a sync; driver only.

    It starts at `resume`, the position of the last committed batch; None: at the binlog's end.
    `gtids`: the transactions before that.
    """

    def __init__(
        self,
        options: MySqlOptions,
        tables: Iterable[TableNames],
        checkpoint: Path,
        resume: BinlogPosition | None,
        gtids: str | None = None,
    ) -> None:
        self.folder, self._lock = own_folder(checkpoint / FOLDER)
        self._relay = Relay(
            options,
            [RelayTable(*names) for names in tables],
            self.folder,
            [] if resume is None else [resume],
            options.relay_bytes or MOST_BYTES,
            complete=True,
            gtids={} if resume is None or gtids is None else {resume: gtids},
        )
        self.view = RelayView(self.folder)

    def start(self) -> None:
        """Start reading; raises the error if that fails at once."""
        self._relay.start()
        self.check()

    def follow(self, tables: Iterable[TableNames]) -> None:
        """Keep the changes of more tables from now on."""
        self._relay.follow([RelayTable(*names) for names in tables])

    def check(self) -> None:
        """Raise the error that ended the reader, if any."""
        if self._relay.error is not None:
            raise self._relay.error

    def committed(self, position: BinlogPosition) -> None:
        """Allow dropping changes before the position."""
        self._relay.needed_from(position)

    def close(self) -> None:
        """Stop reading, and remove the log."""
        self._relay.close()
        self.view.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)
