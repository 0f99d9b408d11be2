"""Repeats a step in a thread while a test runs."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Self

from tests.waiting import DEADLINE_S


class ConcurrentSteps(ABC):
    """Takes one step after the other until the `with` ends; what failed is raised then."""

    def __init__(self, pause_s: float = 0.0) -> None:
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._failed: BaseException | None = None

    @abstractmethod
    def step(self) -> None: ...

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._pause_s):
                self.step()
        except BaseException as error:  # noqa: BLE001  # raised where the test can see it
            self._failed = error
