"""The progress line of a statement: only on a terminal, and erased at the end."""

from __future__ import annotations

import io
import sys
import threading

import pytest
from tests.waiting import until

from streamhouse.runtime.batch import progress_line as module
from streamhouse.runtime.batch.progress_line import progress

ERASED = "\x1b[2K"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def until(self, text: str) -> None:
        until(lambda: text in self.getvalue(), lambda: repr(self.getvalue()))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    made = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    return made


def test_a_line_shows_the_part_and_its_rows_until_the_end(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Here and not in the fixture: pytest sets it anew for each phase of a test.
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(module, "SHOWN_AFTER_S", 0.0)
    with progress() as displayed:
        displayed.part("reading", 2000)
        displayed.advance(1000)
        for text in ("reading", "1,000 rows", "50%"):
            terminal.until(text)
        # Nothing advances here, and nobody knows of how many rows.
        before = len(terminal.getvalue())
        displayed.part("compacting", None)
        terminal.until("compacting")
        later = terminal.getvalue()[before:]
        assert "rows" not in later.rpartition("compacting")[2]
        assert "%" not in later.rpartition("compacting")[2]
    assert ERASED in terminal.getvalue().rpartition("left")[2]


def test_what_ends_soon_shows_nothing(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(module, "SHOWN_AFTER_S", 60.0)
    with progress() as displayed:
        displayed.part("reading", 10)
        displayed.advance(10)
    assert terminal.getvalue() == ""


def test_nothing_is_written_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHOWN_AFTER_S", 0.0)
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    before = threading.active_count()
    with progress() as displayed:
        displayed.part("reading", 10)
        displayed.advance(5)
        assert threading.active_count() <= before
    assert file.getvalue() == ""
