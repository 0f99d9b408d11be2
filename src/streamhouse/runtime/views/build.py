"""Computes what a view keeps from its inputs, beside its batches.

Batches recompute the view until that is done. The next batch then applies what has changed since.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from streamhouse.duckdb_engine import THREADS, Limits, opened
from streamhouse.errors import LimitError, StreamhouseError
from streamhouse.operators.trees.incremental import IncrementalRefresh
from streamhouse.runtime.streaming.spark_data_source import run_task
from streamhouse.runtime.views.holds import ViewHolds
from streamhouse.runtime.views.incremental import (
    MEMORY,
    address_of,
    compiled,
    unsuitable,
)  # fmt: skip
from streamhouse.runtime.views.inputs import ViewInputs, no_scan
from streamhouse.runtime.views.spec import ViewSpec
from streamhouse.source import Offset
from streamhouse.state.segment import StateError
from streamhouse.state.store import StateStore

log = logging.getLogger("streamhouse.views")
_NICENESS = 10
"""Batches of all queries go first."""
_PAYS_AFTER = 4
"""After so many batches it has paid to compute what is kept."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 5.0, 600.0


@dataclass(frozen=True)
class Build:
    """Computes the kept rows of a view as of the end offset of a batch; a task for executors."""

    offset: Offset

    def run(self, spec: ViewSpec) -> None:
        """Compute the rows, and name them in the batch's manifest."""
        tree, store = compiled(spec), StateStore(Path(spec.state))
        if unsuitable(spec, store, tree, self.offset):
            return
        found = (each for each in store.manifests() if dict(each.offset) == dict(self.offset))
        manifest = next(found, None)
        if manifest is None or manifest.arrangements:
            return
        for key, address in spec.tables.items():
            snapshot = int(self.offset["vector"][key]["snapshot"])
            if snapshot and address.open().snapshots.find(snapshot) is None:
                raise StateError(f"table {address.identifier}: snapshot {snapshot} is gone")
        inputs = ViewInputs(spec, self.offset)
        tables = {
            each.name: inputs.open_table(address_of(spec, each), each.scan.columns)
            for each in tree.sources
        }
        query, now_ms = replace(spec.plan.query, scans=()), int(self.offset["now"])

        def built(memory: str) -> IncrementalRefresh:
            limits = Limits(memory=memory)
            with opened(
                query, no_scan, limits, threads=THREADS, now_ms=now_ms, more=tables
            ) as connection:
                refresh = IncrementalRefresh(tree, connection, store, {})
                refresh.build()
                return refresh

        try:
            refresh = built(MEMORY[0])
        except LimitError:
            refresh = built(MEMORY[-1])
        labels = tree.labels(refresh.segments)
        store.fill(replace(manifest, arrangements=refresh.segments, labels=labels))

    def run_slowly(self, spec: ViewSpec) -> None:
        """`run` with a low priority, if it fails with a warning."""

        def work() -> None:
            # On Linux this is the priority of this thread, and of those that it starts.
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
            try:
                self.run(spec)
            except (StreamhouseError, StateError, OSError) as error:
                name = spec.target.identifier
                log.warning("%s: what the view keeps cannot be computed: %s", name, error)

        thread = threading.Thread(target=work, name="build")
        thread.start()
        thread.join()


class Builder:
    """Starts builds for one view, one at a time; driver only.

    If batches drop again and again what was built, the next build waits longer.
    """

    def __init__(self, spark: SparkSession, folder: Path, holds: ViewHolds) -> None:
        """`folder` is that of the query's run."""
        self._spark, self._folder, self._holds = spark, folder, holds
        self._wanted: Offset | None = None
        self._served, self._wait_s, self._due = _PAYS_AFTER, 0.0, 0.0
        self._thread: threading.Thread | None = None

    def batch_done(self, report: dict[str, Any]) -> None:
        """Note what the task of a committed batch has reported."""
        if report["strategy"] == "incremental":
            self._served += 1
        self._wanted = report["end"] if report["stale"] else None

    def tick(self) -> None:
        """Start a build if one is wanted and due."""
        wanted, running = self._wanted, self._thread is not None and self._thread.is_alive()
        if wanted is None or running or time.monotonic() < self._due:
            return
        soon = self._served < _PAYS_AFTER
        self._wait_s = min(_LONGEST_WAIT_S, 2 * self._wait_s + _FIRST_WAIT_S) if soon else 0.0
        self._wanted, self._served = None, 0
        self._thread = threading.Thread(target=self._run, args=(wanted,), daemon=True)
        self._thread.start()

    def _run(self, offset: Offset) -> None:
        self._holds.build(offset)
        try:
            run_task(self._spark, self._folder, Build(offset))
        except Exception as error:  # noqa: BLE001 (the view does not need it; Spark has stopped)
            log.info("what a view keeps was not computed: %s", error)
        self._holds.build(None)
        self._due = time.monotonic() + self._wait_s
