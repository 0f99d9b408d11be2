"""What every strategy of the lookup join is to those who join: rows of a table for keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from streamhouse.lookup.partitions import Partition
from streamhouse.paimon.catalog.warehouse import Warehouse
from streamhouse.paimon.read.table import Table
from streamhouse.sql.plan import LookupJoin


@dataclass(frozen=True)
class DimensionSpec:
    """A lookup and its table; picklable.

    `planned` is the version of the table's schema by which the query names its columns; None: the
    newest.
    """

    lookup: LookupJoin
    warehouse: Mapping[str, str] = field(repr=False)
    identifier: str
    planned: int | None = None

    def open(self) -> Table:
        """The table as it is now."""
        return Warehouse(self.warehouse).table(self.identifier)


@dataclass(frozen=True)
class Taken:
    """What a batch found on a server: how many keys were asked for, and all rows that they have."""

    keys: int
    rows: pa.Table


def is_server(lookup: LookupJoin) -> bool:
    """Whether a lookup's table is no Paimon table, but one of a server."""
    return lookup.table.capabilities.server


class Dimension(Protocol):
    """The table of one lookup in one process; executors. Not thread-safe.

    All strategies give the same join: what a batch reads is the table as of the snapshot that the
    batch recorded, whenever it runs.
    """

    @property
    def keyed(self) -> bool:
        """Whether `rows` wants the keys of each chunk."""

    def at(self, snapshot: int | None, chosen: Sequence[Partition] | None = None) -> None:
        """From now on, rows are those of this snapshot (None: before the first).

        Only those of the `chosen` partitions, by default of all.
        """

    def rows(self, keys: pa.Table | None) -> pa.Table:
        """At least the rows that have one of these keys, with the lookup's `columns`, each once.

        `keys` is what `LookupJoin.keys_sql` gives, or None if not `keyed`. Other rows may be among
        the result: the join compares again. The same object is given as long as nothing changes.
        """

    def close(self) -> None:
        """Free memory and files."""
