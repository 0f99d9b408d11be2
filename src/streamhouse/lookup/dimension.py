"""A lookup and its dimension table, and what a lookup finds on a server."""

from dataclasses import dataclass

import pyarrow as pa

from streamhouse.paimon.catalog.table_address import TableAddress
from streamhouse.sql.plan import LookupJoin

CAST_OTHER = "CAST the other side to the column's type if that changes none of its values"
"""Advice for a join that compares a key as another type; a rounded value would match more."""


@dataclass(frozen=True)
class DimensionSpec:
    """A lookup and its table; picklable."""

    lookup: LookupJoin
    address: TableAddress


@dataclass(frozen=True)
class ServerRows:
    """What a batch looked up on a server: the number of keys, and all rows found for them."""

    keys: int
    rows: pa.Table
