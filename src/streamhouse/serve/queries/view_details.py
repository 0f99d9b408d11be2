"""Metadata of a served view: schema, options, snapshots, tags and data files.

It must not reveal columns and rows that the view hides
(docs/decisions/064-what-clients-of-the-server-may-do.md).
"""

import itertools
import json
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from streamhouse.errors import DataLossError, SqlError, StreamhouseError, TableError
from streamhouse.options import hide_secrets, is_secret
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.table import Table
from streamhouse.serve.access_log import LOGGER
from streamhouse.serve.errors import hide_path
from streamhouse.serve.formats.cells import iso
from streamhouse.serve.formats.row_formats import json_objects
from streamhouse.serve.queries.pinned_tables import PinnedTables
from streamhouse.serve.views.served_view import ServedView, WarehouseTables, planned, table_of
from streamhouse.serve.views.shown_table import ShownTable
from streamhouse.sql.plan import Column
from streamhouse.sql.views.stored_view import QUERY

TABLE, VIEW = "table", "view"
_COUNTED_RECORDS = 200_000
"""More records take long to count."""
_VERSIONS = 100
MASK = "****"
_WORD = re.compile(r"[^\s.,;:=|]+")


def summary(warehouse: Warehouse, view: ServedView) -> dict[str, Any]:
    """The entry of a view in the list of all; if the view cannot be read, it has an `error`."""
    record: dict[str, Any] = {
        "name": view.name,
        "kind": TABLE,
        "materialized": False,
        "title": view.title,
        "description": view.description,
        "columns": [],
        "primary_key": [],
        "partitioned_by": [],
        "snapshot": None,
        "time": None,
        "rows": None,
        "chart": None if view.chart is None else dict(view.chart),
    }
    try:
        try:
            table = table_of(warehouse, view.source)
        except TableError:
            # Not the error's own text, which suggests other tables.
            return record | {"error": f"the table of view '{view.name}' does not exist"}
        return record | (_of_view(warehouse, view) if table is None else _of_table(table, view))
    except StreamhouseError as error:
        return record | {"error": hide_path(str(error), warehouse.path)}
    except Exception as error:  # noqa: BLE001 - one bad table must not fail the whole list
        LOGGER.error("view %s cannot be described: %s", view.name, hide_secrets(repr(error)))
        return record | {"error": f"the view cannot be read: {type(error).__name__}"}


def required_table(warehouse: Warehouse, view: ServedView) -> Table:
    """The table or branch behind a served view; a SQL view has no snapshots or files."""
    table = table_of(warehouse, view.source)
    if table is None:
        raise TableError(f"'{view.name}' is a view, which has no snapshots or files of its own")
    return table


def visible_columns(view: ServedView, columns: tuple[Column, ...]) -> list[Column]:
    """Those of a table's columns that the view shows; `TableError` if one does not exist."""
    columns_by_name = {column.name: column for column in columns}
    return [columns_by_name[name] for name in view.visible(list(columns_by_name))]


def schema(warehouse: Warehouse, view: ServedView) -> dict[str, Any]:
    """The columns, the keys, and the table's schema versions."""
    table = table_of(warehouse, view.source)
    if table is None:
        return _of_view(warehouse, view) | {"name": view.name, "kind": VIEW, "schema_versions": []}
    return {
        "name": view.name,
        "kind": TABLE,
        **_columns_and_keys(table, view),
        "version": table.schema_id,
        "schema_versions": _versions(table),
    }


def options(warehouse: Warehouse, view: ServedView) -> dict[str, Any]:
    """The table's options; masks secrets, and leaves out options that name hidden columns."""
    table = required_table(warehouse, view)
    every = (*table.columns, *ShownTable(table).columns)
    hidden = {column.name for column in every} - _names(view, table)
    visible = {
        key: MASK if is_secret(key) else hide_secrets(value)
        for key, value in sorted(table.options.items())
        if key != "path" and hidden.isdisjoint(_WORD.findall(f"{key} {value}"))
    }
    return {"options": visible}


def snapshots(warehouse: Warehouse, view: ServedView, limit: int) -> dict[str, Any]:
    """The newest snapshots, newest first; row counts are null if the view has a filter."""
    table = required_table(warehouse, view)
    records = [
        {
            "snapshot": snapshot.id,
            "time": iso(snapshot.time_ms),
            "kind": snapshot.commit_kind,
            "rows": snapshot.total_record_count if view.filter is None else None,
            "delta_rows": snapshot.delta_record_count if view.filter is None else None,
            "schema": snapshot.schema_id,
        }
        for snapshot in itertools.islice(table.snapshots.newest_first(), limit)
    ]
    return {"snapshots": records}


def tags(warehouse: Warehouse, view: ServedView) -> dict[str, Any]:
    """The tags and their snapshots."""
    table = required_table(warehouse, view)
    records = []
    for name in table.tags():
        snapshot = table.tag(name)
        if snapshot is not None:
            records.append({"tag": name, "snapshot": snapshot.id, "time": iso(snapshot.time_ms)})
    return {"tags": records}


