"""Where a procedure works: a warehouse, its sidecar, and Spark where a job needs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.java.sidecar import Sidecar
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage.lock import commit_lock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = TypeVar("Result")


class Context:
    """One warehouse with its Java core, for one or more procedures; to be closed.

    `warehouse` is a folder or URI, catalog options, or a `Warehouse`. `spark` gives the session
    when a procedure first needs one; by default the active session, or a local one that is made.
    Runs on the driver.
    """

    def __init__(
        self,
        warehouse: Warehouse | str | Mapping[str, str],
        spark: Callable[[], SparkSession] | None = None,
    ) -> None:
        given = warehouse
        self.warehouse = given if isinstance(given, Warehouse) else Warehouse(given)
        self.sidecar = Sidecar(self.warehouse.options)
        self._spark = spark

    def __enter__(self) -> Context:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the sidecar; Spark's session stays."""
        self.sidecar.close()

    def table(self, name: str) -> Table:
        """A table of the warehouse; `TableError` naming the nearest if there is none."""
        return self.warehouse.table(name)

    def java(
        self,
        name: str,
        work: Callable[[Any, Any], Result],
        options: Mapping[str, str | None] | None = None,
    ) -> Result:
        """What `work(jvm, table)` gives for the Java core's own table."""
        self.table(name)
        return self.sidecar.call(name, work, options)

    @contextmanager
    def committing(self, name: str) -> Iterator[None]:
        """Hold the table's commit lock: nobody else on this machine commits meanwhile."""
        with commit_lock(self.table(name).location):
            yield

    @property
    def has_spark(self) -> bool:
        """Whether a session runs in this process already."""
        if "pyspark.sql" not in sys.modules:
            return False
        from pyspark.sql import SparkSession

        return SparkSession.getActiveSession() is not None

    def spark(self) -> SparkSession:
        """Spark's session, started if there is none."""
        if self._spark is not None:
            return self._spark()
        from streamhouse.spark import active_session

        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        return active_session()
