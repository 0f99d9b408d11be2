"""The interface to which a script sends its results; the command line prints them."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa


class Printer(Protocol):
    """Receives a script's results."""

    def notice(self, text: str) -> None:
        """Show a message to the user."""

    def rows(self, reader: pa.RecordBatchReader) -> None:
        """Show the rows of a bounded SELECT."""

    def changes(self, batch: pa.RecordBatch) -> None:
        """Show rows of a streaming SELECT; the first column is `rowkind`."""
