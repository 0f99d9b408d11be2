"""Rows to generate, and random numbers that follow from a row's number alone, for replays."""

import hashlib
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Self

import numpy as np
import numpy.typing as npt

from streamhouse.errors import OptionError
from streamhouse.options import of_option

Numbers = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint64]


def stream_seed(name: str, purpose: str) -> int:
    """The seed of one stream of random numbers; those of different streams are independent."""
    digest = hashlib.blake2b(f"{purpose}/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def random_bits(numbers: Numbers, seed: int) -> Bits:
    """64 random bits for each row number: SplitMix64 (Steele, Lea, Flood 2014) as a counter."""
    with np.errstate(over="ignore"):
        z = numbers.astype(np.uint64) + np.uint64(seed)
        z = (z + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def unit_interval(bits: Bits) -> npt.NDArray[np.float64]:
    """Uniform values in [0, 1) of 53 random bits each."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


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

    def elements(self, length: int) -> Self:
        """`length` elements of each row, as rows."""
        places = np.tile(np.arange(length, dtype=np.int64), len(self))
        numbers = np.repeat(self.numbers * length, length) + places
        return replace(self, numbers=numbers, due_ms=np.repeat(self.due_ms, length))


MOST_KEYS = 1_000_000
"""The most different numbers: each process holds a table of 8 bytes for each."""


def zipf_ranks(bits: Bits, keys: int, exponent: float) -> Numbers:
    """Ranks from 0 to `keys` - 1, of which 0 is the most frequent."""
    shares = _cumulative(keys, exponent)
    ranks = np.searchsorted(shares, unit_interval(bits), side="right")
    return np.minimum(ranks, keys - 1).astype(np.int64)


@lru_cache(maxsize=16)
def _cumulative(keys: int, exponent: float) -> npt.NDArray[np.float64]:
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -exponent
    shares: npt.NDArray[np.float64] = np.cumsum(weights) / weights.sum()
    return shares


@dataclass(frozen=True)
class Disorder:
    """Which rows are late or repeated, by their numbers alone."""

    late_rate: float = of_option("late-rate", 0.0)
    late_ms: int = of_option("late-by", 60_000)
    duplicate_rate: float = of_option("duplicate-rate", 0.0)
    within: int = of_option("duplicate-within", 1000)
    seed: str = of_option("seed", "")

    def __post_init__(self) -> None:
        if self.duplicate_rate == 1:
            raise OptionError("option 'duplicate-rate': '1' leaves no row to repeat; write less")

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
