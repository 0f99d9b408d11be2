"""Encodes rows as chunks of JSON text, once, and builds events from the chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from streamhouse.errors import TooLargeError
from streamhouse.serve.formats.cells import json_values
from streamhouse.serve.formats.json_rows import compact
from streamhouse.serve.formats.row_formats import slices
from streamhouse.serve.streams.event import Commit, Event
from streamhouse.serve.streams.follow_settings import FollowSettings
from streamhouse.source import ROW_KIND

_RESERVED = ("snapshot", ROW_KIND)
_TEXT_PER_ARROW = 2
"""Approximate size of JSON text relative to the Arrow data."""


@dataclass(frozen=True)
class Chunk:
    """Some rows as JSON objects, separated by commas.

    `rows` counts all of them. `changed` counts an updated row once, although it occurs as -U and
    as +U. `only_new`: all rows are +I.
    """

    text: str
    rows: int
    changed: int
    only_new: bool


class Stopped(Exception):
    """The server stopped while rows were being encoded."""


def encoded(
    batches: Iterable[pa.RecordBatch],
    settings: FollowSettings,
    subject: str,
    most: int | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> tuple[Chunk, ...]:
    """Encode batches, which have a leading `rowkind` column, as chunks.

    Raises `TooLargeError`, whose message begins with `subject` (such as `the first snapshot of
    shop.orders`), for more than `most` rows, by default `settings.max_rows`; `Stopped` once
    `stopping` returns True.
    """
    most = settings.max_rows if most is None else most
    chunks, rows = [], 0
    for batch in batches:
        rows += batch.num_rows
        if rows > most:
            raise too_large(subject, most)
        for piece in _pieces(batch, settings):
            if stopping():
                raise Stopped
            chunks.append(_chunk(piece))
    return tuple(chunks)


def too_large(subject: str, most: int) -> TooLargeError:
    """The error for more rows than a stream may send at once."""
    return TooLargeError(
        f"{subject} has more than {most:,} rows, the most that a stream sends at once; give "
        "last_id=latest to receive only new changes, and read the existing rows with GET and a "
        "filter"
    )


def events(
    kind: str, commit: Commit, chunks: Sequence[Chunk], settings: FollowSettings
) -> tuple[Event, ...]:
    """One event with these rows, split into parts if it is large.

    Only the last part has an id, that of the commit.
    """
    head = compact(commit.fields)[:-1] + ',"rows":['
    texts = list(_parts(chunks, settings)) or [""]
    result = []
    for number, text in enumerate(texts, 1):
        more = number < len(texts)
        data = f'{head}{text}],"more":{"true" if more else "false"}}}'
        name = None if more else commit.id
        result.append(Event(name, kind, commit.snapshot, commit.time_ms, data))
    return tuple(result)


def row_count(chunks: Iterable[Chunk]) -> int:
    return sum(chunk.rows for chunk in chunks)


def _pieces(batch: pa.RecordBatch, settings: FollowSettings) -> Iterator[pa.RecordBatch]:
    if not batch.num_rows:
        return
    row_bytes = max(1, _TEXT_PER_ARROW * batch.nbytes // batch.num_rows)
    yield from slices(batch, max(1, min(settings.part_rows, settings.part_bytes // row_bytes)))


def _chunk(batch: pa.RecordBatch) -> Chunk:
    kinds = batch.column(0).to_pylist()
    names = [ROW_KIND, *_json_names(batch.schema.names[1:])]
    columns = [json_values(batch.column(i)) for i in range(1, batch.num_columns)]
    rows = [dict(zip(names, row, strict=True)) for row in zip(kinds, *columns, strict=True)]
    changed = len(kinds) - kinds.count("-U")
    only_new = kinds.count("+I") == len(kinds)
    return Chunk(compact(rows)[1:-1], len(rows), changed, only_new)


def _json_names(names: Sequence[str]) -> list[str]:
    """The columns' names in JSON rows: `_` is appended to names that collide with reserved keys."""
    used = {*names, *_RESERVED}
    result = []
    for name in names:
        if name in _RESERVED:
            while name in used:
                name += "_"
            used.add(name)
        result.append(name)
    return result


def _parts(chunks: Sequence[Chunk], settings: FollowSettings) -> Iterator[str]:
    """Join small chunks into parts of at most about `part_rows` rows and `part_bytes`."""
    texts: list[str] = []
    rows = size = 0
    for chunk in chunks:
        full = rows + chunk.rows > settings.part_rows
        if texts and (full or size + len(chunk.text) > settings.part_bytes):
            yield ",".join(texts)
            texts, rows, size = [], 0, 0
        texts.append(chunk.text)
        rows, size = rows + chunk.rows, size + len(chunk.text)
    if texts:
        yield ",".join(texts)
