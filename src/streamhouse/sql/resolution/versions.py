"""Tables of all versions of the rows of another table, which has a primary key and a watermark.

A table with a primary key has its newest rows only. So a stream of its changes keeps each version
under the key and its time, and notes at which time a row was deleted (decision 267). Joins as of a
stored time read the versions as they read a view of the newest row of each key.
"""

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from streamhouse.errors import StreamhouseError
from streamhouse.sql.expressions.binder import quote
from streamhouse.sql.plan import Column, Name, Resolver, TableInfo, ViewInfo
from streamhouse.sql.resolution import columns as names
from streamhouse.sql.text import ticked

REMOVED = "_removed"
"""The column that is true for a version without a row, from the time of the deleted row on."""
_NUMBER = "_number"


def keeping(name: Name, table: TableInfo, columns: tuple[Column, ...]) -> TableInfo:
    """The table that keeps the versions of a table with a primary key and a watermark."""
    assert table.watermark is not None
    key = (*table.primary_key, table.watermark.column)
    stored = (replace(column, nullable=column.name not in key) for column in columns)
    flag = Column(REMOVED, "BOOLEAN", False)
    watermark = replace(table.watermark, idle_timeout="")
    return TableInfo(name, (*stored, flag), (), key, (), {"bucket": "1"}, watermark=watermark)


def keeps_versions(table: TableInfo | None) -> bool:
    """Whether a table keeps the versions of another one."""
    if table is None or table.watermark is None:
        return False
    in_key = table.primary_key[-1:] == (table.watermark.column,)
    return in_key and any(column.name == REMOVED for column in table.columns)


def knows_deletes(table: TableInfo) -> bool:
    """Whether deletes of a table have its time: of upserts they have a key and metadata alone."""
    if not table.capabilities.upserts:
        return True
    times = (c for c in table.columns if table.watermark and c.name == table.watermark.column)
    return any(column.metadata is not None for column in times)


def view_of(resolver: Resolver, table: exp.Table) -> ViewInfo | None:
    """The view that a query names; also that of the newest versions, as of a stored time."""
    name, version = names.table_name(table), table.args.get("version")
    found = resolver.view(name)
    if found is not None or version is None or not isinstance(version.expression, exp.Column):
        return found
    try:
        kept = resolver.table(name)
    except StreamhouseError:
        # What reads the table says more.
        return None
    return _newest(kept) if keeps_versions(kept) else None


def _newest(table: TableInfo) -> ViewInfo:
    *key, time = map(ticked, table.primary_key)
    shown = tuple(column for column in table.columns if column.name != REMOVED)
    listed = ", ".join(ticked(column.name) for column in shown)
    query = (
        f"SELECT {listed} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {', '.join(key)} ORDER "
        f"BY {time} DESC) AS {ticked(_NUMBER)} FROM {'.'.join(map(ticked, table.name))}) WHERE "
        f"{ticked(_NUMBER)} = 1 AND NOT {ticked(REMOVED)}"
    )
    # It does not read itself, but the table of its name.
    return ViewInfo((*table.name[:-1], f"{table.name[-1]}$newest"), shown, query)


def kept(changes: str, columns: Sequence[Column]) -> str:
    """SQL for the rows of a table of versions, from that for the changes of a table.

    The old half of an update ends no version: the new half does, by its own time.
    """
    items = [
        f"rowkind = '-D' AS {quote(REMOVED)}" if column.name == REMOVED else quote(column.name)
        for column in columns
    ]
    return f"SELECT {', '.join(items)}, '+U' AS rowkind FROM ({changes}) WHERE rowkind <> '-U'"
