"""Reports what a differential test ran, refused and found, by each dimension's values."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from tests.integration.differential.play import Play, Problem

RERUN = "STREAMHOUSE_DIFFERENTIAL_SEEDS={} pytest -m soak tests/integration/differential"


class Report:
    """Counts plays; a case counts as played once its readers were compared with the model."""

    def __init__(self) -> None:
        self.played: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.cases = 0
        self.refused: Counter[str] = Counter()
        self.problems: dict[int, list[Problem]] = {}

    def add(self, plays: Iterable[Play]) -> None:
        """Count cases that have been played."""
        for play in plays:
            self.cases += 1
            for refusal in play.refusals:
                self.refused[f"{refusal.what}: {refusal.text.splitlines()[0]}"] += 1
            if play.problems:
                self.problems[play.case.seed] = play.problems
            for name, value in play.compared():
                self.played[name][value] += 1

    def missing(self, wanted: Iterable[tuple[str, str]], least: int) -> list[str]:
        """Values of dimensions that were compared less often than wanted."""
        return [
            f"{name}={value}: {self.played[name][value]} of {least}"
            for name, value in wanted
            if self.played[name][value] < least
        ]

    def lines(self) -> list[str]:
        """The counts, the refusals, and the first problems of each case."""
        wrong = f"{len(self.problems)} with problems" if self.problems else "none with problems"
        found = [f"{self.cases} cases, {wrong}"]
        for name, counts in self.played.items():
            found.append(f"  {name}: " + ", ".join(f"{v} {n}" for v, n in sorted(counts.items())))
        found += [f"  refused {count} x {text[:200]}" for text, count in self.refused.most_common()]
        return found + self.found(self.problems)

    def found(self, seeds: Collection[int]) -> list[str]:
        """The first problems of each of these cases that has some."""
        found = list[str]()
        for seed in sorted(self.problems.keys() & set(seeds)):
            problems = self.problems[seed]
            found.append(f"{problems[0]}")
            found += [f"  {problem.what}: {problem.text}" for problem in problems[1:6]]
            found.append(f"  again: {RERUN.format(seed)}")
        return found


def verdicts(plays: Sequence[Play], seconds: Mapping[str, float]) -> Iterator[str]:
    """Each case of a pack as a line of JSON, and how long the parts of the pack have taken."""
    for play in plays:
        seen = "right" if any(True for _ in play.compared()) else "refused"
        problems = [
            f"round {problem.round}, {problem.what}: {problem.text}" for problem in play.problems
        ]
        line = {"seed": play.case.seed, "mode": play.case.mode}
        yield json.dumps({**line, "verdict": "wrong" if problems else seen, "problems": problems})
    parts = {what: round(took, 1) for what, took in seconds.items()}
    yield json.dumps({"pack": [play.case.seed for play in plays], "seconds": parts})
