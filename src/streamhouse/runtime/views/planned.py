"""Makes the specification of a view's query from its plan and a session's tables."""

from __future__ import annotations

from streamhouse.errors import UnsupportedSqlError
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.runtime.session.session import Session
from streamhouse.runtime.views.spec import ViewSpec
from streamhouse.sql.plan import BoundedScan, TableInfo
from streamhouse.sql.syntax import TextPosition
from streamhouse.sql.views.plan import ViewPlan


def view_spec(
    session: Session,
    target: TableInfo,
    plan: ViewPlan,
    position: TextPosition,
    freshness_s: float = 0.0,
) -> ViewSpec:
    """The specification of the query that keeps `target` as a plan says.

    Raises `UnsupportedSqlError` at `position` for an input that cannot be followed.
    """
    address = session.endpoints.address(target)
    inputs = tuple(_input(session, scan, target, position) for scan in plan.query.scans)
    return ViewSpec(plan, inputs, address, freshness_s=freshness_s)


def _input(
    session: Session, scan: BoundedScan, target: TableInfo, position: TextPosition
) -> TableAddress | None:
    table = scan.table
    name = ".".join(table.name[1:])
    if table.connector != "paimon":
        raise UnsupportedSqlError.at(
            position,
            f"a view reads Paimon tables, and {name} is a {table.connector} table; INSERT its rows "
            "INTO a Paimon table, and read that one",
        )
    if table.name == target.name:
        raise UnsupportedSqlError.at(
            position, f"a view cannot read its own table, {name}; write to another table"
        )
    if scan.as_of or "$" in table.name[-1].replace("$branch_", ""):
        return None
    if scan.options:
        key = next(iter(scan.options))
        raise UnsupportedSqlError.at(
            position,
            f"option '{key}' of the hint at {name} has no effect in a view, which reads the whole "
            "table; leave it out",
        )
    return session.endpoints.address(table)
