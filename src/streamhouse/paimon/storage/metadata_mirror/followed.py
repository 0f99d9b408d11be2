"""Which tables can be planned, read, written and committed by local copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamhouse.paimon.storage.followed_snapshots import FollowedSnapshots
from streamhouse.paimon.storage.object_store.object_files import ObjectFiles

if TYPE_CHECKING:
    from streamhouse.paimon.read.table import Table


def object_store_parts(table: Table) -> tuple[ObjectFiles, FollowedSnapshots] | None:
    """The files and snapshots of a followed table in an object store.

    None for others, for branches, and for tables whose commits a REST server decides.
    """
    files, snapshots = table.files, table.snapshots
    if not isinstance(files, ObjectFiles) or not isinstance(snapshots, FollowedSnapshots):
        return None
    if table.root != table.location or table.catalog_options.get("metastore") == "rest":
        return None
    return files, snapshots
