"""Identifies a target, and the columns to which a sync has written."""

from __future__ import annotations

from streamhouse.connectors.mysql_cdc.database.tables.followed_table import FollowedTable
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.evolution import column_ids
from streamhouse.paimon.storage.table_identity import Identity
from streamhouse.runtime.sync.options import SyncOptions


def bound_target(options: SyncOptions, table: FollowedTable, target: Table) -> str:
    """Text that is another one once the target was created again, or its columns changed names."""
    ids = column_ids(target)
    own = (ids.get(options.spelt(name)) for name, _ in table.columns)
    return " ".join([Identity(target).digest, *map(str, own)])


def why_other_rows(options: SyncOptions, table: FollowedTable, query_id: str) -> str | None:
    """Why a target lacks rows that a sync has written, or has them in other columns; None: not."""
    target = TableAddress(options.warehouse, table.target).open()
    if table.bound not in ("", bound_target(options, table, target)):
        return "was created again, or has other columns of the same names"
    for snapshot in target.snapshots.newest_first():
        if snapshot.commit_user == query_id:
            return None
        if snapshot.commit_kind == "OVERWRITE" and snapshot.total_record_count == 0:
            return "was emptied"
    return None
