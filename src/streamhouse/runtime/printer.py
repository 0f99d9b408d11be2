"""Where a script's results go; the command line prints them."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa


class Printer(Protocol):
    """Where a script's results go."""

    def notice(self, text: str) -> None:
        """Something the user should know."""

    def rows(self, reader: pa.RecordBatchReader) -> None:
        """The rows of a bounded SELECT."""

    def changes(self, batch: pa.RecordBatch) -> None:
        """Rows of a streaming SELECT, the first column their kind."""
