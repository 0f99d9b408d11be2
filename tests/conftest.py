"""Sorts the tests: the longest files run first."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
import warnings
from collections.abc import Generator, Iterator
from typing import Any, cast

import pymysql.connections
import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from streamhouse.mysql import connection as mysql
from streamhouse.sql.nesting_depth import allow_depth

LONGEST = (
    "integration/test_docs.py",
    "kafka/",
    "tests/spark/",
    "cluster/test_cluster.py",
    "runtime/test_membership.py",
    "runtime/test_stranger.py",
    "runtime/test_sync.py",
    "runtime/test_sync_evolution.py",
    "views/test_nexmark.py",
)
"""Parts of paths."""
TOGETHER = ("tests/integration/kafka/", "tests/spark/")
"""Folders whose files share a server that takes long to start: one process runs all of them."""


class FolderScheduling(LoadFileScheduling):  # type: ignore[misc]
    """`--dist loadfile`, which takes the files of a folder of `TOGETHER` as one."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return next((folder for folder in TOGETHER if file.startswith(folder)), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FolderScheduling | None:
    return FolderScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


STUCK_S = 700
"""After this time a phase of a test is stuck; longer than the time limit of a test."""
STDERR = pytest.StashKey[int]()
"""A file descriptor of what pytest does not capture."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    yield from _unless_stuck(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    yield from _unless_stuck(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    yield from _unless_stuck(item)


def _unless_stuck(item: pytest.Item) -> Generator[None]:
    """Print the stacks of all threads and end the process if a phase of a test is stuck.

    The time limit of a test cannot end a call into C, and does not cover what follows it.
    """
    faulthandler.dump_traceback_later(STUCK_S, exit=True, file=item.config.stash[STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="module", autouse=True)
def collected() -> Iterator[None]:
    """What tests leave to Python's collector goes in this thread: some of the core's objects must,
    and the next file may have others.

    What is left, such as imported modules and caches, stays until the end: the collector need not
    look at it again.
    """
    yield
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """Set what must not change during a test.

    Hypothesis warns if the recursion limit does, which the first statement raises.
    """
    config.stash[STDERR] = os.dup(2)
    allow_depth()
    _fix_examples()
    _take_interrupts()
    _keep_bytecode()
    _warn_of_open_connections()


def _fix_examples() -> None:
    """Let Hypothesis generate the same examples in each run, however long one takes (decision 112).

    `--hypothesis-profile random` generates others.
    """
    slow = [HealthCheck.too_slow]
    for name, fixed in (("random", False), ("fixed", True)):
        settings.register_profile(
            name, deadline=None, derandomize=fixed, suppress_health_check=slow
        )
    settings.load_profile("fixed")


def _keep_bytecode() -> None:
    """Let Python keep what it compiles also where the environment says no, as images of containers
    often do: each of the many processes that tests start would compile the sources anew."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def _take_interrupts() -> None:
    """Take Ctrl-C even in the background of a shell, which starts commands with it ignored: what
    tests start inherits that, and many tests end a process by it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _warn_of_open_connections() -> None:
    """Warn of each session with MySQL that the product has opened and not closed.

    PyMySQL closes it silently, unless Python's collector takes its socket first.
    """
    connect, closable = mysql.connect, cast(Any, pymysql.connections.Connection)
    close = closable._force_close

    def connected(options: Any) -> Any:
        connection: Any = connect(options)
        connection.is_session = True
        return connection

    def collected(connection: Any) -> None:
        leaked = getattr(connection, "_sock", None) and hasattr(connection, "is_session")
        close(connection)
        if leaked:
            warnings.warn(f"{connection!r} was not closed", ResourceWarning, stacklevel=1)

    mysql.connect = connected
    closable.__del__ = collected


def pytest_collection_finish() -> None:
    """Modules stay until the end: the collector need not look at them again after each file."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        found = (n for n, part in enumerate(LONGEST) if part in item.nodeid)
        return next(found, len(LONGEST))

    items.sort(key=place)
