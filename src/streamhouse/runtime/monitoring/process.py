"""Which process something is of, told so that it is never taken for a later one."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_STATE, _STARTED = 0, 19
"""Places of fields in what follows the name in `/proc/<pid>/stat`."""


@dataclass(frozen=True)
class Process:
    """A process: its number, when it started, and where.

    `started` is in the kernel's ticks since the machine did. `machine` tells one from another, and
    from itself before it was started again; `host` is its name, for people.
    """

    pid: int
    started: int
    machine: str
    host: str

    @staticmethod
    def of(pid: int) -> Process | None:
        """A process of this machine; None if it is not there, or just dying."""
        at = started(pid)
        return None if at is None else Process(pid, at, machine(), socket.gethostname())

    @property
    def here(self) -> bool:
        """Whether it is, or was, one of this machine, so that `alive` can tell."""
        return self.machine == machine()

    @property
    def alive(self) -> bool:
        """Whether it is still there; False for one of another machine."""
        return self.here and started(self.pid) == self.started


def own() -> Process:
    """This process."""
    found = Process.of(os.getpid())
    assert found is not None
    return found


def started(pid: int) -> int | None:
    """When a process of this machine started, in ticks; None if it is gone, or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The name may hold blanks and brackets itself.
    fields = text.rpartition(")")[2].split()
    return None if fields[_STATE] in "ZX" else int(fields[_STARTED])


@cache
def machine() -> str:
    """The running kernel and its space of process numbers, as containers have their own."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return socket.gethostname()
