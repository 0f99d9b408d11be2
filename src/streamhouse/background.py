"""Work in threads of its own (a call, or a step that is repeated), and waits with a deadline.

Such a thread does not keep the process alive.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import TypeVar

Result = TypeVar("Result")


def in_background(call: Callable[[], Result], name: str) -> Future[Result]:
    """Start a call in a thread of this name; the future has its result, or its error."""
    result: Future[Result] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:  # noqa: BLE001  # raised where the caller can see it
            result.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return result


class RepeatedStep:
    """Calls `step` in a thread, first after `first_s` seconds; it returns the next pause (s)."""

    def __init__(self, step: Callable[[], float], name: str, first_s: float = 0.0) -> None:
        self._step, self._first_s = step, first_s
        self._stopped = threading.Event()
        self._ended = in_background(self._run, name)

    def check(self) -> None:
        """Raise the error that has ended it, if any."""
        if self._ended.done():
            self._ended.result()

    def stop(self, wait_s: float | None = None) -> None:
        """Begin no further step; waits for the last one, at most `wait_s` seconds."""
        self._stopped.set()
        wait([self._ended], wait_s)

    def _run(self) -> None:
        pause_s = self._first_s
        while not self._stopped.wait(pause_s):
            pause_s = self._step()


@contextmanager
def ticking(tick: Callable[[float], None], first_s: float, every_s: float) -> Iterator[None]:
    """Call `tick` with the seconds so far, after `first_s` and then every `every_s` seconds.

    It runs in a thread while the `with` block lasts, which waits for the last call.
    """
    began = time.monotonic()

    def step() -> float:
        tick(time.monotonic() - began)
        return every_s

    ticker = RepeatedStep(step, "streamhouse-ticker", first_s)
    try:
        yield
    finally:
        ticker.stop()


def wait_until(done: Callable[[], object], seconds: float, step_s: float = 0.05) -> bool:
    """Wait until `done` returns something true, at most so many seconds; returns whether it has.

    It is called every `step_s` seconds, and its errors end the wait.
    """
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() >= deadline:
            return False
        time.sleep(step_s)
    return True
