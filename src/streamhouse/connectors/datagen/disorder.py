"""Late rows, and rows that come twice, of generated sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from streamhouse.connectors.datagen.random_streams import (
    Numbers,
    random_bits,
    stream_seed,
    unit_interval,
)
from streamhouse.errors import OptionError
from streamhouse.options import duration_ms, integer


def share(key: str, text: str) -> float:
    """A share of rows, 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise OptionError(f"option '{key}': '{text}' is not a share from 0 to 1")
    return value


@dataclass(frozen=True)
class Disorder:
    """Which rows are late or repeated, by their numbers alone."""

    late_rate: float = 0.0
    late_ms: int = 60_000
    duplicate_rate: float = 0.0
    within: int = 1000
    seed: str = ""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Disorder:
        """Raises `OptionError`."""
        duplicates = share("duplicate-rate", options.get("duplicate-rate", "0"))
        if duplicates == 1:
            raise OptionError("option 'duplicate-rate': '1' leaves no row to repeat; write less")
        return cls(
            share("late-rate", options.get("late-rate", "0")),
            duration_ms("late-by", options.get("late-by", "1 min")),
            duplicates,
            integer("duplicate-within", options.get("duplicate-within", "1000"), 1),
            options.get("seed", ""),
        )

    def originals(self, numbers: Numbers, first: int) -> Numbers:
        """For each row the number of the row that it repeats, or its own.

        Rows before `first`, which were due by another clock, are not repeated.
        """
        if self.duplicate_rate == 0:
            return numbers
        found = numbers.copy()
        while True:
            copies = unit_interval(self._bits(found, "duplicate")) < self.duplicate_rate
            behind = 1 + (self._bits(found, "distance") % np.uint64(self.within)).astype(np.int64)
            copies &= found - behind >= first
            if not copies.any():
                return found
            found = np.where(copies, found - behind, found)

    def delays_ms(self, numbers: Numbers) -> Numbers:
        """How late each row is."""
        if self.late_rate == 0:
            return np.zeros(len(numbers), np.int64)
        late = unit_interval(self._bits(numbers, "late")) < self.late_rate
        by = (unit_interval(self._bits(numbers, "late-by")) * self.late_ms).astype(np.int64) + 1
        return np.where(late, by, 0)

    def _bits(self, numbers: Numbers, purpose: str) -> np.ndarray:
        return random_bits(numbers, stream_seed(f"{self.seed}#row", purpose))
