"""Makes the specification of a view's query from its plan and a session's tables."""

from __future__ import annotations

from typing import cast

from streamhouse.errors import UnsupportedSqlError
from streamhouse.operators.planning.view_plan import ViewPlan
from streamhouse.runtime.session.session import Session
from streamhouse.runtime.views.spec import Strategy, ViewSpec
from streamhouse.sql.plan import BoundedScan, TableInfo
from streamhouse.sql.syntax import TextPosition


def check_view(plan: ViewPlan, target: TableInfo, position: TextPosition) -> None:
    """Raise `UnsupportedSqlError` at `position` for an input that cannot be followed."""
    for scan in plan.query.scans:
        name = ".".join(scan.table.name[1:])
        if scan.table.connector != "paimon":
            message = (
                f"a view reads Paimon tables, and {name} is a {scan.table.connector} table; INSERT "
                "its rows INTO a Paimon table, and read that one"
            )
        elif scan.table.name == target.name:
            message = f"a view cannot read its own table, {name}; write to another table"
        elif scan.options and not _is_fixed(scan):
            message = (
                f"option '{next(iter(scan.options))}' of the hint at {name} has no effect in a "
                "view, which reads the whole table; leave it out"
            )
        else:
            continue
        raise UnsupportedSqlError.at(position, message)


def view_spec(
    session: Session, target: TableInfo, plan: ViewPlan, freshness_s: float = 0.0
) -> ViewSpec:
    """The specification of the query that keeps `target` as a plan says; see `check_view`."""
    inputs = tuple(
        None if _is_fixed(scan) else session.endpoints.address(scan.table)
        for scan in plan.query.scans
    )
    strategy = cast(Strategy, session.settings.get("view.refresh-strategy", "auto").lower())
    address = session.endpoints.address(target)
    return ViewSpec(plan, inputs, address, freshness_s=freshness_s, strategy=strategy)


def _is_fixed(scan: BoundedScan) -> bool:
    """Whether a scan reads a system table, or a table as of a fixed point in time."""
    return bool(scan.as_of) or "$" in scan.table.name[-1].replace("$branch_", "")
