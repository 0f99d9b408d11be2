"""Merges beside the batches: later batches use their segments, and files that are done with go."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streamhouse.state import segment
from streamhouse.state.manifest import Manifest, Merge, Segments
from streamhouse.state.segment import COUNT, HASH, Segment, parts, written
from streamhouse.state.store import StateStore


def _segments(store: StateStore, count: int) -> Segments:
    def batch(number: int) -> pa.RecordBatch:
        hashes = np.arange(number, 1_000, 7).astype(np.uint64) << np.uint64(50)
        ones = np.ones(len(hashes), np.int64)
        return pa.record_batch({"c0": ones * number, COUNT: ones, HASH: np.sort(hashes)})

    batches = [batch(number) for number in range(count)]
    return tuple(written(store.folder, each.schema, [each]) for each in batches)


def _files(store: StateStore) -> set[str]:
    return {path.name for path in store.folder.iterdir()}


def test_a_merge_replaces_its_inputs_in_the_next_batch(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    table = {"snapshot": 0, "time": 0, "wrote": 0}
    *kept, output = _segments(store, 6)

    def save(batch: int, segments: Segments) -> None:
        store.save(Manifest(batch, {"batch": batch}, table, {"a": segments}))

    before = tuple(kept)
    save(1, before)
    for file in (*kept, output):
        store.segment(file)
    merge = Merge(tuple(file.name for file in kept[1:4]), output)
    store.record(merge)
    assert store.merges() == [merge]
    save(2, before)
    assert output.name in _files(store), "no manifest has it yet"
    after = store.merged({"a": before})["a"]
    assert after == (kept[0], output, kept[4])
    assert store.merged({"a": before[:3], "b": after}) == {"a": before[:3], "b": after}
    save(3, after)
    assert not store.merges()
    save(4, after)
    save(5, after)
    assert {name for name in _files(store) if name.endswith(".arrow")} == {f.name for f in after}


def test_a_damaged_record_of_a_merge_is_left_out(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    *kept, output = _segments(store, 3)
    store.record(Merge(tuple(file.name for file in kept), output))
    (path,) = tmp_path.glob("merge-*")
    for text in ("", "[]", "{}", path.read_text()[:-9]):
        path.write_text(text)
        assert store.merged({"a": tuple(kept)}) == {"a": tuple(kept)}


def test_one_process_merges_at_a_time(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    with store.merging() as first, store.merging() as second:
        assert (first, second) == (True, False)
    with store.merging() as again:
        assert again


@pytest.mark.parametrize("seed", range(5))
def test_parts_have_all_rows_and_share_no_hash(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(segment, "PART_ROWS", rng.choice((1, 7, 50, 1_000)))
    highest = rng.choice((1, 30, 1 << 63, (1 << 64) - 1))
    drawn = [[rng.randint(0, highest) for _ in range(rng.choice((0, 1, 90)))] for _ in range(4)]
    segments = [
        Segment.of(pa.table({"c0": pa.array(each, pa.uint64())}), np.array(each, np.uint64))
        for each in drawn
    ]
    found = [part.column(HASH).to_pylist() for part in parts(segments)]
    assert sorted(itertools.chain(*found)) == sorted(itertools.chain(*drawn))
    filled = [part for part in found if part]
    assert all(max(a) < min(b) for a, b in itertools.pairwise(filled))
