"""`streamhouse repair`: corrects a view of aggregates while its queries run."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from streamhouse.cli.arguments import (
    DEFAULT_WAREHOUSE,
    OptionsArgument,
    WarehouseArgument,
    open_warehouse,
)


def repair(
    table: Annotated[str, typer.Argument(metavar="DB.TABLE", help="The view to repair.")],
    where: Annotated[
        str | None,
        typer.Option("--where", help="Repair only these rows: a condition over the primary key."),
    ] = None,
    warehouse: WarehouseArgument = DEFAULT_WAREHOUSE,
    option: OptionsArgument = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the differences.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the counts as one JSON object.")
    ] = False,
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
