"""`streamhouse audit`: recomputes a view from its history, and compares."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from streamhouse.cli.flags import DEFAULT_WAREHOUSE, TextFormat, open_warehouse, with_flags

if TYPE_CHECKING:
    from streamhouse.runtime.audit.row_differences import Audit, Difference

_MAX_PRINTED = 20


@with_flags("audit")
def audit(
    table: str,
    warehouse: str = DEFAULT_WAREHOUSE,
    option: list[str] | None = None,
    format: TextFormat = TextFormat.TABLE,
) -> None:
    """Recompute a view from its sources and compare it, key by key.

    The batch query reads the source ranges and joins the dimension versions that the lineage has
    for each batch; that of a materialized view reads its tables at the snapshots of the last
    refresh. Prints "equal", or the keys that differ, with exit code 1.
    """
    from streamhouse.runtime.audit.audit import audit as run_audit

    result = run_audit(open_warehouse(warehouse, option).options, table)
    if format is TextFormat.JSON:
        print(json.dumps(_record(result), default=str))
    else:
        _print(result)
    sys.stdout.flush()
    if not result.equal:
        raise typer.Exit(1)


def _record(result: Audit) -> dict[str, Any]:
    return {
        "table": result.table,
        "snapshot": result.snapshot,
        "from_snapshot": result.from_snapshot,
        "batches": result.batches,
        "rows": result.rows,
        **({} if result.inputs is None else {"inputs": dict(result.inputs)}),
        "equal": result.equal,
        "complete": result.complete,
        "unread": list(map(asdict, result.unread)),
        "differences": list(map(asdict, result.differences)),
    }


def _print(result: Audit) -> None:
    about = (
        f"{result.table} at snapshot {result.snapshot}: {result.rows:,} rows, recomputed from "
        + (
            f"{result.joined_rows:,} rows of {result.batches:,} batches"
            if result.inputs is None
            else ", ".join(f"snapshot {n} of {table}" for table, n in result.inputs.items())
        )
    )
    if result.waiting_rows:
        about += f" ({result.waiting_rows:,} rows wait for their lookup)"
    if result.foreign_snapshots:
        about += f"; {result.foreign_snapshots:,} snapshots of other writers are not verified"
    print(about)
    if result.from_snapshot and not result.batches:
        print("nothing was verified: the sources of its newest state have expired")
    elif result.from_snapshot:
        print(
            f"verified from snapshot {result.from_snapshot} on; the sources of its state at that "
            "snapshot have expired or were overwritten, so that state is not verified"
        )
    for view in result.unread:
        print(f"not included: {view}")
    if result.equal:
        print("equal" if result.complete else "equal to what was read")
        return
    print(f"{len(result.differences):,} keys differ")
    for difference in result.differences[:_MAX_PRINTED]:
        print(_line(difference))
    if len(result.differences) > _MAX_PRINTED:
        print(f"… and {len(result.differences) - _MAX_PRINTED:,} more")


def _line(difference: Difference) -> str:
    key = ", ".join(str(part) for part in difference.key)
    if difference.actual is None:
        return f"  {key}: missing, should be {difference.expected}"
    if difference.expected is None:
        return f"  {key}: should not exist, is {difference.actual}"
    parts = [
        f"{name} is {value}, should be {difference.expected[name]}"
        for name, value in difference.actual.items()
        if value != difference.expected[name]
    ]
    return f"  {key}: {'; '.join(parts)}"
