"""`streamhouse repair`: corrects a view of aggregates while its queries run."""

import json
from dataclasses import asdict

from streamhouse.cli.flags import DEFAULT_WAREHOUSE, open_warehouse, with_flags


@with_flags("repair")
def repair(
    table: str,
    where: str | None = None,
    warehouse: str = DEFAULT_WAREHOUSE,
    option: list[str] | None = None,
    dry_run: bool = False,
    as_json: bool = False,
) -> None:
    """Recompute a view from its sources, by the definitions of its queries, and write the
    differences in one snapshot.

    The queries can keep running: each is computed as of its last commit.
    """
    from streamhouse.runtime.audit.repair import repair as run

    done = run(open_warehouse(warehouse, option).options, table, where, dry_run)
    if as_json:
        print(json.dumps(asdict(done)))
        return
    counts = f"{done.inserted:,} inserted, {done.updated:,} updated, {done.deleted:,} deleted"
    if not (done.inserted or done.updated or done.deleted):
        print(f"{table}: nothing to change")
    else:
        print(f"{table}: {counts}" + (" (not written)" if dry_run else ""))
