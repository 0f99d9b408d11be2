"""Procedures (`CALL sys.…`): compaction, expiry, tags, branches, rollback of tables.

Each is a function that takes a warehouse (its folder or URI, its options, a `Warehouse`, or a
`Context` that several calls share) and the arguments of its SQL form `CALL sys.<procedure>(…)`, and
returns its rows as an Arrow table. Procedures run on the driver; `compact` may start a Spark job.
"""

from streamhouse.procedures.branches import create_branch as create_branch
from streamhouse.procedures.branches import delete_branch as delete_branch
from streamhouse.procedures.branches import fast_forward as fast_forward
from streamhouse.procedures.branches import rename_branch as rename_branch
from streamhouse.procedures.compaction.compact import compact as compact
from streamhouse.procedures.compaction.compact import compact_database as compact_database
from streamhouse.procedures.compaction.compact import compact_manifest as compact_manifest
from streamhouse.procedures.consumers import clear_consumers as clear_consumers
from streamhouse.procedures.consumers import reset_consumer as reset_consumer
from streamhouse.procedures.context import Context as Context
from streamhouse.procedures.expiry import drop_partition as drop_partition
from streamhouse.procedures.expiry import expire_changelogs as expire_changelogs
from streamhouse.procedures.expiry import expire_partitions as expire_partitions
from streamhouse.procedures.expiry import expire_snapshots as expire_snapshots
from streamhouse.procedures.expiry import mark_partition_done as mark_partition_done
from streamhouse.procedures.expiry import purge_files as purge_files
from streamhouse.procedures.expiry import remove_orphan_files as remove_orphan_files
from streamhouse.procedures.registry import PROCEDURES as PROCEDURES
from streamhouse.procedures.registry import Procedure as Procedure
from streamhouse.procedures.registry import find as find
from streamhouse.procedures.registry import listed as listed
from streamhouse.procedures.rollback import rollback_to as rollback_to
from streamhouse.procedures.rollback import rollback_to_timestamp as rollback_to_timestamp
from streamhouse.procedures.rollback import rollback_to_watermark as rollback_to_watermark
from streamhouse.procedures.tags import create_tag as create_tag
from streamhouse.procedures.tags import create_tag_from_timestamp as create_tag_from_timestamp
from streamhouse.procedures.tags import delete_tag as delete_tag
from streamhouse.procedures.tags import expire_tags as expire_tags
from streamhouse.procedures.tags import rename_tag as rename_tag
from streamhouse.procedures.tags import replace_tag as replace_tag
from streamhouse.procedures.tags import (
    trigger_tag_automatic_creation as trigger_tag_automatic_creation,
)
