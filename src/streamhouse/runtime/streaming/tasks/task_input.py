"""What the planner gives one task of a batch; imports no Spark."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streamhouse.source import Offset

if TYPE_CHECKING:
    from streamhouse.runtime.streaming.tasks.task_protocol import RowFiles


@dataclass(frozen=True)
class TaskInput:
    """The batch of a task, from the offset `start` to `end`; `index`: of the task in the batch."""

    index: int
    start: Offset = field(repr=False)
    end: Offset

    @property
    def batch(self) -> int:
        """The number of the batch."""
        return int(self.end["batch"])

    @property
    def now_ms(self) -> int:
        """The time of the batch (epoch ms)."""
        return int(self.end["now"])


@dataclass(frozen=True)
class SplitsInput(TaskInput):
    """What a task of a continuous query reads, and with `due` it retries the due pending rows.

    `splits`, some of `Source.partitions`, are read in chunks. If several tasks share the splits,
    this one takes every `shares`-th chunk, beginning with number `share`, and the others take the
    rest. `shuffled`: other tasks join the rows than those that read them. `files` are for rows that
    it sends to the driver.
    """

    splits: tuple[Any, ...] = field(repr=False)
    due: bool
    share: int = 0
    shares: int = 1
    shuffled: bool = False
    files: RowFiles | None = None