def files(warehouse: Warehouse, view: ServedView, limit: int) -> dict[str, Any]:
    """The data files of the newest snapshot: at most `limit` of them, and their total number.

    Partitions hold values of rows, so they are null if the view has a filter or hides a partition
    column. Row counts and sizes are null if the view has a filter.
    """
    table = required_table(warehouse, view)
    counted = view.filter is None
    hidden = view.filter is not None or not set(table.partition_keys) <= _names(view, table)
    columns = ["partition", "bucket", "file_path", "file_format", "level", "record_count",
               "file_size_in_bytes", "creation_time"]  # fmt: skip
    batches = warehouse.readable(f"{view.source}$files").read(columns=columns)
    rows = [row for batch in batches for row in json_objects(batch)]
    records = [
        {
            "partition": None if hidden else row["partition"],
            "bucket": row["bucket"],
            "file": str(row["file_path"]).rsplit("/", 1)[-1],
            "format": row["file_format"],
            "level": row["level"],
            "rows": row["record_count"] if counted else None,
            "bytes": row["file_size_in_bytes"] if counted else None,
            "time": row["creation_time"],
        }
        for row in rows[:limit]
    ]
    return {"files": records, "total": len(rows)}


def _versions(table: Table) -> list[dict[str, Any]]:
    """The newest 100 schema versions and their creation times, newest first."""
    records = []
    for version in range(table.schema_id, max(-1, table.schema_id - _VERSIONS), -1):
        text = table.files.read_text(f"{table.root}/schema/schema-{version}")
        if text is not None:
            time_ms = json.loads(text).get("timeMillis")
            records.append({"version": version, "time": None if time_ms is None else iso(time_ms)})
    return records


def _of_table(table: Table, view: ServedView) -> dict[str, Any]:
    record = {
        "kind": TABLE,
        "materialized": QUERY in table.options,
        **_columns_and_keys(table, view),
    }
    latest = table.latest_snapshot_id()
    if latest is None:
        return record | {"rows": 0}
    try:
        snapshot = table.snapshot(latest)
    except DataLossError:
        return record
    rows = snapshot.total_record_count if view.filter is None else None
    if rows is not None and table.primary_key:
        counted = rows <= _COUNTED_RECORDS
        state = _KeyedState(table.location + table.branch, latest, snapshot.time_ms, table)
        try:
            rows = _row_count(state) if counted else None
        except StreamhouseError:
            rows = None  # the snapshot has expired
    return record | {"snapshot": latest, "time": iso(snapshot.time_ms), "rows": rows}


def _of_view(warehouse: Warehouse, view: ServedView) -> dict[str, Any]:
    """The columns and snapshot of a SQL view.

    The snapshot is the sum of its tables' snapshot ids, as in its change stream.
    """
    tables = WarehouseTables(warehouse)
    info = tables.stored_view(view.source)
    record: dict[str, Any] = {
        "kind": VIEW,
        "columns": _column_records(visible_columns(view, info.columns)),
        "primary_key": [],
        "partitioned_by": [],
    }
    if info.comment and view.description is None:
        record["description"] = info.comment
    try:
        pins = PinnedTables(warehouse)
        pins.pin_all(planned(ServedView(view.source, view.source), tables).scans)
    except (SqlError, TableError, DataLossError) as error:
        return record | {"error": hide_path(str(error), warehouse.path)}
    time = None if pins.time_ms is None else iso(pins.time_ms)
    return record | {"snapshot": pins.snapshot, "time": time}


def _names(view: ServedView, table: Table) -> set[str]:
    """The names of the columns that a view shows."""
    return {column.name for column in visible_columns(view, ShownTable(table).columns)}


def _column_records(columns: list[Column]) -> list[dict[str, Any]]:
    return [
        {"name": column.name, "type": column.type, "nullable": column.nullable}
        for column in columns
    ]


def _columns_and_keys(table: Table, view: ServedView) -> dict[str, Any]:
    """The shown columns, among them those of partitions, and the key if it is shown as a whole."""
    columns = visible_columns(view, ShownTable(table).columns)
    names = {column.name for column in columns}
    return {
        "columns": _column_records(columns),
        "primary_key": list(table.primary_key) if set(table.primary_key) <= names else [],
        "partitioned_by": [name for name in table.partition_keys if name in names],
    }


@dataclass(frozen=True)
class _KeyedState:
    """A snapshot of a table with a primary key, of one incarnation of the table."""

    location: str
    snapshot: int
    time_ms: int
    table: Table = field(compare=False)


@lru_cache(maxsize=1_000)
def _row_count(state: _KeyedState) -> int:
    """The number of rows, which have to be read: snapshots count each version of a row."""
    table = state.table
    batches = table.read(columns=[table.primary_key[0]], snapshot=state.snapshot)
    return sum(batch.num_rows for batch in batches)
