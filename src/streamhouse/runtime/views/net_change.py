"""The net change of a table between two positions of a view's offsets."""

from collections.abc import Sequence
from typing import Any

from streamhouse.errors import DataLossError
from streamhouse.lookup.storage.changed_keys import MOST_ROWS, version_of
from streamhouse.lookup.storage.key_location import rows_changed_between
from streamhouse.operators.scan import Scan
from streamhouse.operators.trees.incremental import SourceChange
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.read.table import Table
from streamhouse.paimon.schema.evolution import name_mapping
from streamhouse.paimon.storage.table_identity import Identity
from streamhouse.sql.plan import BoundedScan

_MOST_KEYS = 5_000
"""So many keys are found in a table by a filter."""
FROM_SCRATCH = "run the script once with --from-scratch to compute its targets anew"


class UnknownChangeError(Exception):
    """The files of a table do not show exactly what has changed."""


def known_change(
    scan: BoundedScan, address: TableAddress, start: dict[str, Any], end: dict[str, Any]
) -> SourceChange | None:
    """As `net_change`, of the columns of a scan and the key; None if it is not known."""
    columns = tuple(dict.fromkeys([*scan.columns, *address.planned().primary_key]))
    try:
        return net_change(Scan(scan.table, scan.relation, columns), address, start, end)
    except UnknownChangeError:
        return None


def net_change(
    scan: Scan, address: TableAddress, start: dict[str, Any], end: dict[str, Any]
) -> SourceChange:
    """The rows that a table got between two positions, and the keys of all that changed.

    `scan` has the columns of the rows, also those of the key. The rows of those keys before the
    change are not among them. Raises `UnknownChangeError`.
    """
    table = address.open()
    check_history(table, start, end)
    first, last = int(start["snapshot"]), int(end["snapshot"])
    columns, key = list(scan.columns), list(scan.table.primary_key)
    evolved = address.schema_id not in (None, table.schema_id)
    if evolved and not (first and is_read_alike(table, address.planned(), columns)):
        raise UnknownChangeError("its schema has changed")
    if table.primary_key != scan.table.primary_key:
        raise UnknownChangeError("its key is not the one that the view was planned with")
    if first == 0:
        if (table.snapshot(last).total_record_count or MOST_ROWS + 1) > MOST_ROWS:
            raise UnknownChangeError("its first rows are many")
        rows = table.rows(columns, last)
        return SourceChange(rows, rows.select(key) if key else None)
    versions = version_of(table, first), version_of(table, last)
    most = 0 if evolved else _MOST_KEYS
    found = rows_changed_between(*versions, columns, key, address.schema_id, most)
    if found is None and evolved:
        raise UnknownChangeError("its schema has changed")
    if found is None:
        raise UnknownChangeError(
            f"its files do not show the changes, or more than {most:,} keys would have to be found"
        )
    keys, rows = found
    return SourceChange(rows.select(columns), keys if key else None)


def is_read_alike(table: Table, planned: Table, columns: Sequence[str]) -> bool:
    """Whether no later version of a table's schema changes how its columns are read."""
    now, before = table.arrow_schema, planned.arrow_schema
    names = name_mapping(table, planned.schema_id, columns).items()
    return table.options == planned.options and all(
        new is not None
        and now.field(new).type == before.field(name).type
        and now.field(new).nullable <= before.field(name).nullable
        for name, new in names
    )


def check_known(address: TableAddress, position: dict[str, Any]) -> None:
    """Raise `DataLossError` if the rows that a table had at a position are not known any more."""
    try:
        check_history(address.open(), position, position)
    except UnknownChangeError as error:
        raise DataLossError(
            f"the rows that {address.identifier} had are not known, since {error}; {FROM_SCRATCH}"
        ) from None


def check_history(table: Table, start: dict[str, Any], end: dict[str, Any]) -> None:
    """Raise `UnknownChangeError` if the two positions are not of one history of the table."""
    if not start["table"] == end["table"] == Identity(table).digest:
        raise UnknownChangeError("it was created anew")
    for position in (start, end):
        number = int(position["snapshot"])
        snapshot = table.snapshots.find(number) if number else None
        if number and (snapshot is None or snapshot.time_ms != position["time"]):
            raise UnknownChangeError(f"its snapshot {number} has expired, or was rolled back")
    if int(end["snapshot"]) < int(start["snapshot"]):
        raise UnknownChangeError("it was rolled back")
