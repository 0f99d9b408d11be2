"""Finds the row images, and the columns in them, of many row events of one table at once.

An image has no length, and where its columns are depends on NULLs and on the lengths of texts. So
the first images of all events are found together, then the second ones, and so on.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamhouse.connectors.mysql_cdc.binlog.format.decode import Width
from streamhouse.connectors.mysql_cdc.binlog.rows.block import Block, Places

_FEW = 32
"""From this number of events down, images are found one by one, which then takes less time."""


@dataclass(frozen=True)
class Values:
    """The values of one column: where they begin, how long they are, and which are NULL.

    `at` is the place of the length, if values have one (`counted` bytes). `lengths` is None for
    values of a fixed size; `nulls` is None if there are none.
    """

    at: Places
    counted: int
    lengths: Places | None
    nulls: npt.NDArray[np.bool_] | None

    def some(self, chosen: npt.NDArray[np.int64]) -> Values:
        """The values of some images."""
        return Values(
            self.at[chosen],
            self.counted,
            None if self.lengths is None else self.lengths[chosen],
            None if self.nulls is None else self.nulls[chosen],
        )


@dataclass(frozen=True)
class Images:
    """Row images in the order of the binlog: the event of each, its number there, its columns.

    `columns`: by index, those that were asked for.
    """

    events: Places
    numbers: Places
    columns: dict[int, Values]


class ImageFinder:
    """Finds images of a table whose columns have these widths; `wanted`: the indexes of columns."""

    def __init__(self, widths: Sequence[Width], wanted: Collection[int]) -> None:
        self._widths = list(widths)
        self._wanted = sorted(wanted)
        self._bitmap = (len(widths) + 7) // 8

    def find(self, block: Block, starts: Places, ends: Places) -> Images:
        """The images between `starts` and `ends` of each event; at least one image in each.

        Raises `ValueError` if images do not fill their event exactly.
        """
        steps: list[dict[int, Values]] = []
        events: list[Places] = []
        live, at, until = np.arange(len(starts)), starts, ends
        while len(live) > _FEW or (len(live) and not steps):
            step, following = self._step(block, at)
            if (following > until).any():
                raise ValueError("a row is longer than its event")
            steps.append(step)
            events.append(live)
            more = following < until
            live, at, until = live[more], following[more], until[more]
        numbers = [np.full(len(one), number) for number, one in enumerate(events)]
        if len(live):
            self._rest(block, live, at, until, (steps, events, numbers))
        return self._ordered(steps, np.concatenate(events), np.concatenate(numbers))

    def _rest(
        self,
        block: Block,
        live: Places,
        at: Places,
        until: Places,
        found: tuple[list[dict[int, Values]], list[Places], list[Places]],
    ) -> None:
        """Find the remaining images of a few events one by one, and then all of their columns."""
        steps, events, numbers = found
        done = len(steps)
        places = [
            self._places(block.data, int(begin), int(end))
            for begin, end in zip(at, until, strict=True)
        ]
        counts = [len(one) for one in places]
        steps.append(self._step(block, np.concatenate(places))[0])
        events.append(np.repeat(live, counts))
        numbers.append(np.concatenate([np.arange(done, done + count) for count in counts]))

    def _places(self, data: bytes, at: int, end: int) -> Places:
        """Where the images of one event begin."""
        found, bitmap = [], self._bitmap
        widths = list(enumerate(self._widths))
        while at < end:
            found.append(at)
            nulls = int.from_bytes(data[at : at + bitmap], "little")
            at += bitmap
            for index, (size, counted) in widths:
                if nulls and nulls >> index & 1:
                    continue
                at += size
                if counted:
                    at += counted + int.from_bytes(data[at : at + counted], "little")
        if at != end:
            raise ValueError("a row is longer than its event")
        return np.array(found, np.int64)

    def _step(self, block: Block, at: Places) -> tuple[dict[int, Values], Places]:
        """The columns of the images at some places, and where the images end."""
        found: dict[int, Values] = {}
        bitmaps = [block.bytes_at(at + index) for index in range(self._bitmap)]
        some_null = [bool(bits.any()) for bits in bitmaps]
        at = at + self._bitmap
        wanted = set(self._wanted)
        for index, (size, counted) in enumerate(self._widths):
            nulls = None
            if some_null[index >> 3]:
                mask = (bitmaps[index >> 3] >> (index & 7) & 1).astype(np.bool_)
                nulls = mask if mask.any() else None
            lengths = block.lengths_at(at, counted) if counted else None
            if lengths is not None and nulls is not None:
                lengths[nulls] = 0
            if index in wanted:
                found[index] = Values(at, counted, lengths, nulls)
            step = size + counted if lengths is None else lengths + counted
            at = at + (step if nulls is None else np.where(nulls, 0, step))
        return found, at

    def _ordered(
        self, steps: Sequence[dict[int, Values]], events: Places, numbers: Places
    ) -> Images:
        if len(steps) == 1:
            return Images(events, numbers, steps[0])
        # By event, then by number, without sorting: each image's place is known.
        counts = np.bincount(events)
        firsts = np.cumsum(counts) - counts
        order = np.empty(len(events), np.int64)
        order[firsts[events] + numbers] = np.arange(len(events))
        columns = {index: _joined([step[index] for step in steps], order) for index in self._wanted}
        return Images(events[order], numbers[order], columns)


def _joined(parts: Sequence[Values], order: npt.NDArray[np.int64]) -> Values:
    lengths = nulls = None
    if parts[0].lengths is not None:
        lengths = np.concatenate([part.lengths for part in parts if part.lengths is not None])
    if any(part.nulls is not None for part in parts):
        nulls = np.concatenate(
            [
                np.zeros(len(part.at), np.bool_) if part.nulls is None else part.nulls
                for part in parts
            ]
        )
    at = np.concatenate([part.at for part in parts])
    return Values(at, parts[0].counted, lengths, nulls).some(order)
