"""The context of procedures: a warehouse, its sidecar JVM, and Spark if a job needs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.java import incomplete_snapshots
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.lock import commit_lock

if TYPE_CHECKING:
    from pyspark import SparkContext

Result = TypeVar("Result")

COMMIT_USER = "streamhouse-procedures"
"""The commit user of procedures; queries have commit users of their own."""


class Context:
    """One warehouse with its Java core, for one or more procedures; has to be closed.

    `warehouse` is a folder or URI, catalog options, or a `Warehouse`. `spark` returns Spark's
    context when a procedure first needs it, by default that of the active session or of a new one.
    Runs on the driver.
    """

    def __init__(
        self,
        warehouse: Warehouse | str | Mapping[str, str],
        spark: Callable[[], SparkContext] | None = None,
    ) -> None:
        self.warehouse = warehouse if isinstance(warehouse, Warehouse) else Warehouse(warehouse)
        self.sidecar = Sidecar(self.warehouse.options)
        self._spark = spark

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the sidecar JVM; Spark's session keeps running."""
        self.sidecar.close()

    def table(self, name: str) -> Table:
        """A table of the warehouse; `TableError` with the most similar name if there is none."""
        return self.warehouse.table(name)

    def java(
        self,
        name: str,
        work: Callable[[Any, Any], Result],
        options: Mapping[str, str | None] | None = None,
    ) -> Result:
        """Call `work(jvm, table)` with the Java core's table, and return its result."""
        self.table(name)
        return self.sidecar.call(name, work, options)

    @contextmanager
    def java_locked(
        self, name: str, options: Mapping[str, str | None] | None = None
    ) -> Iterator[tuple[Any, Any]]:
        """The JVM and the Java core's table; no other process on this machine commits to it."""
        with commit_lock(self.table(name).location):
            incomplete_snapshots.remove(self.warehouse.options, name)
            with self.sidecar.session(name):
                yield self.sidecar.jvm, self.sidecar.table(name, options)

    @property
    def has_spark(self) -> bool:
        """Whether Spark runs in this process already."""
        if "pyspark" not in sys.modules:
            return False
        from pyspark import SparkContext

        return SparkContext._active_spark_context is not None

    def spark(self) -> SparkContext:
        """Spark, started if it does not run."""
        if self._spark is not None:
            return self._spark()
        from streamhouse.spark import active_session

        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        return active_session().sparkContext
