"""Identifies a process unambiguously, even if its process id is reused later."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from streamhouse.machine import machine

_STATE, _STARTED = 0, 19
"""Indexes of the fields after the process name in `/proc/<pid>/stat`."""


@dataclass(frozen=True)
class Process:
    """A process: its id, its start time and its machine.

    `started` is in kernel clock ticks since the machine's boot. `machine` identifies one boot and
    PID namespace of a machine; `host` is its host name, for messages.
    """

    pid: int
    started: int
    machine: str
    host: str

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """A process of this machine; None if it does not exist or is a zombie."""
        start = started(pid)
        return None if start is None else cls(pid, start, machine(), socket.gethostname())

    @property
    def here(self) -> bool:
        """Whether it is or was a process of this machine; only then `alive` is meaningful."""
        return self.machine == machine()

    @property
    def alive(self) -> bool:
        """Whether it still runs; False for a process of another machine."""
        return self.here and started(self.pid) == self.started


def own() -> Process:
    """This process."""
    process = Process.of(os.getpid())
    assert process is not None
    return process


def started(pid: int) -> int | None:
    """Start time of a process of this machine, in ticks; None if it is gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The process name may contain blanks and parentheses.
    fields = text.rpartition(")")[2].split()
    return None if fields[_STATE] in "ZX" else int(fields[_STARTED])
