"""Handles Ctrl-C and SIGTERM as a flag that is checked between steps, not as an exception."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable

from streamhouse.cli.errors import INTERRUPTED

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignal:
    """Handles the signals `numbers`: the first requests a stop, a second one ends at once.

    An exception from a signal handler would be raised wherever the program is, and a library may
    catch or convert it. `at_once` is called before the end at a second signal (exit code 130); it
    must not wait for anything that the main thread may hold. `notice` is written to standard error
    at the first signal, if that is a terminal. Has to be created in the main thread.
    """

    def __init__(
        self,
        numbers: Iterable[signal.Signals] = SIGNALS,
        at_once: Callable[[], None] | None = None,
        notice: str = "",
    ) -> None:
        self._received: int | None = None
        self._at_once = at_once
        self._notice = notice
        for number in numbers:
            signal.signal(number, self._request_stop)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C requested the stop."""
        return self._received == signal.SIGINT

    def requested(self) -> bool:
        """Whether to stop at the next step."""
        return self._received is not None

    def check(self) -> None:
        """Raise `KeyboardInterrupt` if a stop was requested; called between steps."""
        if self.requested():
            raise KeyboardInterrupt

    def _request_stop(self, number: int, frame: object) -> None:
        if self._received is not None:
            if self._at_once is not None:
                self._at_once()
            os._exit(INTERRUPTED)
        self._received = number
        if self._notice and sys.stderr.isatty():
            # Not print: the handler may run in the middle of another print.
            os.write(sys.stderr.fileno(), f"{self._notice}\n".encode())
