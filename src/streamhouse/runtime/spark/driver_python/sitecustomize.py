"""Python imports this first in the processes that Spark starts on a cluster's driver.

Spark starts these processes with the Python of the executors. Here each becomes a request for a
fork of `worker_parent`, which has their libraries imported. Without an answer it goes on by itself.
"""

import os
import sys

_FOLDER = os.path.dirname(__file__)


def _request_fork() -> None:
    sys.path.insert(0, os.path.dirname(_FOLDER))
    try:
        from worker_request import PARENT, request_fork  # type: ignore[import-not-found]
    finally:
        del sys.path[0]
    parent, arguments = os.environ.get(PARENT), sys.orig_argv
    if parent is not None and arguments[1:2] == ["-m"]:
        code = request_fork(parent, arguments[2:])
        if code is not None:
            os._exit(code)


def _import_next() -> None:
    """Import the `sitecustomize` that this one hides, if any."""
    sys.path[:] = [place for place in sys.path if os.path.abspath(place) != _FOLDER]
    own = sys.modules.pop(__name__)
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ImportError:
        pass
    finally:
        # Python's import of this module ends with reading it from `sys.modules`.
        sys.modules.setdefault(__name__, own)


_request_fork()
_import_next()
