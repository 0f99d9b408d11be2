"""The interface of all lookup join strategies: rows of a dimension table for keys."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from streamhouse.lookup.partitions import Partition
from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.paimon.read.table import Table
from streamhouse.sql.plan import LookupJoin

CAST_OTHER = "CAST the other side to the column's type if that changes none of its values"
"""Advice for a join that compares a key as another type; a rounded value would match more."""


@dataclass(frozen=True)
class DimensionSpec:
    """A lookup and its table; picklable."""

    lookup: LookupJoin
    address: TableAddress

    @property
    def identifier(self) -> str:
        """The name of the table, `database.table`."""
        return self.address.identifier

    def open(self) -> Table:
        """The table, followed."""
        return self.address.follow()


@dataclass(frozen=True)
class ServerRows:
    """What a batch looked up on a server: the number of keys, and all rows found for them."""

    keys: int
    rows: pa.Table


def is_server(lookup: LookupJoin) -> bool:
    """Whether a lookup's table is on a server (MySQL), and not a Paimon table."""
    return lookup.table.capabilities.server


class Dimension(ABC):
    """The table of one lookup in one process; executors. Not thread-safe.

    All strategies give the same join result: a batch reads the table as of the snapshot that the
    batch recorded, whenever it runs. Only a server's table has no snapshots
    (`strategies.server_lookup`).
    """

    @property
    @abstractmethod
    def keyed(self) -> bool:
        """Whether `rows` needs the keys of each chunk."""

    @abstractmethod
    def at(self, snapshot: int | None, chosen: Sequence[Partition] | None = None) -> None:
        """Switch to a snapshot (None: before the first) and the `chosen` partitions (None: all)."""

    @abstractmethod
    def rows(self, keys: pa.Table | None) -> pa.Table:
        """At least the rows that have one of these keys, with the lookup's `columns`, each once.

        `keys` is the result of `LookupJoin.keys_sql`, or None if not `keyed`. The result may have
        other rows: the join compares again. Without `keys`, it is the same object as long as
        nothing changes.
        """

    @abstractmethod
    def close(self) -> None:
        """Free memory and files."""

    def take(self, task: int, count: int) -> None:
        """Use the buckets of one task of `count`, if the lookup is a bucket shuffle."""
        return
