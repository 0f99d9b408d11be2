"""Makes the specification of a view's query from its plan and a session's tables."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import cast

from streamhouse.errors import UnsupportedSqlError
from streamhouse.operators.planning.closed_windows import LATE
from streamhouse.operators.planning.view_plan import ViewPlan
from streamhouse.options import duration_ms
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.schema.table_name import split_identifier
from streamhouse.runtime.session.session import Session
from streamhouse.runtime.state.auxiliary_tables import late_name
from streamhouse.runtime.views.late_changes import COLUMNS
from streamhouse.runtime.views.spec import Strategy, ViewSpec, table_key
from streamhouse.sql.plan import BoundedScan, TableInfo
from streamhouse.sql.statements.watermark import IDLE_OPTION
from streamhouse.sql.syntax import TextPosition

_TTL = "table.exec.state.ttl"
_EARLY = "table.exec.emit.early-fire"


def check_view(plan: ViewPlan, target: TableInfo, position: TextPosition) -> None:
    """Raise `UnsupportedSqlError` at `position` for an input that cannot be followed."""
    for scan in plan.query.scans:
        name = ".".join(scan.table.name[1:])
        if scan.table.connector not in ("paimon", LATE):
            message = (
                f"a view reads Paimon tables, and {name} is a {scan.table.connector} table; INSERT "
                "its rows INTO a Paimon table, and read that one"
            )
        elif scan.table.name == target.name:
            message = f"a view cannot read its own table, {name}; write to another table"
        elif (scan.options.keys() - {IDLE_OPTION}) and not _is_fixed(scan):
            key = next(key for key in scan.options if key != IDLE_OPTION)
            message = (
                f"option '{key}' of the hint at {name} has no effect in a "
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
        None if _is_fixed(scan) else session.address(scan.table) for scan in plan.query.scans
    )
    strategy = cast(Strategy, session.settings.value("view.refresh-strategy"))
    address = session.address(target)
    ttl_ms = plan.query.state_ttl_ms or session.settings.value(_TTL)
    return ViewSpec(
        plan, inputs, address, freshness_s=freshness_s, strategy=strategy,
        late=tuple(_late_tables(address, plan)), idle_ms=dict(_idle(session, plan, inputs)),
        lateness_ms=0 if plan.keyless else lateness_ms(session),
        state_ttl_ms=ttl_ms,
        parallel_rows=session.settings.value("view.parallel-rows"),
        parallelism=session.settings.value("parallelism.default"),
    )  # fmt: skip


def _idle(
    session: Session, plan: ViewPlan, inputs: Sequence[TableAddress | None]
) -> Iterator[tuple[str, int]]:
    """After which time without rows each input does not count (ms)."""
    for scan, address in zip(plan.query.scans, inputs, strict=True):
        if address is not None:
            own = {**scan.table.options, **scan.options}.get(IDLE_OPTION)
            of_all: int = session.settings.value("table.exec.source.idle-timeout")
            yield table_key(address), of_all if own is None else duration_ms(IDLE_OPTION, own)


def lateness_ms(session: Session) -> int:
    """For how long windows of keyed targets change after they were closed; 0: for ever."""
    return int(session.settings.value("table.exec.emit.allow-lateness"))


def early_fire_ms(session: Session) -> int:
    """The least time between two results of windows of keyed targets."""
    settings = session.settings
    return settings.value(f"{_EARLY}.delay") if settings.value(f"{_EARLY}.enabled") else 0


def _late_tables(view: TableAddress, plan: ViewPlan) -> Iterator[TableAddress]:
    """The tables of late rows, which are created: `<target>__late`, with a number if it is taken.

    Such a name is taken by a table with other columns.
    """
    base, warehouse = late_name(view), Warehouse(view.warehouse)
    for late in () if plan.windows is None else plan.windows.late:
        columns = [*(replace(column, nullable=True) for column in late.columns), *COLUMNS]
        for number in count(1):
            own = TableAddress(view.warehouse, base if number == 1 else f"{base}_{number}")
            if not warehouse.exists(*split_identifier(own.identifier)):
                own.create(columns, (), {})
            found = own.open().columns
            if [(c.name, c.type) for c in found] == [(c.name, c.type) for c in columns]:
                yield own
                break


def _is_fixed(scan: BoundedScan) -> bool:
    """Whether a scan reads a system table, late rows, or a table as of a fixed point in time."""
    late = scan.table.connector == LATE
    return late or bool(scan.as_of) or "$" in scan.table.name[-1].replace("$branch_", "")
