"""Processes that tests wait for."""

from __future__ import annotations

import time

import psutil


def gone(pid: int, within_s: float = 60.0) -> bool:
    """Whether a process ends in time; a zombie has, as in a container nobody may reap it."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False
