"""Measures the peak memory of a process and its descendants."""

from __future__ import annotations

import contextlib
import threading
import time

import psutil

_EVERY_S = 3.0
_PAUSE_FACTOR = 20
"""The least pause between two measurements, as a multiple of the time that one takes: the system
walks through all memory of a process to compute its share, which may take long."""


class PeakMemory:
    """The peak memory of a process and its descendants, in MiB; measured by a thread.

    `pid`: the process; None for this one. Memory that processes share, such as libraries and
    unchanged pages after a fork, counts once.
    """

    def __init__(self, pid: int | None = None) -> None:
        self.peak_mb = 0.0
        self._root = psutil.Process(pid)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="peak-memory", daemon=True)
        self._thread.start()

    def stop(self) -> float:
        self._stopped.set()
        self._thread.join(5)
        return self.peak_mb

    def _run(self) -> None:
        pause = _EVERY_S
        while not self._stopped.wait(pause):
            began, total = time.monotonic(), 0
            for process in self._processes():
                with contextlib.suppress(psutil.Error):
                    total += _memory(process)
            self.peak_mb = max(self.peak_mb, total / 2**20)
            pause = max(_EVERY_S, _PAUSE_FACTOR * (time.monotonic() - began))

    def _processes(self) -> list[psutil.Process]:
        try:
            return [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


def _memory(process: psutil.Process) -> int:
    """A process's memory in bytes, with its share of shared pages (PSS); else its RSS."""
    try:
        return int(process.memory_full_info().pss)
    except (AttributeError, psutil.AccessDenied):
        return int(process.memory_info().rss)
