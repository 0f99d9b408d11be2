"""The cache of the tables that this process has opened, checked for changes of their schemas."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from streamhouse.errors import StreamhouseError
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.storage import rust_core
from streamhouse.paimon.storage.followed_snapshots import FollowedSnapshots
from streamhouse.paimon.storage.object_store.parallel import submit

_CHECK_S = 2.0
"""How long a followed table is used before its schema is compared again."""


class TableKey(NamedTuple):
    """Identifies an opened table.

    `followed` and `caches` are those of `Warehouse.followed`, for an object store only.
    """

    process: int
    catalog_options: tuple[tuple[str, str], ...]
    identifier: str
    followed: bool
    caches: bool


@dataclass(frozen=True)
class _Opened:
    """A table, its schema's stamp, and when that was last compared (monotonic seconds).

    `generation`: of the metadata that the Rust core has cached.
    """

    stamp: object
    table: Table
    checked_at: float
    generation: int


_tables: dict[TableKey, _Opened] = {}
_checking: set[TableKey] = set()


def opened_table(key: TableKey, open_table: Callable[[], Table]) -> Table:
    """The cached table, which `open_table` opens if it is not there or its schema has changed.

    The schema of a followed table is compared every two seconds, after the first one in the
    background, unless a commit has just compared it.
    """
    opened, now = _tables.get(key), time.monotonic()
    if opened is not None and key.caches and opened.generation != rust_core.metadata_generation():
        opened = None
    if opened is not None and key.followed and now - opened.checked_at > _CHECK_S / 2:
        opened = _tables[key] = _checked_by_commits(opened)
    if opened is not None and key.followed and now - opened.checked_at < _CHECK_S:
        if now - opened.checked_at > _CHECK_S / 2:
            _check_in_background(key, opened)
        return opened.table
    if opened is None or opened.stamp is None or opened.table.versions.stamp() != opened.stamp:
        if opened is not None and key.followed:
            rust_core.forget_metadata()
        generation = rust_core.metadata_generation()
        table = open_table()
        opened = _tables[key] = _Opened(table.versions.stamp(), table, now, generation)
    elif key.followed:
        _tables[key] = replace(opened, checked_at=now)
    return opened.table


def evict(prefix: str) -> None:
    """Forget the tables whose identifiers begin with `prefix`, and the metadata of all."""
    for key in [key for key in list(_tables) if key.identifier.startswith(prefix)]:
        del _tables[key]
    rust_core.forget_metadata()


def _checked_by_commits(opened: _Opened) -> _Opened:
    """The same, compared when a process of this machine committed with this schema to this table.

    A commit looks for a newer schema itself.
    """
    snapshots, schema = opened.table.snapshots, opened.table.schema_id
    if not isinstance(snapshots, FollowedSnapshots):
        return opened
    seen = snapshots.newest_schema_at(schema, opened.checked_at)
    return replace(opened, checked_at=max(opened.checked_at, seen))


def _check_in_background(key: TableKey, opened: _Opened) -> None:
    """Compare a table's schema in a thread, so that no later reader has to wait for that."""
    if key in _checking:
        return
    _checking.add(key)

    def check() -> None:
        try:
            if isinstance(opened.table.snapshots, FollowedSnapshots):
                opened.table.snapshots.learn_history()
            began = time.monotonic()
            # If it differs, or the store fails, the next reader compares again.
            if opened.table.versions.stamp() == opened.stamp and _tables.get(key) is opened:
                _tables[key] = replace(opened, checked_at=began)
        except StreamhouseError:
            return
        finally:
            _checking.discard(key)

    submit(check)
