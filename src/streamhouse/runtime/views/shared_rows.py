"""Rows that two views keep alike: a build takes those of another view, and computes only the rest.

Files of segments never change, so the views share them by hard links, and each adds to its own.
A view whose SELECT has changed finds its own former rows in the same way.
"""

import contextlib
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamhouse.durable_files import locked
from streamhouse.operators.operator import walk
from streamhouse.operators.trees.arrangement import Arrangement
from streamhouse.operators.trees.compiled_tree import CompiledTree
from streamhouse.runtime.views.incremental import LARGE_CHANGE, extent
from streamhouse.runtime.views.net_change import UnknownChangeError, net_change
from streamhouse.runtime.views.spec import ViewSpec, table_key
from streamhouse.state.manifest import Manifest, Segments
from streamhouse.state.store import FOLDER, StateStore


@dataclass(frozen=True)
class SharedRows:
    """Segments of another view by arrangement, and the positions of the tables that they are of."""

    segments: Mapping[str, Segments]
    vector: Mapping[str, Any]

    @property
    def rows(self) -> int:
        """The number of rows in the segments."""
        return sum(file.rows for files in self.segments.values() for file in files)


_NONE = SharedRows({}, {})


def building(store: StateStore) -> AbstractContextManager[bool]:
    """Wait until no other view of the same checkpoints is built: its rows can be shared then."""
    return locked(_checkpoints(store))


def shared_rows(
    spec: ViewSpec, tree: CompiledTree, store: StateStore, vector: Mapping[str, Any]
) -> SharedRows:
    """The rows that another view has of what a tree keeps, at positions shortly before `vector`.

    They are linked into the view's own store. Of several views, the one with the most rows is
    taken, so that all rows are of the same positions.
    """
    if spec.plan.query.functions:
        # Others may have functions of the same names.
        return _NONE
    near = _NearPositions(spec, tree, vector)
    found = [
        (other, _shared(tree, manifest, near))
        for folder in sorted(_checkpoints(store).glob(f"*/{FOLDER}"))
        for other in [StateStore(folder)]
        for manifest in other.manifests()
    ]
    for other, shared in sorted(found, key=lambda each: -each[1].rows):
        # Its view may have removed a file since.
        with contextlib.suppress(OSError):
            for files in shared.segments.values():
                for file in files:
                    store.link(other.folder, file)
            return shared
    return _NONE


def _checkpoints(store: StateStore) -> Path:
    return store.folder.parents[1]


class _NearPositions:
    """Compares positions in the inputs of a view with those of its last batch."""

    def __init__(self, spec: ViewSpec, tree: CompiledTree, vector: Mapping[str, Any]) -> None:
        self._spec, self._vector = spec, vector
        addresses = spec.addresses
        scans = (each.scan for each in tree.sources)
        self._scans = {table_key(addresses[scan.relation]): scan for scan in scans}
        self._held: dict[tuple[str, str], bool] = {}

    def tables(self, arrangement: Arrangement) -> set[str]:
        """The names, in vectors, of the tables that an arrangement reads."""
        return {self._spec.origins[scan.relation][0] for scan in arrangement.scans}

    def holds(self, key: str, position: Any) -> bool:
        """Whether few changes, which are known, lead from a position to that of the view.

        Several manifests have the same position, and a comparison reads the changes.
        """
        asked = key, json.dumps(position, sort_keys=True)
        if asked not in self._held:
            self._held[asked] = self._compared(key, position)
        return self._held[asked]

    def _compared(self, key: str, position: Any) -> bool:
        own, address = self._vector[key], self._spec.tables[key]
        if position is None or position["snapshot"] > own["snapshot"]:
            return False
        if position == own:
            return True
        first, last = int(position["snapshot"]), int(own["snapshot"])
        changed, rows = extent(address.open(), first, last)
        if changed > rows * LARGE_CHANGE:
            return False
        try:
            net_change(self._scans[key], address, position, own)
        except UnknownChangeError:
            return False
        return True


def _shared(tree: CompiledTree, manifest: Manifest, near: _NearPositions) -> SharedRows:
    """What a manifest has of the rows that a tree keeps."""
    vector = manifest.kept_at.get("vector", {})
    tables = {
        name: near.tables(arrangement)
        for name, arrangement in tree.arrangements.items()
        if name in manifest.arrangements
        and not any(each.timed for each in walk(arrangement.operator))
    }
    wanted = set().union(*tables.values())
    same = {key for key in wanted if near.holds(key, vector.get(key))}
    segments = {name: manifest.arrangements[name] for name, read in tables.items() if read <= same}
    used = set().union(*(tables[name] for name in segments))
    return SharedRows(segments, {key: vector[key] for key in used})
