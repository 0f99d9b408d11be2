"""Passes encoded rows to a producer with one call per record, most of the time of a sink."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat
from operator import length_hint
from typing import Any

import pyarrow as pa

from streamhouse.connectors.kafka.encoding import HEADERS, KEY, TIMESTAMP, VALUE
from streamhouse.formats.arrow_bytes import values_of


def produce_rows(
    produce: Callable[..., None],
    topic: str,
    rows: pa.RecordBatch,
    partitions: Sequence[int],
    delivered: Callable[..., None],
    make_room: Callable[[], None],
) -> None:
    """Produce each row once, in their order, each to its partition.

    `rows` has the columns of `Encoding.records`. `make_room` is called while the queue of the
    producer is full.
    """
    values, keys, extras = _column(VALUE, rows), _column(KEY, rows), _extras(rows)
    done = 0
    while done < rows.num_rows:
        left = iter(values[done:])
        arguments = [repeat(topic), left, keys[done:], partitions[done:], repeat(delivered)]
        try:
            if extras is None:
                # `map` runs no bytecode between two records.
                deque(map(produce, *arguments), maxlen=0)
            else:
                for *positional, extra in zip(*arguments, extras[done:], strict=False):
                    produce(*positional, **extra)
            return
        except BufferError:
            # The record that was refused is not among those left.
            done = rows.num_rows - length_hint(left) - 1
            make_room()


def _column(name: str, rows: pa.RecordBatch) -> Sequence[bytes | None]:
    """The values of a column; None for each row if the records have no such part."""
    if name not in rows.schema.names:
        return [None] * rows.num_rows
    return values_of(rows.column(name))


def _extras(rows: pa.RecordBatch) -> list[dict[str, Any]] | None:
    """The timestamp and the headers of each record, where set; None without columns for them."""
    names = [name for name in (TIMESTAMP, HEADERS) if name in rows.schema.names]
    if not names:
        return None
    columns = zip(*(rows.column(name).to_pylist() for name in names), strict=True)
    return [
        {name: value for name, value in zip(names, row, strict=True) if value is not None}
        for row in columns
    ]
