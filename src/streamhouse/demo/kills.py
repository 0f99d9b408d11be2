"""Kills the driver of a demo again and again, and measures how long it takes to recover."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import Protocol

from streamhouse.demo.driver import Driver
from streamhouse.demo.latency import SnapshotClock


class Killable(Protocol):
    """A pipeline that `Kills` can kill and restart, with the clock of its view's snapshots."""

    driver: Driver
    clock: SnapshotClock

    def start(self) -> None:
        """Start the pipeline again."""


@dataclass
class Kills:
    """SIGKILLs the driver repeatedly, each time about `every_s` seconds after it has recovered.

    Halfway between two kills it kills only the Java sidecar, if one runs.
    """

    every_s: float
    times: list[float] = field(default_factory=list)
    recoveries: list[float] = field(default_factory=list)
    sidecars: int = 0
    _next: float | None = None
    _sidecar: float = 0.0

    def step(self, scenario: Killable) -> str | None:
        """Kill and restart if it is time; returns a message for the user, if any."""
        if len(self.recoveries) < len(self.times):
            recovered = scenario.clock.first_after(self.times[-1])
            if recovered is None:
                return None
            self.recoveries.append(recovered - self.times[-1])
            self._next = None
        now = time.time()
        if self._next is None:
            if scenario.clock.first_after(0) is not None:
                pause = self.every_s * random.uniform(0.75, 1.25)
                self._next, self._sidecar = now + pause, now + pause / 2
            return None
        if now >= self._next:
            self.times.append(now)
            scenario.driver.kill()
            scenario.start()
            return f"SIGKILL number {len(self.times)}: restarting the driver"
        if now >= self._sidecar:
            self._sidecar = self._next
            if scenario.driver.kill_sidecar():
                self.sidecars += 1
                return f"SIGKILL number {self.sidecars} of the Java sidecar"
        return None
