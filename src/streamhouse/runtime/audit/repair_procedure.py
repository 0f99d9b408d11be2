"""`CALL sys.repair`; not in `procedures`, since it needs the runtime's recomputation."""

import pyarrow as pa

from streamhouse.procedures.context import Context
from streamhouse.procedures.registry import procedure, rows


@procedure()
def repair(
    context: Context, table: str, where: str | None = None, dry_run: bool = False
) -> pa.Table:
    """Compute a view of sums again from its sources and commit what differs, in one snapshot.

    `where` is a condition over its primary key. Returns `table`, `inserted`, `updated`,
    `deleted`, and `snapshot_id`: null where nothing was written.
    """
    from streamhouse.runtime.audit.repair import repair as run

    result = run(context.warehouse.options, table, where, dry_run)
    columns = {"table": str, "inserted": int, "updated": int, "deleted": int, "snapshot_id": int}
    return rows(
        columns, [(table, result.inserted, result.updated, result.deleted, result.snapshot)]
    )
