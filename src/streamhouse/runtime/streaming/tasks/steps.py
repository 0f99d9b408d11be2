"""The way of source rows through a task: they may wait for a lookup, are joined and written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.connectors.base import Message, SinkWriter
from streamhouse.runtime.query_operator import ROW, numbered
from streamhouse.runtime.streaming.tasks.task_run import TaskRun
from streamhouse.source import ROW_KIND

if TYPE_CHECKING:
    from streamhouse.runtime.streaming.tasks.ordered_waiting import OrderedWaiting
    from streamhouse.runtime.streaming.tasks.waiting import Waiting

_PLACE = "_place"


class Steps:
    """Takes the source rows of a task, and writes the rows of the target that come from them.

    It writes them at once, so that a task needs memory for a part of its batch only, unless they
    are combined or gathered before. With a `reorder_key` it holds all rows back, and goes on with
    those last that are current at their end (`current_rows_last`). `waiting` looks rows up, and
    keeps those without a match.
    """

    def __init__(
        self,
        run: TaskRun,
        waiting: Waiting | OrderedWaiting | None,
        reorder_key: Sequence[str] = (),
    ) -> None:
        self._run, self._waiting, self._reorder_key = run, waiting, reorder_key
        self._held: list[pa.Table] = []
        self._writer: SinkWriter | None = None
        self.rows: list[pa.Table] = []
        """Collected rows of the target; if they are gathered, another task writes them."""
        self._collects = run.operator.combines or run.spec.gathered

    def run(self, rows: Iterable[pa.Table]) -> list[tuple[str, Message]]:
        """Take numbered rows of the source; returns tables with messages."""
        try:
            self._run.bind()
            # Rows that waited come before any other row.
            for src in () if self._waiting is None else self._waiting.begin():
                self._pass(src)
            for src in rows:
                self._take(src)
            return self._finished()
        finally:
            if self._writer is not None:
                self._writer.close()

    def _take(self, src: pa.Table) -> None:
        if self._waiting is not None:
            self._pass(self._waiting.take(src))
        elif self._reorder_key:
            self._held.append(src)
        else:
            self._run.look_up(src)
            self._write(src)

    def _pass(self, src: pa.Table) -> None:
        """Go on with rows that wait no longer, and are looked up."""
        if self._reorder_key:
            self._held.append(src)
        else:
            self._write(src)

    def _write(self, src: pa.Table) -> None:
        out = self._run.operator.rows(src)
        if self._collects:
            self.rows.append(out)
        elif out.num_rows:
            if self._writer is None:
                self._writer = self._run.writer()
            for part in out.combine_chunks().to_batches():
                self._writer.write(part)

    def _finished(self) -> list[tuple[str, Message]]:
        """Process what was held back until all rows are known."""
        run, messages = self._run, list[tuple[str, Message]]()
        if self._held:
            whole = pa.concat_tables(self._held, promote_options="default")
            src = numbered(current_rows_last(whole.drop_columns([ROW]), self._reorder_key), 0)
            run.look_up(src)
            self._write(src)
        if self._writer is not None:
            target = run.spec.target.identifier
            messages += [(target, message) for message in self._writer.prepare()]
        elif not run.spec.gathered:
            messages += run.write(run.operator.combine(self.rows))
        if self._waiting is not None:
            messages += self._waiting.finish()
        return messages


def current_rows_last(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """The changes of a batch with the rows that are current at its end after all others.

    `key` is the source's primary key. A row is current if it is a `+I` or `+U`, and no later change
    has its key. Both parts keep their order, so each row still precedes its retraction, and each
    retraction precedes every row that takes over its key of the target.
    """
    kinds = changes.column(ROW_KIND)
    if not pc.any(pc.is_in(kinds, value_set=pa.array(["-U", "-D"]))).as_py():
        return changes
    places = pa.array(np.arange(changes.num_rows))
    keys = changes.select(list(key)).append_column(_PLACE, places)
    last = keys.group_by(list(key)).aggregate([(_PLACE, "max")]).column(f"{_PLACE}_max")
    current = np.zeros(changes.num_rows, bool)
    current[last.to_numpy()] = True
    current &= pc.is_in(kinds, value_set=pa.array(["+I", "+U"])).to_numpy()
    return changes.take(pa.array(np.argsort(current, kind="stable")))
