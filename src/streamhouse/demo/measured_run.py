"""The loop of a demo without a live view: waits for the first result, makes steps, reports."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from streamhouse.demo.driver import Check
from streamhouse.demo.kills import Killable, Kills
from streamhouse.demo.scripted_changes import ScriptedSteps
from streamhouse.errors import StreamhouseError


def print_progress(text: str | None) -> None:
    """Write a line to standard error, unless the text is empty or None."""
    if text:
        print(f"demo: {text}", file=sys.stderr, flush=True)


_PROGRESS_EVERY_S = 5.0
_PAUSE_S = 0.05
FIRST_RESULT_S = 180.0
"""How long the first result of a demo may take."""


class DemoScenario(Killable, Protocol):
    """The processes of a demo, and its measurements."""

    @property
    def log(self) -> Path:
        """The log of the pipeline."""

    def raise_if_failed(self) -> None:
        """Raise the error of a process that has failed."""

    def progress(self) -> str:
        """What a progress message says beside the time."""

    def freshness_window(self) -> dict[str, float] | None:
        """Percentiles of the freshness since the last call."""


def wait_for_first_result(scenario: DemoScenario, name: str, check: Check) -> float:
    """Wait until the first result can be read; returns when that was (epoch seconds).

    `name` is that of the result in an error. `check` is called at each step.
    """
    deadline = time.monotonic() + FIRST_RESULT_S
    while True:
        check()
        scenario.driver.raise_if_failed()
        first = scenario.clock.first_after(0)
        if first is not None:
            return first
        if time.monotonic() > deadline:
            raise StreamhouseError(
                f"the {name} is still empty after {FIRST_RESULT_S:.0f} s; see {scenario.log}"
            )
        time.sleep(_PAUSE_S)


def run_steps(
    scenario: DemoScenario,
    seconds: float,
    elapsed: Callable[[], float],
    kills: Kills | None,
    changes: ScriptedSteps,
    check: Check,
) -> list[dict[str, float] | None]:
    """Make the kills and changes that are due until `elapsed` returns `seconds`.

    Returns the freshness of each whole minute.
    """
    reported = elapsed()
    minutes: list[dict[str, float] | None] = []
    while (passed := elapsed()) < seconds:
        check()
        scenario.raise_if_failed()
        for message in (kills.step(scenario) if kills else None, changes.step()):
            print_progress(message)
        if passed - reported >= _PROGRESS_EVERY_S:
            reported = passed
            if passed >= 60 * (len(minutes) + 1):
                minutes.append(scenario.freshness_window())
            print_progress(f"{passed:.0f} of {seconds:.0f} s, {scenario.progress()}")
        time.sleep(_PAUSE_S)
    return minutes
