"""The cache of single keys: which it knows, and which it forgets."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pyarrow as pa
import pytest

from streamhouse.lookup.storage.overlay import KeyCache

SCHEMA = pa.schema([("k", pa.int32()), ("v", pa.string())])


def keys(*values: int) -> pa.Table:
    return pa.table({"k": pa.array(values, pa.int32())})


def rows(*values: int) -> pa.Table:
    return pa.table({"k": pa.array(values, pa.int32()), "v": [f"v{n}" for n in values]})


def known(cache: KeyCache, *values: int) -> list[bool]:
    return list(cache.find(keys(*values))[0])


def found(cache: KeyCache, *values: int) -> Sequence[int]:
    mask, held = cache.find(keys(*values))
    asked = {value for value, is_known in zip(values, mask, strict=True) if is_known}
    return sorted(asked & set(held.column("k").to_pylist()))


def test_a_key_without_a_row_is_known() -> None:
    cache = KeyCache(SCHEMA, ["k"], 100, 1 << 20, 60)
    assert known(cache, 1, 2) == [False, False]
    cache.add(keys(1, 2, 3), rows(1, 3))
    assert known(cache, 3, 4, 2) == [True, False, True]
    assert found(cache, 1, 2, 3, 4) == [1, 3]
    cache.drop(keys(3, 5))
    assert known(cache, 1, 2, 3) == [True, True, False]
    cache.clear()
    assert len(cache) == 0 and known(cache, 1) == [False]


@pytest.mark.parametrize("old", [False, True])
def test_dropped_keys_are_gone_from_both_halves(old: bool) -> None:
    cache = KeyCache(SCHEMA, ["k"], 4, 1 << 20, 60)
    cache.add(keys(1, 2), rows(1, 2))
    if old:
        cache.add(keys(3), rows(3))
    cache.drop(keys(1))
    assert (known(cache, 1), known(cache, 2)) == ([False], [True])


@pytest.mark.parametrize(("most", "size"), [(20, 1 << 20), (1_000, 400)])
def test_keys_that_are_used_stay(most: int, size: int) -> None:
    cache = KeyCache(SCHEMA, ["k"], most, size, 60)
    for number in range(1, 200):
        cache.add(keys(number), rows(number))
        if number > 1:
            assert found(cache, 1, number) == [1, number]
    assert len(cache) < 60 and known(cache, 2) == [False]


def test_keys_that_are_not_used_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    cache = KeyCache(SCHEMA, ["k"], 100, 1 << 20, 10)
    cache.add(keys(1, 2), rows(1, 2))
    for clock[0] in (9.0, 18.0, 27.0, 36.0):
        assert found(cache, 1) == [1]
    assert known(cache, 1, 2) == [True, False]
