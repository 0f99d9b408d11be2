"""Identifies this machine, so that state of another one is not taken for its own."""

import os
import socket
from functools import cache
from pathlib import Path


@cache
def machine() -> str:
    """The boot id and the PID namespace (containers have their own); else the host name."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()
    return f"{boot}/{process_namespace()}"


@cache
def process_namespace() -> int:
    """The number of the PID namespace, within which process ids are meaningful; 0 if unknown."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0
