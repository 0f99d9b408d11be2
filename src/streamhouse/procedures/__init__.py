"""Procedures (`CALL sys.…`): compaction, expiry, tags, branches, rollback of tables.

Each is a function that takes a warehouse (its folder or URI, its options, a `Warehouse`, or a
`Context` that several calls share) and the arguments of its SQL form `CALL sys.<procedure>(…)`, and
returns its rows as an Arrow table. Procedures run on the driver; `compact` may start a Spark job.
"""

from streamhouse.procedures.branches import (
    create_branch,
    delete_branch,
    fast_forward,
    rename_branch,
)
from streamhouse.procedures.compaction.compact import compact, compact_database, compact_manifest
from streamhouse.procedures.consumers import clear_consumers, reset_consumer
from streamhouse.procedures.context import Context
from streamhouse.procedures.expiry import (
    drop_partition,
    expire_changelogs,
    expire_partitions,
    expire_snapshots,
    mark_partition_done,
    purge_files,
    remove_orphan_files,
)
from streamhouse.procedures.registry import PROCEDURES, Procedure, find, listed
from streamhouse.procedures.rollback import (
    rollback_to,
    rollback_to_timestamp,
    rollback_to_watermark,
)
from streamhouse.procedures.tags import (
    create_tag,
    create_tag_from_timestamp,
    delete_tag,
    expire_tags,
    rename_tag,
    replace_tag,
    trigger_tag_automatic_creation,
)

__all__ = [
    "PROCEDURES",
    "Context",
    "Procedure",
    "clear_consumers",
    "compact",
    "compact_database",
    "compact_manifest",
    "create_branch",
    "create_tag",
    "create_tag_from_timestamp",
    "delete_branch",
    "delete_tag",
    "drop_partition",
    "expire_changelogs",
    "expire_partitions",
    "expire_snapshots",
    "expire_tags",
    "fast_forward",
    "find",
    "listed",
    "mark_partition_done",
    "purge_files",
    "remove_orphan_files",
    "rename_branch",
    "rename_tag",
    "replace_tag",
    "reset_consumer",
    "rollback_to",
    "rollback_to_timestamp",
    "rollback_to_watermark",
    "trigger_tag_automatic_creation",
]
