"""The cache of the tables that this process has opened, checked for changes of their schemas."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from streamhouse.paimon.read.table import Table

_CHECK_S = 2.0
"""How long a followed table is used before its schema is compared again."""


class TableKey(NamedTuple):
    """Identifies an opened table.

    `followed`: by `Warehouse.followed`, in an object store.
    """

    process: int
    catalog_options: tuple[tuple[str, str], ...]
    identifier: str
    followed: bool


@dataclass(frozen=True)
class _Opened:
    """A table, its schema's stamp, and when that was last compared (monotonic seconds)."""

    stamp: object
    table: Table
    checked_at: float


_tables: dict[TableKey, _Opened] = {}


def opened_table(key: TableKey, open_table: Callable[[], Table]) -> Table:
    """The cached table, which `open_table` opens if it is not there or its schema has changed.

    The schema of a followed table is compared every two seconds.
    """
    opened, now = _tables.get(key), time.monotonic()
    if opened is not None and key.followed and now - opened.checked_at < _CHECK_S:
        return opened.table
    if opened is None or opened.stamp is None or opened.table.schema_stamp() != opened.stamp:
        table = open_table()
        opened = _tables[key] = _Opened(table.schema_stamp(), table, now)
    elif key.followed:
        _tables[key] = replace(opened, checked_at=now)
    return opened.table


def evict(prefix: str) -> None:
    """Forget the tables whose identifiers begin with `prefix`."""
    for key in [key for key in list(_tables) if key.identifier.startswith(prefix)]:
        del _tables[key]
