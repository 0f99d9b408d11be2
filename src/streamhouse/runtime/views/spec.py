"""The specification of a view's query, as its planner and its task receive it; picklable."""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

from streamhouse.connectors.base import Sink
from streamhouse.connectors.specs import SinkSpec
from streamhouse.operators.planning.view_plan import ViewPlan
from streamhouse.operators.trees.arrangement import Origins
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.schema.evolution import column_ids
from streamhouse.paimon.storage.files import files_of
from streamhouse.runtime.state.replica import ReplicatedStore
from streamhouse.source import Offset
from streamhouse.sql.expressions.zones import UTC
from streamhouse.sql.plan import BoundedScan
from streamhouse.state.store import FOLDER, StateStore

PROGRESS = "rows_read"
Strategy: TypeAlias = Literal["auto", "incremental", "recompute"]
"""How a view is refreshed: from the changes of its inputs, by recomputing it, or by the faster."""


@dataclass(frozen=True)
class ViewSpec:
    """A view's query: its plan, its inputs and its table.

    `inputs` are the tables of the scans of `plan.query`, in order; None for a scan of a system
    table or of a fixed snapshot. `query_id` is the id of the checkpoint and the commit user.
    `freshness_s` is the least time between the starts of two refreshes. `progress` is the file in
    which a task says how many rows it has read; empty: none. `state` is the folder of kept rows on
    the driver's host; empty: none are kept. `replica` is where all hosts find them, if they do not
    share that folder. `strategy`: how it is refreshed. `select` is the SELECT of an INSERT, with
    full names of its tables, and the INSERT's column list; None for a view, which has it. If the
    view has windows once they are closed, `late` are the tables of the late rows of
    `plan.windows.late`, and after `idle_ms` without rows an input holds no window back (by
    `table_key`; 0: it does). `lateness_ms`: for so long after they were closed windows still
    change. `state_ttl_ms`: after so long without a batch the kept rows are deleted; 0: never.
    `parallel_rows`: from so many rows of its inputs on, a refresh that recomputes it is computed by
    `parallelism` tasks, in stages; None: always by one.
    """

    plan: ViewPlan
    inputs: tuple[TableAddress | None, ...]
    target: TableAddress
    query_id: str = ""
    freshness_s: float = 0.0
    max_rows: int | None = None
    progress: str = ""
    state: str = ""
    replica: str = ""
    strategy: Strategy = "auto"
    select: tuple[str, tuple[str, ...]] | None = None
    late: tuple[TableAddress, ...] = ()
    idle_ms: Mapping[str, int] = field(default_factory=dict)
    lateness_ms: int = 0
    state_ttl_ms: int = 0
    parallel_rows: int | None = None
    parallelism: int = 1

    planner: ClassVar = "streamhouse.runtime.views.planner:ViewPlanner"
    task: ClassVar = "streamhouse.runtime.views.task:run"
    lookup_journal: ClassVar = None
    """A view looks nothing up."""

    def final_at(self, offset: Offset) -> int | None:
        """The watermark by which windows do not change any more (epoch ms); None: none is final.

        A session is closed a millisecond later than other windows: then no row that is after the
        watermark can join it.
        """
        watermark, windows = offset.get("watermark", {}), self.plan.windows
        at: int | None = watermark.get("at")
        if at is None or windows is None:
            return at
        # What was final stays so, also if the lateness has grown since.
        final: int = watermark.get("final", at - windows.delay_ms - self.lateness_ms)
        return final

    def continued(self, start: Offset, view: str) -> Offset:
        """What a batch goes on from that computes `view`: the part of an offset.

        If that is another query than at `start`, a keyed table gets all windows anew.
        """
        return start if self.plan.keyless or start.get("view") == view else {}

    @property
    def tables(self) -> dict[str, TableAddress]:
        """The input tables, each once, by warehouse and name."""
        return {table_key(at): at for at in self.inputs if at is not None}

    def read_positions(self, offset: Offset) -> Iterable[tuple[TableAddress, int]]:
        """The snapshot of each input table at an offset; the first one before all batches."""
        vector = offset.get("vector", {})
        for key, address in self.tables.items():
            yield address, int(vector.get(key, {}).get("snapshot", 1))

    def address(self, scan: BoundedScan) -> TableAddress | None:
        """The table of a scan of the query, or of a further query of the plan; see `inputs`."""
        scans = zip(self.plan.query.scans, self.inputs, strict=True)
        fixed = scan.as_of
        return next(
            (at for own, at in scans if own.table.name == scan.table.name and own.as_of == fixed),
            None,
        )

    @cached_property
    def fingerprint(self) -> str:
        """What is computed, from which columns: a new column has another id than a former one."""
        scans = self.plan.query.scans
        ids = [
            [self.origins[scan.relation][1][name] for name in scan.columns]
            if scan.relation in self.origins
            else None
            for scan in scans
        ]
        return hashlib.sha256(f"{self.plan.fingerprint} {ids}".encode()).hexdigest()

    @cached_property
    def origins(self) -> Origins:
        """Where the tables of its scans are, and the ids of their columns."""
        tables = self.addresses.items()
        return {name: (table_key(at), column_ids(at.planned())) for name, at in tables}

    @property
    def addresses(self) -> dict[str, TableAddress]:
        """The tables of its scans, by their relations; see `inputs`."""
        scans = zip(self.plan.query.scans, self.inputs, strict=True)
        return {scan.relation: at for scan, at in scans if at is not None}

    def open_store(self, segments: bool = True) -> StateStore:
        """The store of kept rows, up to date; `segments` as for `ReplicatedStore.fetch`."""
        if not self.replica:
            return StateStore(Path(self.state))
        store = self.open_replica()
        store.fetch(segments)
        return store

    def open_replica(self) -> ReplicatedStore:
        """This host's copy of the replica."""
        folder = Path(self.state)
        if not folder.parent.is_dir():
            # Spark deletes it with the executor.
            local = os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(",")[0]
            folder = Path(local, "streamhouse-state", self.query_id, FOLDER)
        files = files_of(self.replica, self.target.warehouse)
        return ReplicatedStore(folder, files, self.replica)

    def open_sink(self) -> Sink:
        """The view's table as a sink."""
        columns, keyless = self.target.planned().columns, self.plan.keyless
        return SinkSpec("paimon", {}, columns, self.target, commutes=keyless).open()

    @property
    def auxiliary_tables(self) -> tuple[TableAddress, ...]:
        """The tables of late rows; a view's state is its own table."""
        return tuple({at.identifier: at for at in self.late}.values())

    @property
    def retried_in(self) -> Mapping[str, str]:
        return self.target.warehouse

    @property
    def definition(self) -> str:
        """The query as JSON, for the checkpoint."""
        scans = self.plan.query.scans
        # A stream over the first table is another query of a table to which several append.
        first = list(scans[0].table.name) if scans and not self.plan.keyless else []
        return json.dumps(
            {
                "query": {"scan": {"table": {"name": first}}},
                "view": self.plan.query.sql,
                "select": self.select,
                "closed": self.plan.windows is not None,
                **({"zone": self.plan.zone} if self.plan.zone != UTC else {}),
            }
        )


def table_key(address: TableAddress) -> str:
    """The name of an input in the offsets of batches; the same for all schema versions."""
    path = address.warehouse.get("warehouse", "")
    return f"{path}#{address.identifier}"
