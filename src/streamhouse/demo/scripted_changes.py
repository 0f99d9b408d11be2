"""The scripted changes of a demo, made in small steps that the demo's own loop calls."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen
from typing import ClassVar

from streamhouse.errors import StreamhouseError


class ScriptedSteps(ABC):
    """Makes changes one after another; each waits until its effect can be read.

    A subclass yields from `_run_steps`: a message for the user, or None while it waits.
    """

    timeout_s: ClassVar[float]
    """How long one step may take, restarts of the driver included."""

    def __init__(self, log: Path) -> None:
        self.done = False
        """Whether all steps are over, with the expected effects."""
        self.followed = False
        """Whether all steps that need the running pipeline are over."""
        self._log = log
        self._started = time.monotonic()
        self._job: Popen[bytes] | None = None
        self._steps = self._run_steps()

    @abstractmethod
    def _run_steps(self) -> Iterator[str | None]:
        """Make all changes, and set `done`."""

    @abstractmethod
    def _skip_pauses(self) -> None:
        """Make the remaining changes due at once."""

    @property
    def succeeded(self) -> bool:
        """Whether the tables still show the effects of all steps."""
        return self.done

    def step(self) -> str | None:
        """Do what is due; returns a message for the user, if any."""
        return next(self._steps, None)

    def finish(self) -> Iterator[str | None]:
        """Make the remaining changes without pauses; yields a message, if any, at each step."""
        self._skip_pauses()
        while not self.done:
            yield self.step()
            time.sleep(0.05)

    def stop(self) -> None:
        """Kill the command that runs, if any."""
        if self._job is not None and self._job.poll() is None:
            self._job.kill()
            self._job.wait()

    def _until(self, done: Callable[[], bool], what: str | None = None) -> Iterator[None]:
        """Wait for a condition; for `what`, at most `timeout_s`."""
        deadline = time.monotonic() + self.timeout_s
        while not done():
            if what is not None and time.monotonic() > deadline:
                raise StreamhouseError(
                    f"the demo waited {self.timeout_s:.0f} s for {what}; see {self._log}"
                )
            yield None
