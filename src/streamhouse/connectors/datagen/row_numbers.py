"""The rows to generate: their numbers and times, from which all random numbers follow."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from streamhouse.connectors.datagen.random_streams import (
    Bits,
    Numbers,
    random_bits,
    stream_seed,
)


@dataclass(frozen=True)
class RowNumbers:
    """Rows by number, and when they are due (epoch milliseconds); `seed` is the table's.

    `sample`: they only serve to check a declaration.
    """

    numbers: Numbers
    due_ms: Numbers
    seed: str = ""
    sample: bool = False

    def __len__(self) -> int:
        return len(self.numbers)

    def bits(self, stream: str, purpose: str = "value") -> Bits:
        """Random bits for each row; independent of those of other streams and purposes."""
        return random_bits(self.numbers, stream_seed(f"{self.seed}#{stream}", purpose))

    def elements(self, length: int) -> RowNumbers:
        """`length` elements of each row, as rows."""
        places = np.tile(np.arange(length, dtype=np.int64), len(self))
        numbers = np.repeat(self.numbers * length, length) + places
        return replace(self, numbers=numbers, due_ms=np.repeat(self.due_ms, length))
