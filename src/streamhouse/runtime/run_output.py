"""What a run shows its user: results of statements, notices, and reports of its queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pyarrow as pa

    from streamhouse.runtime.monitoring.status import QueryStatus

Outcome = Literal["caught up", "stopped"]


class RunOutput:
    """Shows nothing; subclasses show what they override. All calls are of one thread."""

    def notice(self, text: str) -> None:
        """Show a message to the user."""

    def rows(self, reader: pa.RecordBatchReader) -> None:
        """Show the rows of a bounded SELECT."""

    def changes(self, batch: pa.RecordBatch) -> None:
        """Show rows of a streaming SELECT; the first column is `rowkind`."""

    def starting(self) -> None:
        """Spark is starting."""

    def running(self, queries: int) -> None:
        """So many queries run."""

    def progress(self, seconds: float, queries: Sequence[QueryStatus]) -> None:
        """The progress, `seconds` after the queries were started."""

    def ended(self, outcome: Outcome, queries: Sequence[QueryStatus]) -> None:
        """The run has ended without an error."""

    def failed(self, message: str) -> None:
        """The run has failed; the command itself prints the error."""
