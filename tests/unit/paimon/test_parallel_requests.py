"""Requests to a store that run at the same time."""

from __future__ import annotations

import threading

import pytest
from tests.waiting import DEADLINE_S

from streamhouse.paimon.storage.object_store.parallel import run_parallel, submit


def test_calls_run_at_the_same_time_and_results_keep_their_order() -> None:
    met = threading.Barrier(3, timeout=DEADLINE_S)

    def call(number: int) -> int:
        met.wait()
        return number

    assert run_parallel([lambda: call(1), lambda: call(2), lambda: call(3)]) == [1, 2, 3]


def test_the_first_error_is_raised_once_all_calls_have_ended() -> None:
    ended = threading.Event()

    def fail() -> None:
        raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        run_parallel([fail, ended.set])
    assert ended.is_set()


def test_calls_within_a_call_do_not_wait_for_free_threads() -> None:
    def nested() -> list[int]:
        return run_parallel([lambda: 1, lambda: 2])

    begun = [submit(nested) for _ in range(50)]
    assert [one.result(timeout=DEADLINE_S) for one in begun] == [[1, 2]] * 50
