"""A signal stops a run between two steps; a second one ends it at once."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import duckdb
import pytest
from tests.waiting import DEADLINE_S

from streamhouse.cli.errors import SIGNALS, StopSignal

TWICE = """
import signal
from streamhouse.cli.errors import StopSignal

stop = StopSignal(at_once=lambda: print("at once", flush=True))
signal.raise_signal(signal.SIGTERM)
print(stop.requested(), flush=True)
signal.raise_signal(signal.SIGINT)
print("went on", flush=True)
"""


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """Handlers as they were before the test."""
    kept = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("number", "interrupted"), [(signal.SIGINT, True), (signal.SIGTERM, False)]
)
def test_a_signal_sets_a_flag(number: signal.Signals, interrupted: bool) -> None:
    stop = StopSignal()
    stop.check()
    assert (stop.requested(), stop.interrupted) == (False, False)
    signal.raise_signal(number)
    assert (stop.requested(), stop.interrupted) == (True, interrupted)
    with pytest.raises(KeyboardInterrupt):
        stop.check()


def test_a_signal_does_not_interrupt_a_query() -> None:
    """DuckDB makes an error of its own out of an exception that a handler raises."""
    stop = StopSignal()

    def interrupting(number: int) -> int:
        if number == 0:
            signal.raise_signal(signal.SIGINT)
        return number

    db = duckdb.connect(":memory:")
    try:
        db.create_function("interrupting", interrupting, ["BIGINT"], "BIGINT")
        found = db.sql("SELECT SUM(interrupting(i)) FROM range(1000) AS r (i)").fetchall()
    finally:
        db.close()
    assert found == [(499_500,)]
    assert stop.requested()


def test_a_second_signal_ends_at_once() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", TWICE],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (130, "")
    assert ended.stdout.splitlines() == ["True", "at once"]
