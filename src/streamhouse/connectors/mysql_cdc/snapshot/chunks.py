"""Chunks of a snapshot: ranges of a table's key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from streamhouse.connectors.mysql_cdc.binlog.captured_table import CapturedTable
from streamhouse.mysql.connection import Session
from streamhouse.mysql.keys import KeySpace, escaped
from streamhouse.mysql.position import KeyJson
from streamhouse.mysql.values.types import quote

_TRANSACTION_ROWS = 65_536
"""About how many rows to read in one transaction, if chunks are smaller."""
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Chunk:
    """The rows with a key greater than `low` and up to `high`; None: no bound."""

    low: KeyJson | None
    high: KeyJson | None


def split(
    session: Session, captured: CapturedTable, keys: Chunk, size: int, most: int | None = None
) -> list[Chunk]:
    """Split a range of keys into chunks of about `size` rows, in order; up to `most` of them.

    The last one of the range may have fewer rows, perhaps none. A table without a key is one chunk.
    """
    if not captured.table.key:
        return [keys]
    chunks: list[Chunk] = []
    low = keys.low
    while most is None or len(chunks) < most:
        end = _last_key(session, captured, Chunk(low, keys.high), size) or keys.high
        chunks.append(Chunk(low, end))
        if end == keys.high:
            break
        low = end
    return chunks


def _last_key(session: Session, captured: CapturedTable, keys: Chunk, size: int) -> KeyJson | None:
    """The key of the row number `size` in a range of keys; None if the range has fewer rows."""
    space = KeySpace(captured.table)
    limit = f"LIMIT 1 OFFSET {size - 1}"
    rows = session.rows(*chunk_select(captured, space.selects, keys, limit), raw=True)
    return space.key(rows[0]) if rows else None


def grouped(items: Sequence[_Item], most: int) -> list[Sequence[_Item]]:
    """The items in up to `most` groups of about the same size, in order."""
    count = max(1, min(most, len(items)))
    bounds = [len(items) * i // count for i in range(count + 1)]
    return [items[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]


def joined(chunks: Sequence[Chunk], size: int) -> list[Chunk]:
    """The same range of keys in fewer chunks, for fewer transactions; `size`: rows per chunk."""
    step = max(1, _TRANSACTION_ROWS // size)
    groups = [chunks[first : first + step] for first in range(0, len(chunks), step)]
    return [Chunk(group[0].low, group[-1].high) for group in groups]


def chunk_select(
    captured: CapturedTable, columns: str, chunk: Chunk, limit: str = ""
) -> tuple[str, list[Any]]:
    """The SELECT of a chunk's rows in the order of the key, with its arguments.

    `columns`: SQL with doubled percent signs.
    """
    table, keys = captured.table, KeySpace(captured.table)
    name = escaped(f"{quote(table.database)}.{quote(table.name)}")
    condition, arguments = keys.condition(chunk.low, chunk.high)
    sql = (
        f"SELECT {columns} FROM {name} FORCE INDEX ({escaped(quote(table.index))}) "
        f"WHERE {condition} ORDER BY {keys.names} {limit}"
    )
    return (sql if arguments else sql % ()), arguments
