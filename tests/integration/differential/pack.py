"""Runs many cases at once: each in its own database, all queries in one script and one Spark."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

from tests.failpoints import STEPS
from tests.integration.differential.case import Case
from tests.integration.differential.core import JavaCore
from tests.integration.differential.history import Round
from tests.integration.differential.play import FILLING, SCRIPT, Play
from tests.integration.runtime.conftest import CollectedOutput, Shop
from tests.waiting import DEADLINE_S, NotSeenError, looks

from streamhouse.cli.errors import explain
from streamhouse.procedures.context import Context
from streamhouse.runtime.script import ScriptOptions, ScriptRunner
from streamhouse.sql.statements.script import parse_script

A_QUERY_S = 4.0
_STEPS = (STEPS[0], STEPS[1], STEPS[-1])
Queries = Sequence[tuple[Play, list[str]]]


class Pack:
    """Cases of one mode in one warehouse; `history` stands for the ones that they draw."""

    def __init__(
        self,
        folder: Path,
        context: Context,
        cases: Sequence[Case],
        history: tuple[Round, ...] | None = None,
    ) -> None:
        self.context = context
        self._shop = Shop(folder, place=Path(context.warehouse.path))
        core = JavaCore(context.warehouse, context.sidecar)
        self.plays = [Play(case, core, history) for case in cases]
        self.mode = cases[0].mode
        self._random = Random(f"pack {cases[0].seed}")
        self._running: list[Play] = []
        self.seconds: defaultdict[str, float] = defaultdict(float)
        """How long each part of the work has taken."""

    def run(self) -> None:
        """Play all rounds of all cases; what was found is in `plays`."""
        with self._timed("all"):
            with self._timed("making"):
                self._running = [play for play in self.plays if play.make()]
            number = 0
            while self._running:
                self._round(number)
                self._each("between rounds", lambda play: play.between(self.context))
                number += 1

    def _round(self, number: int) -> None:
        for play in self._running:
            play.round = number
        if number and self.mode == "live":
            with self._timed("live"):
                notices = self._live()
        else:
            self._each("filling", lambda play: play.fill())
            self._running = [play for play in self._running if not play.refused]
            notices = self._read(number)
        self._each("checking", lambda play: play.check(notices))
        self._running = [play for play in self._running if number < len(play.case.betweens)]

    def _read(self, number: int) -> list[str]:
        """Run the readers after the sources were filled, and what fills them from elsewhere."""
        ended = [(play, play.filling()) for play in self._running if play.case.feed == "stopped"]
        self._settle(FILLING, ended)
        self._each("following", lambda play: play.follow())
        living = [(play, play.filling()) for play in self._running if play.case.feed == "lives"]
        try:
            with self._concurrently(FILLING, living):
                readers = [(play, play.queries()) for play in self._running]
                if self.mode == "killed":
                    with self._timed("killed"):
                        self._kill(number, readers)
                return self._settle(SCRIPT, readers)
        except Exception as error:  # noqa: BLE001  # a finding; the other cases go on
            self._lost(FILLING, error)
            return self._settle(SCRIPT, [(play, play.queries()) for play in self._running])

    def _live(self) -> list[str]:
        """Run everything while the sources are filled, until the targets are as they must be.

        Returns what the readers' script told.
        """
        outside = [(play, play.filling()) for play in self._running]
        readers = [(play, play.queries()) for play in self._running]
        deadline = DEADLINE_S + A_QUERY_S * sum(len(queries) for _, queries in readers)
        output = CollectedOutput()
        try:
            with (
                self._concurrently(FILLING, outside),
                self._concurrently(SCRIPT, readers) as output,
            ):
                self._each("filling", lambda play: play.fill())
                self._wait(self._running, lambda play: play.reached(), deadline)
        except Exception as error:  # noqa: BLE001  # a finding; the other cases go on
            self._lost(SCRIPT, error)
            running = set(self._running)
            self._settle(FILLING, [one for one in outside if one[0] in running])
            return self._settle(SCRIPT, [reader for reader in readers if reader[0] in running])
        return output.lines

    def _wait(self, plays: Sequence[Play], done: Callable[[Play], bool], seconds: float) -> None:
        """Wait until it is so for all these cases; `check` says what is not."""
        waiting = list(plays)
        with suppress(NotSeenError):
            for _ in looks(seconds=seconds):
                waiting = [play for play in waiting if not done(play)]
                if not waiting:
                    break

    @contextmanager
    def _concurrently(self, name: str, scripts: Queries) -> Iterator[CollectedOutput]:
        """Run scripts in a thread while the `with` lasts; gives what they tell until its end."""
        queries, output = [query for _, each in scripts for query in each], CollectedOutput()
        if not queries:
            yield output
            return
        with self._shop.running_here(_text(queries), name, output):
            if name == FILLING:
                with self._timed("filled"):
                    self._wait([play for play, _ in scripts], lambda play: play.filled(), 20.0)
            yield output

    def _settle(self, name: str, scripts: Queries) -> list[str]:
        """Run the scripts together until they have caught up; one by one if that fails."""
        scripts = [script for script in scripts if script[1]]
        if not scripts:
            return []
        try:
            return self._run(name, [query for _, queries in scripts for query in queries])
        except Exception as error:  # noqa: BLE001  # whatever it is, it is a finding
            lost = [script for script in scripts if _is_of(error, script[0])]
            if len(scripts) == 1 or len(lost) == 1:
                (one,) = lost or scripts
                self._failed(one[0], name, error)
                return self._settle(name, [other for other in scripts if other is not one])
        return [line for script in scripts for line in self._settle(name, [script])]

    def _run(self, name: str, queries: Sequence[str]) -> list[str]:
        output, seconds = CollectedOutput(), DEADLINE_S + A_QUERY_S * len(queries)
        deadline = time.monotonic() + seconds
        options = ScriptOptions(
            name,
            self.context.warehouse.options,
            until_caught_up=True,
            stopped=lambda: time.monotonic() > deadline,
        )
        with self._timed(name):
            ScriptRunner(options, output).run(parse_script(_text(queries)))
        if time.monotonic() > deadline:
            raise TimeoutError(f"not caught up after {seconds:.0f} s; it said: {output.lines[-8:]}")
        return output.lines

    def _kill(self, number: int, scripts: Queries) -> None:
        """Run the readers as a process that a SIGKILL ends, at a step of a batch or anywhere."""
        text = _text([query for _, queries in scripts for query in queries])
        if not text:
            return
        if number % 2:
            for last in (False, False, True):
                run = self._shop.start(text, "--until-caught-up", name=SCRIPT)
                time.sleep(self._random.uniform(4.0, 12.0))
                run.kill() if last else run.kill_driver()
            return
        step = self._random.choice(_STEPS)
        point = f"{step}:{self._random.randrange(2)}"
        self._shop.run(text, "--until-caught-up", name=SCRIPT, STREAMHOUSE_FAILPOINT=point)

    def _each(self, what: str, work: Callable[[Play], None]) -> None:
        with self._timed(what):
            for play in list(self._running):
                try:
                    work(play)
                except Exception as error:  # noqa: BLE001  # a finding of this case only
                    self._failed(play, what, error)

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[what] += time.monotonic() - began

    def _lost(self, what: str, error: Exception) -> None:
        """A script that ran beside has failed: its case leaves, or all if none is named."""
        lost = [play for play in self._running if _is_of(error, play)] or list(self._running)
        for play in lost:
            self._failed(play, what, error)

    def _failed(self, play: Play, what: str, error: Exception) -> None:
        play.problem(what, f"{type(error).__name__}: {explain(error)[0][:2000]}")
        self._running = [one for one in self._running if one is not play]


def _is_of(error: Exception, play: Play) -> bool:
    """Whether the query that failed is one of a case."""
    return str(getattr(error, "query", "")).startswith(f"{play.case.database}.")


def _text(queries: Sequence[str]) -> str:
    return ";\n".join(queries)
