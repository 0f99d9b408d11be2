"""Processes that tests wait for, and the ports at which they listen."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address

import psutil


def listening(pids: Iterable[int]) -> set[tuple[str, int]]:
    """Addresses and ports at which processes listen for TCP connections."""
    found = set()
    for pid in pids:
        with suppress(psutil.Error):
            for one in psutil.Process(pid).net_connections("tcp"):
                if one.status == psutil.CONN_LISTEN:
                    found.add((one.laddr.ip, one.laddr.port))
    return found


def reachable(pids: Iterable[int]) -> set[tuple[str, int]]:
    """Those of `listening` that other machines can reach."""
    return {(host, port) for host, port in listening(pids) if not _is_loopback(host)}


def _is_loopback(host: str) -> bool:
    address = ip_address(host)
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


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
