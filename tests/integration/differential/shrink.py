"""Makes the history of a failing case smaller while the case still fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.integration.differential.case import Case
from tests.integration.differential.history import Change, Round

History = tuple[Round, ...]
Fails = Callable[[Case, History], bool]


def shrunk(case: Case, history: History, fails: Fails, seconds: float) -> tuple[Case, History]:
    """The smallest case and history found within the time that still fail."""
    deadline = time.monotonic() + seconds
    smaller = True
    while smaller:
        smaller = False
        for fewer, shorter in _candidates(case, history):
            if time.monotonic() > deadline:
                return case, history
            if fails(fewer, shorter):
                case, history, smaller = fewer, shorter, True
                break
    return case, history


def _candidates(case: Case, history: History) -> Iterator[tuple[Case, History]]:
    """Cases with one reader, one round, one change or one row less; the largest cuts first."""
    if len(case.readers) > 1:
        for reader in case.readers:
            yield replace(case, readers=(reader,)), history
    if len(history) > 1:
        yield replace(case, betweens=case.betweens[:-1]), history[:-1]
    for number, between in enumerate(case.betweens):
        if between != "nothing":
            changed = list(case.betweens)
            changed[number] = "nothing"
            yield replace(case, betweens=tuple(changed)), history
    for number, one in enumerate(history):
        for source in _shorter(one.source):
            yield case, _with(history, number, replace(one, source=source))
        for other in _shorter(one.other):
            yield case, _with(history, number, replace(one, other=other))


def _with(history: History, number: int, one: Round) -> History:
    return (*history[:number], one, *history[number + 1 :])


def _shorter(changes: tuple[Change, ...]) -> Iterator[tuple[Change, ...]]:
    for place in range(len(changes)):
        yield (*changes[:place], *changes[place + 1 :])
    for place, change in enumerate(changes):
        if change.action == "insert" and len(change.events) > 1:
            half = len(change.events) // 2
            for events in (change.events[:half], change.events[half:]):
                yield (*changes[:place], replace(change, events=events), *changes[place + 1 :])
