"""JVMs of the Java core for sidecars of many tests, one after the other: to start one, and to load
its classes, takes seconds of the processor."""

from __future__ import annotations

import os
import threading
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from unittest.mock import patch

import pytest

from streamhouse.paimon.java import sidecar
from streamhouse.paimon.java.jvm import END_SECONDS, JavaProcess

_UNREAD = ("PYTEST_", "XDG_STATE_HOME")
"""Variables that only Python reads."""
_MOST_IDLE = 3
_MOST_USES = 40
"""What a sidecar leaves in its JVM, such as open writers, stays there."""


class JavaPool:
    """Lends JVMs, in the place of `JavaProcess`; a sidecar that ends its JVM gives it back."""

    def __init__(self) -> None:
        self._idle: list[_Lent] = []
        self._lock = threading.Lock()
        self._most = _MOST_IDLE

    def take(
        self, classpath: Sequence[Path], java_options: Sequence[str] = (), nice: int = 0
    ) -> JavaProcess:
        """A JVM that was started just as asked, by this process as it is now."""
        around = {name: text for name, text in os.environ.items() if not name.startswith(_UNREAD)}
        kind = (*classpath, *java_options, nice, os.getcwd(), *sorted(around.items()))
        with self._lock:
            for one in reversed(self._idle):
                if one.kind == kind and one.alive:
                    self._idle.remove(one)
                    return one
        return _Lent(self, kind, classpath, java_options, nice)

    def give_back(self, one: _Lent) -> None:
        """Keep a JVM for the next who asks for one like it, and end those too many."""
        with self._lock:
            self._idle.append(one)
            many = max(0, len(self._idle) - self._most)
            over, self._idle = self._idle[:many], self._idle[many:]
        for old in over:
            old.end()

    def close(self) -> None:
        self._most = 0
        for one in self._idle:
            one.end()


class _Lent(JavaProcess):
    def __init__(
        self,
        pool: JavaPool,
        kind: Hashable,
        classpath: Sequence[Path],
        java_options: Sequence[str],
        nice: int,
    ) -> None:
        super().__init__(classpath, java_options, nice)
        self.kind = kind
        self._pool, self._uses = pool, 0

    def close(self, timeout_s: float = END_SECONDS) -> None:
        self._uses += 1
        # The catalog of the sidecar's warehouse.
        self.kept = None
        if self._uses < _MOST_USES and self.alive:
            self._pool.give_back(self)
        else:
            self.end(timeout_s)

    def end(self, timeout_s: float = END_SECONDS) -> None:
        super().close(timeout_s)


@pytest.fixture(scope="session")
def java_pool() -> Iterator[JavaPool]:
    pool = JavaPool()
    yield pool
    pool.close()


@pytest.fixture(scope="module", autouse=True)
def lent_java(java_pool: JavaPool) -> Iterator[None]:
    """Sidecars of this process take their JVMs from the pool."""
    with patch.object(sidecar, "JavaProcess", java_pool.take):
        yield
