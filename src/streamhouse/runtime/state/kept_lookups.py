"""What worker processes keep of the tables that a query looks up, as its tasks reported it last.

Each process keeps rows of its own, so the manifest is that of the process with the most bytes. Its
segments are in the memory of that process, or in its local files.
"""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from streamhouse.runtime.query_spec import QuerySpec
from streamhouse.source import Offset
from streamhouse.state.manifest import Manifest
from streamhouse.state.segment import SegmentFile
from streamhouse.state.store import LOOKUPS, StateStore


def save_lookups(
    checkpoint: Path, spec: QuerySpec, end: Offset, reports: Sequence[Mapping[str, Any]]
) -> None:
    """Write what is kept after the batch that ends at `end`, from the reports of its tasks."""
    kept, labels, vector = {}, {}, {}
    for lookup, address in spec.pinned:
        name = lookup.relation
        held = [report["kept"][name] for report in reports if report["kept"]]
        if held:
            most = max(held, key=lambda segments: sum(size for _, size in segments))
            kept[name] = tuple(
                SegmentFile(f"{name}-{number}", rows, size, 0)
                for number, (rows, size) in enumerate(most)
            )
            labels[name] = f"lookup of {address.identifier} by {', '.join(lookup.keys)}"
            vector[f"#{address.identifier}"] = {"snapshot": end["dims"][name]}
    store = StateStore(checkpoint / LOOKUPS)
    manifest = Manifest(
        end["batch"], end, {"snapshot": 0, "time": 0, "wrote": 0}, kept, labels, {"vector": vector}
    )
    # The query goes on without the report.
    with contextlib.suppress(OSError):
        if kept and store.usable:
            store.save(manifest)
