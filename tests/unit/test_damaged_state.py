"""Files of kept rows of which one bit has changed are not read."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streamhouse.state.manifest import Manifest
from streamhouse.state.segment import COUNT, HASH, StateError, mapped, written

_FLIPS = 30


def _flipped(rng: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def test_a_damaged_segment_is_not_read(tmp_path: Path) -> None:
    rng, numbers = random.Random(1), np.arange(1_000)
    rows = pa.record_batch({"c0": numbers * 7, COUNT: numbers, HASH: numbers.astype(np.uint64)})
    file = written(tmp_path, rows.schema, [rows])
    path = tmp_path / file.name
    content = path.read_bytes()
    assert len(content) == file.size
    for _ in range(_FLIPS):
        path.write_bytes(_flipped(rng, content))
        with pytest.raises(StateError, match="damaged"):
            mapped(tmp_path, file)
    path.write_bytes(content)
    assert mapped(tmp_path, file).num_rows == 1_000


def test_a_damaged_manifest_is_not_read() -> None:
    rng = random.Random(1)
    manifest = Manifest(3, {"batch": 3}, {"snapshot": 7, "time": 1, "wrote": 1}, {})
    text = manifest.to_json()
    assert Manifest.from_json(text) == manifest
    for _ in range(_FLIPS):
        with pytest.raises((StateError, UnicodeDecodeError)):
            Manifest.from_json(_flipped(rng, text.encode()).decode())
