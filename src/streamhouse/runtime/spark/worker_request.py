"""Stands in for Spark's Python: requests a fork from `worker_parent`, and exits with its exit code.

It runs without site packages, so that it starts fast:

    python -I -S worker_request.py SOCKET PYTHON ARGUMENT...

If nobody answers at the socket, or the arguments do not run a module (`-m`), it executes PYTHON.
"""

import _socket
import marshal
import posix
import sys

PARENT = "STREAMHOUSE_PYTHON_PARENT"
"""Environment variable with the path of a `worker_parent`'s socket."""
STARTED = b"S"
LENGTH, CODE = 8, 4
"""Sizes in bytes of a request's length and of an exit code; both are big-endian."""


def request_fork(path: str, arguments: list[str]) -> int | None:
    """Request a fork with our standard files; waits for its exit code, None if there is no fork."""
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
    # Closed here, so that readers of the fork's output see its end.
    for number in range(3):
        posix.close(number)
    try:
        code = parent.recv(CODE)
    except OSError:
        code = b""
    return int.from_bytes(code, "big") if len(code) == CODE else 1


def main() -> None:
    path, python, *arguments = sys.argv[1:]
    code = request_fork(path, arguments[1:]) if arguments[:1] == ["-m"] else None
    if code is None:
        posix.execv(python, [python, *arguments])
    posix._exit(code)


if __name__ == "__main__":
    main()
