"""What Spark starts as its Python: asks the parent of workers for a fork, and ends as that does.

It runs without the packages of the environment, and is there within a blink:

    python -I -S worker_request.py SOCKET PYTHON ARGUMENT...

Where nobody answers at the socket, or no module is to be run (`-m`), it becomes PYTHON.
"""

from __future__ import annotations

import _socket
import marshal
import posix
import sys

STARTED = b"S"
LENGTH, CODE = 8, 4
"""Bytes of a request's length and of an exit code, the high ones first."""


def asked(path: str, arguments: list[str]) -> int | None:
    """The exit code of a fork with these arguments, which has had our files; None: none was had."""
    parent = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        parent.connect(path)
        request = marshal.dumps((arguments, dict(posix.environ), posix.getcwd()))
        files = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
        parent.sendmsg(
            [len(request).to_bytes(LENGTH, "big")],
            [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)],
        )
        parent.sendall(request)
        if parent.recv(1) != STARTED:
            return None
    except OSError:
        return None
    # Whoever reads what the fork writes is to see its end.
    for number in range(3):
        posix.close(number)
    try:
        code = parent.recv(CODE)
    except OSError:
        code = b""
    return int.from_bytes(code, "big") if len(code) == CODE else 1


def main() -> None:
    path, python, *arguments = sys.argv[1:]
    code = asked(path, arguments[1:]) if arguments[:1] == ["-m"] else None
    if code is None:
        posix.execv(python, [python, *arguments])
    posix._exit(code)


if __name__ == "__main__":
    main()
