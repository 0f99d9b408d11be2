"""Rows that two views keep alike: a build takes those of another view, and computes only the rest.

Files of segments never change, so the views share them by hard links, or by copies that the object
store makes (decision 285), and each adds to its own. A view whose SELECT has changed finds its own
former rows in the same way.
"""

import contextlib
import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from streamhouse.errors import StreamhouseError
from streamhouse.operators.operator import walk
from streamhouse.operators.scan import Scan
from streamhouse.operators.trees.compiled_tree import CompiledTree
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.runtime.views.incremental import LARGE_CHANGE, extent
from streamhouse.runtime.views.net_change import UnknownChangeError, net_change
from streamhouse.runtime.views.spec import ViewSpec, table_key
from streamhouse.state.manifest import Manifest, Segments
from streamhouse.state.segment import StateError
from streamhouse.state.store import StateStore


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
    scans = {table_key(spec.addresses[each.scan.relation]): each.scan for each in tree.sources}

    # Several manifests have the same position, and a comparison reads the changes.
    @cache
    def is_near(key: str, position: str) -> bool:
        return _is_near(scans[key], spec.tables[key], json.loads(position), vector[key])

    found = [
        (folder, _shared(spec, tree, manifest, is_near))
        for folder, manifest in store.manifests_beside()
    ]
    for folder, shared in sorted(found, key=lambda each: -each[1].rows):
        files = list(itertools.chain.from_iterable(shared.segments.values()))
        # Its view may have removed a file since, or one may be damaged.
        with contextlib.suppress(OSError, StreamhouseError, StateError):
            store.link(folder, files)
            for file in files:
                store.segment(file)
            return shared
    return _NONE


def _is_near(scan: Scan, address: TableAddress, position: Any, own: Any) -> bool:
    """Whether few changes, which are known, lead from a position in a table to a view's own."""
    if position is None or position["snapshot"] > own["snapshot"]:
        return False
    if position == own:
        return True
    changed, rows = extent(address.open(), position, own)
    if changed > rows * LARGE_CHANGE:
        return False
    try:
        net_change(scan, address, position, own)
    except UnknownChangeError:
        return False
    return True


def _shared(
    spec: ViewSpec, tree: CompiledTree, manifest: Manifest, is_near: Callable[[str, str], bool]
) -> SharedRows:
    """What a manifest has of the rows that a tree keeps."""
    vector = manifest.kept_at.get("vector", {})
    tables = {
        name: {spec.origins[scan.relation][0] for scan in arrangement.scans}
        for name, arrangement in tree.arrangements.items()
        if name in manifest.arrangements
        and not any(each.timed for each in walk(arrangement.operator))
    }
    wanted = set().union(*tables.values())
    same = {key for key in wanted if is_near(key, json.dumps(vector.get(key), sort_keys=True))}
    segments = {name: manifest.arrangements[name] for name, read in tables.items() if read <= same}
    used = set().union(*(tables[name] for name in segments))
    return SharedRows(segments, {key: vector[key] for key in used})
