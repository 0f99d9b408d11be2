"""Messages between a driver, its `worker_parent` and the processes that request forks."""

from __future__ import annotations

import marshal
import os
import socket
from collections.abc import Iterable
from typing import Any

from streamhouse.runtime.spark.worker_request import LENGTH

_MOST_FILES = 3


def send(to: socket.socket, message: Any, files: Iterable[int] = ()) -> None:
    """Send an object that `marshal` can serialise, and open file descriptors. Raises `OSError`."""
    body = marshal.dumps(message)
    socket.send_fds(to, [len(body).to_bytes(LENGTH, "big")], list(files))
    to.sendall(body)


def receive(sender: socket.socket) -> tuple[Any, list[int]]:
    """Receive a message and its file descriptors. Raises `EOFError` at the end, or `OSError`."""
    head, files, _, _ = socket.recv_fds(sender, LENGTH, _MOST_FILES)
    try:
        if len(head) != LENGTH:
            raise EOFError
        left = int.from_bytes(head, "big")
        parts = []
        while left:
            parts.append(sender.recv(left))
            if not parts[-1]:
                raise EOFError
            left -= len(parts[-1])
        return marshal.loads(b"".join(parts)), files
    except BaseException:
        close_files(files)
        raise


def close_files(files: Iterable[int]) -> None:
    for file in files:
        os.close(file)
