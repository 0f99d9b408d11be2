"""Writes rows that arrive for windows that the watermark has closed to a table."""

from collections.abc import Iterator
from functools import cached_property, partial

import pyarrow as pa

from streamhouse.connectors.base import Message
from streamhouse.connectors.paimon.connector import sink_writer
from streamhouse.duckdb_engine import Scanner
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.runtime.streaming.tasks.task_input import TaskInput
from streamhouse.runtime.streaming.tasks.task_results import written
from streamhouse.runtime.views.spec import ViewSpec
from streamhouse.runtime.views.windows.late_changes import LateChanges, scanner_of_late
from streamhouse.runtime.views.windows.session_changes import SessionChanges
from streamhouse.source import of_kind
from streamhouse.sql.parser.windowed_rows import VERSIONS


class LateWriter:
    """Finds and writes the late rows of one batch of a view; `rows` counts them."""

    def __init__(self, spec: ViewSpec, task: TaskInput, attempt: str) -> None:
        self._spec, self._task, self._attempt = spec, task, attempt
        self.rows = 0

    @cached_property
    def _changes(self) -> list[LateChanges]:
        windows = self._spec.plan.windows
        return [
            (LateChanges if late.sessions is None else SessionChanges)(self._spec, self._task, n)
            for n, late in enumerate(() if windows is None else windows.late)
        ]

    @property
    def _sessions(self) -> list[SessionChanges]:
        return [each for each in self._changes if isinstance(each, SessionChanges)]

    def write(self) -> Iterator[tuple[str, Message]]:
        """Write the late rows; yields the commit messages, with their tables."""
        spec = self._spec
        for address in spec.auxiliary_tables:
            batch, attempt = self._task.batch, self._attempt
            opened = partial(sink_writer, address, spec.query_id, batch, attempt)
            for message in written(opened, self._late_rows(address)):
                yield address.identifier, message

    def _late_rows(self, address: TableAddress) -> Iterator[pa.Table]:
        """The late rows of the batch for a table."""
        for own, changes in zip(self._spec.late, self._changes, strict=True):
            for late in () if own != address or changes.unchanged else changes.rows():
                self.rows += late.num_rows
                yield of_kind(late, "+I")

    def scanner(self, tables: Scanner) -> Scanner:
        """A scanner that also reads the late rows that its query reads, and those of the batch."""
        read = (each for each in self._changes if each.kind in ("SESSION", VERSIONS))
        late = {name: rows for each in read for name, rows in each.late.items()}
        return scanner_of_late(tables, late)

    @property
    def first_read_ms(self) -> int | None:
        """The time from which on rows can be in a session that is open, or are near one."""
        found = [each.first_read_ms for each in self._sessions]
        known = [each for each in found if each is not None]
        return min(known) if known and len(known) == len(found) else None

    def open_since(self, after: int) -> int | None:
        """The first time of the sessions that are open after the batch; None without sessions."""
        return min((each.open_since(after) for each in self._sessions), default=None)
