"""Recomputes which rows of a changelog wait for a lookup after a batch, for audits.

Independent of `runtime.streaming.tasks.waiting`, which the stream uses.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from streamhouse.sql.plan import LookupRetry

RetryState: TypeAlias = tuple[int, int]
"""When a row is retried (epoch ms), and how often it was; -1: it waits behind another one."""


@dataclass(frozen=True)
class KeyedRows:
    """Rows: their keys, their kinds, and the numbers of those that miss a lookup."""

    keys: Sequence[Hashable]
    kinds: Sequence[str]
    missed: set[int]


@dataclass
class Result:
    """What became of the rows, by their numbers.

    `retried`: the waiting rows that were joined, of which `lost` had no match and no attempts left.
    `passed`: the new rows that were joined.
    `waiting`: the rows that wait now, numbered through both, with their retry states.
    """

    retried: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    passed: list[int] = field(default_factory=list)
    waiting: list[tuple[int, RetryState]] = field(default_factory=list)


def in_order(
    stored: KeyedRows,
    retries: Sequence[RetryState],
    new: KeyedRows,
    now_ms: int,
    retry: LookupRetry,
) -> Result:
    """Retry the waiting rows that are due, the oldest of each key first, then take the new rows."""
    result, later = Result(), now_ms + retry.delay_ms
    waiting: dict[Hashable, list[tuple[int, RetryState]]] = {}
    started: set[Hashable] = set()
    for number, (key, state) in enumerate(zip(stored.keys, retries, strict=True)):
        if key in waiting or (key not in started and state[0] > now_ms):
            waiting.setdefault(key, []).append((number, state))
            continue
        started.add(key)
        attempts = state[1] + 1
        if number in stored.missed and (attempts == 0 or attempts < retry.max_attempts):
            waiting[key] = [(number, (later, attempts))]
        else:
            result.retried.append(number)
            result.lost += [number] if number in stored.missed else []
    kinds = [*stored.kinds, *new.kinds]
    for index, key in enumerate(new.keys):
        number, queue = index + len(stored.keys), waiting.get(key)
        retracted = kinds[number] in ("-U", "-D")
        if not queue and index not in new.missed:
            result.passed.append(index)
        elif not queue:
            waiting[key] = [(number, (later, 0))]
        elif retracted and kinds[queue[-1][0]] not in ("-U", "-D"):
            queue.pop()
        else:
            queue.append((number, (later, -1)))
    result.waiting = sorted(entry for queue in waiting.values() for entry in queue)
    return result
