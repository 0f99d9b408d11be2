"""The Python executable of Spark's workers: this Python, with the installed PySpark."""

import atexit
import hashlib
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from streamhouse.durable_files import replace_text
from streamhouse.paimon.java.jars import cache_folder
from streamhouse.paimon.java.jvm import end_process
from streamhouse.runtime.spark.settings import ENVIRONMENT
from streamhouse.runtime.spark.worker_request import PARENT

_REQUEST = Path(__file__).with_name("worker_request.py")
_WAITING = 128
_END_S = 10.0


def worker_python() -> str:
    """The path of a shell script that runs this Python, for processes on this machine.

    Spark puts its zipped Python sources first on `PYTHONPATH`, and each of its many Python
    processes compiles them again, which takes half a second. The script restores `PYTHONPATH`. If
    its environment names a `WorkerParent`, the process is forked from that. If the script cannot
    be written, returns the path of Python itself.
    """
    own = os.environ.get("PYTHONPATH")
    path = "unset PYTHONPATH" if own is None else f"export PYTHONPATH={shlex.quote(own)}"
    python, request = shlex.quote(sys.executable), shlex.quote(str(_REQUEST))
    text = (
        f"#!/bin/sh\n{path}\n"
        f'[ -z "${PARENT}" ] || exec {python} -I -S {request} "${PARENT}" {python} "$@"\n'
        f'exec {python} "$@"\n'
    )
    program = cache_folder().parent / "python" / hashlib.sha256(text.encode()).hexdigest()[:16]
    try:
        if not program.is_file() or program.read_text() != text:
            program.parent.mkdir(parents=True, exist_ok=True)
            replace_text(program, text, durable=False, mode=0o755)
    except OSError:
        return sys.executable
    return str(program)


class WorkerParent:
    """A `worker_parent` process; it lives until `close`, or until this process ends in any way.

    It takes about a second to import its libraries; earlier requests wait. If it has died, Spark's
    Python processes start without it. Raises `OSError` if it cannot be started.
    """

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="streamhouse-python-")
        self.address = os.path.join(self._folder, "parent")
        atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.address)
            listener.listen(_WAITING)
            number = listener.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "streamhouse.runtime.spark.worker_parent", str(number)],
                # PySpark sets this for all workers; it has no effect after a fork.
                env={"PYTHONHASHSEED": "0", **ENVIRONMENT, **os.environ},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(number,),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        """End the process; its forks go on until their requesters end them."""
        end_process(self._process, _END_S)
        shutil.rmtree(self._folder, ignore_errors=True)
