"""Numbers whose frequencies follow Zipf's law: the k-th number is k ** exponent times rarer."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from streamhouse.connectors.datagen.random_streams import Bits, Numbers, unit_interval

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
