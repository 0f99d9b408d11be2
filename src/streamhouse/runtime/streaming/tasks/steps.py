"""The steps of a task: each takes source rows, and passes on what it has done with them.

A task is a chain of them: rows wait for a lookup (`Waiting`, `OrderedWaiting`), are put into
another order (`CurrentRowsLast`), find what they may join (`LookUp`), and are computed and written
(`Output`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.connectors.base import Message, SinkWriter
from streamhouse.runtime.query_operator import ROW, numbered
from streamhouse.runtime.streaming.tasks.task_run import TaskRun
from streamhouse.source import ROW_KIND

_PLACE = "_place"


class TaskStep(Protocol):
    """A step of a task, which knows the step after it."""

    def begin(self) -> None:
        """Process rows that waited, before any other row is taken."""

    def take(self, src: pa.Table) -> int:
        """Take numbered rows of the source; returns how many rows of output they have so far."""

    def finish(self) -> list[tuple[str, Message]]:
        """Process what was held back until all rows are known; returns tables with messages."""

    def close(self) -> None:
        """Release what is open."""


class Output:
    """Computes the rows of the target from source rows whose lookups are bound, and writes them.

    It writes them at once, so that a task needs memory for a part of its batch only, unless they
    are combined or gathered before.
    """

    def __init__(self, run: TaskRun) -> None:
        self._run = run
        self._writer: SinkWriter | None = None
        self.rows: list[pa.Table] = []
        """Collected rows; if they are gathered, another task writes them."""
        self._collects = run.operator.combines or run.spec.gathered

    def begin(self) -> None:
        return

    def take(self, src: pa.Table) -> int:
        out = self._run.operator.rows(src)
        if self._collects:
            self.rows.append(out)
        elif out.num_rows:
            if self._writer is None:
                self._writer = self._run.writer()
            for part in out.combine_chunks().to_batches():
                self._writer.write(part)
        return int(out.num_rows)

    def finish(self) -> list[tuple[str, Message]]:
        run = self._run
        if run.spec.gathered:
            return []
        if self._writer is not None:
            target = run.spec.target.identifier
            return [(target, message) for message in self._writer.prepare()]
        return run.write(run.operator.combine(self.rows))

    def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


class LookUp:
    """Binds what source rows may join, and passes them on."""

    def __init__(self, run: TaskRun, following: TaskStep) -> None:
        self._run, self._following = run, following
        self.begin, self.finish, self.close = following.begin, following.finish, following.close

    def take(self, src: pa.Table) -> int:
        self._run.look_up(src)
        return self._following.take(src)


class CurrentRowsLast:
    """Holds all rows back, and passes them on with those last that are current at their end."""

    def __init__(self, key: Sequence[str], following: TaskStep) -> None:
        """`key`: see `current_rows_last`."""
        self._key, self._following = key, following
        self.begin, self.close = following.begin, following.close
        self._rows: list[pa.Table] = []

    def take(self, src: pa.Table) -> int:
        self._rows.append(src)
        return 0

    def finish(self) -> list[tuple[str, Message]]:
        if self._rows:
            whole = pa.concat_tables(self._rows, promote_options="default")
            src = current_rows_last(whole.drop_columns([ROW]), self._key)
            self._following.take(numbered(src, 0))
        return self._following.finish()


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
