"""Computes what a view keeps from its inputs, beside its batches.

Batches recompute the view until that is done. The next batch then applies what has changed since.
"""

import logging
import os
import pickle
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

from streamhouse.duckdb_engine import THREADS, Limits
from streamhouse.durable_files import locked
from streamhouse.errors import StreamhouseError
from streamhouse.operators.trees.compiled_tree import CompiledTree
from streamhouse.operators.trees.incremental import IncrementalRefresh
from streamhouse.runtime.spark.settings import ENVIRONMENT
from streamhouse.runtime.state.retention_holds import RetentionHolds
from streamhouse.runtime.views.incremental import compiled, unsuitable
from streamhouse.runtime.views.inputs import MEMORY, NICENESS, ViewInputs, opened_alone
from streamhouse.runtime.views.shared_rows import shared_rows
from streamhouse.runtime.views.spec import ViewSpec
from streamhouse.source import Offset
from streamhouse.state.manifest import Manifest
from streamhouse.state.segment import StateError
from streamhouse.state.store import StateStore

log = logging.getLogger("streamhouse.views")
BUILD = "build.pickle"
_PAYS_AFTER = 4
"""After so many batches it has paid to compute what is kept."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 2.0, 600.0


def build(spec: ViewSpec, offset: Offset) -> None:
    """Compute the kept rows of a view as of the last batch, which ends at `offset` or later.

    Those that no other view has are computed; the batch's manifest names all.
    """
    tree, store = compiled(spec), spec.open_store(segments=False)
    if not unsuitable(spec, store, tree, offset):
        # What another view of the same checkpoints builds can be shared once it is done.
        with locked(store.folder.parents[1]):
            try:
                _build(spec, tree, store, offset)
            finally:
                # If it has failed, no manifest names the rows that it has shared.
                store.publish()


def _build(spec: ViewSpec, tree: CompiledTree, store: StateStore, offset: Offset) -> None:
    manifest = _manifest(store, offset)
    if manifest.arrangements:
        return
    shared = shared_rows(spec, tree, store, manifest.offset["vector"])
    as_of = {**manifest.offset, "vector": {**manifest.offset["vector"], **shared.vector}}
    for key, address in spec.tables.items():
        snapshot = int(as_of["vector"][key]["snapshot"])
        if snapshot and address.open().snapshots.find(snapshot) is None:
            raise StateError(f"table {address.identifier}: snapshot {snapshot} is gone")
    inputs = ViewInputs(spec, as_of)
    tables = {
        each.name: inputs.open_table(spec.addresses[each.scan.relation], each.scan.columns)
        for each in tree.sources
    }
    now_ms = int(as_of["now"])

    def built(limits: Limits) -> IncrementalRefresh:
        with opened_alone(spec, limits, THREADS, now_ms, tables) as connection:
            refresh = IncrementalRefresh(tree, connection, store, shared.segments)
            refresh.build()
            return refresh

    segments = Limits.growing(built, MEMORY).segments
    labels = tree.labels(segments)
    store.fill(replace(manifest, arrangements=segments, labels=labels, as_of=as_of))


def _manifest(store: StateStore, offset: Offset) -> Manifest:
    """The manifest that gets the rows: that of the last batch, if it is known.

    Later batches remove it, as it names no rows. Then none of them starts from it.
    """
    batch, view = int(offset["batch"]), offset["view"]
    for each in store.manifests():
        if each.batch >= batch and each.offset["view"] == view:
            return each
    return Manifest(batch, offset, {"snapshot": 0, "time": 0, "wrote": 0}, {})


def main(folder: Path) -> None:
    """Run the build in a query's folder, unless the driver ends before it."""

    def follow() -> None:
        # Not by the buffer of `sys.stdin`, whose lock would be held when the process ends.
        os.read(0, 1)
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
    os.nice(NICENESS)
    try:
        build(*pickle.loads((folder / BUILD).read_bytes()))
    except (StreamhouseError, StateError, OSError) as error:
        sys.exit(str(error))


class Builder:
    """Starts builds for one view, one at a time, as processes of low priority; driver only.

    If batches drop again and again what was built, the next build waits longer.
    """

    def __init__(self, view: str, folder: Path) -> None:
        """`folder` is that of the query's run."""
        self._view, self._folder = view, folder
        self._process: subprocess.Popen[bytes] | None = None
        self._wanted: Offset | None = None
        self._served, self._wait_s, self._due = _PAYS_AFTER, 0.0, 0.0
        self._thread: threading.Thread | None = None

    @property
    def awaited(self) -> bool:
        """Whether a build runs, or starts with the next tick."""
        return self._running or (self._wanted is not None and time.monotonic() >= self._due)

    @property
    def _running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def batch_done(self, report: dict[str, Any]) -> None:
        """Note what the task of a committed batch has reported."""
        if report["strategy"] == "incremental":
            self._served += 1
        self._wanted = report["end"] if report["stale"] else None

    def tick(self, spec: ViewSpec, holds: RetentionHolds) -> None:
        """Start a build if one is wanted and due; `holds` keep the snapshots that it reads."""
        wanted = self._wanted
        if wanted is None or self._running or time.monotonic() < self._due:
            return
        soon = self._served < _PAYS_AFTER
        self._wait_s = min(_LONGEST_WAIT_S, 2 * self._wait_s + _FIRST_WAIT_S) if soon else 0.0
        self._served = 0
        self._thread = threading.Thread(target=self._run, args=(spec, wanted, holds), daemon=True)
        self._thread.start()
        # After the start, so that `awaited` stays true. A batch may have wanted another one since.
        if self._wanted is wanted:
            self._wanted = None

    def stop(self) -> None:
        """End a build that runs."""
        self._wanted = None
        process = self._process
        if process is not None:
            process.kill()

    def _run(self, spec: ViewSpec, offset: Offset, holds: RetentionHolds) -> None:
        holds.keep(offset)
        try:
            problem = self._problem(spec, offset)
        except OSError as error:
            problem = str(error)
        if problem and self._folder.exists():
            log.warning("%s: what the view keeps is not computed: %s", self._view, problem)
        holds.keep(None)
        # The next batch tells whether it needs later rows than these.
        self._wanted = None
        self._due = time.monotonic() + self._wait_s

    def _problem(self, spec: ViewSpec, offset: Offset) -> str:
        """Why a build has failed; empty if it has not."""
        (self._folder / BUILD).write_bytes(pickle.dumps((spec, offset)))
        command = [sys.executable, "-m", "streamhouse.runtime.views.build", str(self._folder)]
        env = {**ENVIRONMENT, **os.environ}
        with subprocess.Popen(
            command, stdin=PIPE, stdout=DEVNULL, stderr=PIPE, env=env
        ) as self._process:
            assert self._process.stderr is not None
            text = self._process.stderr.read().decode(errors="replace").strip()
        return text if self._process.returncode else ""


if __name__ == "__main__":
    main(Path(sys.argv[1]))
