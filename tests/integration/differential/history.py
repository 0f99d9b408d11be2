"""The changes of a case's tables, round by round: plain data, generated from its seed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.integration.differential.case import Case
from tests.integration.differential.layout import IGNORING, Layout
from tests.integration.differential.model import Event, Key, Row

KEYS = 8
GROUPS = ("red", "blue", "green")
PARTITIONS = ("a", "b")
_JAVA_DELETES = ("deduplicate", "sequenced", "aggregation", "groups")
_RETRACTED = ("sum", "last_value", "last_non_null_value")


@dataclass(frozen=True)
class Change:
    """One commit: rows with their kinds (`insert`), rows of a MERGE, or the keys of a DELETE.

    An `update` sets `v` and `s` of the rows with these keys to those of its first row.
    """

    action: str
    events: tuple[Event, ...] = ()
    keys: tuple[Key, ...] = ()


@dataclass(frozen=True)
class Round:
    """All changes of a round: those of the source, of the other table of a UNION ALL, the
    dimension's new rows (group: name) and the keys that probes of the source ask for."""

    source: tuple[Change, ...]
    other: tuple[Change, ...]
    dimension: tuple[tuple[str, str], ...]
    probes: tuple[Key, ...]


def history_of(case: Case) -> tuple[Round, ...]:
    """The rounds of a case."""
    random = Random(f"history {case.seed}")
    source, other = Writer(random, case, case.source), Writer(random, case, case.other)
    rounds = []
    for number in range(case.rounds):
        known = GROUPS[: 2 + number]
        rounds.append(
            Round(
                source.round(),
                other.round() if any(reader.startswith("union") for reader in case.readers) else (),
                tuple((group, f"{group} {random.randrange(3)}") for group in known),
                tuple(source.random_key() for _ in range(5)),
            )
        )
    return tuple(rounds)


def updates(layout: Layout) -> bool:
    """Whether UPDATE (of `v` and `s`) has a meaning for the table."""
    if layout.partition == "across" and "sum" in layout.merged.values():
        return False
    if layout.engine in ("deduplicate", "sequenced"):
        return True
    if layout.engine == "partial-update":
        return True
    functions = layout.merged
    if layout.engine != "aggregation" or not {functions["v"], functions["s"]} <= set(_RETRACTED):
        return False
    return all(
        function in _RETRACTED or function in IGNORING[:-1] for function in functions.values()
    )


def deletes(layout: Layout) -> bool:
    """Whether DELETE has a meaning for the table."""
    if layout.removals == "ignore" or layout.partition == "across":
        return False
    if layout.engine in ("deduplicate", "sequenced"):
        return True
    if layout.removals == "remove":
        return layout.engine in ("aggregation", "partial-update")
    return layout.engine == "aggregation" and set(layout.merged.values()) <= set(_RETRACTED)


def takes_removals(layout: Layout) -> bool:
    """Whether a stream that takes rows back can be written into the table."""
    if layout.engine == "append" or layout.partition == "across":
        return False
    if layout.engine in ("first-row", "partial-update"):
        return bool(layout.removals)
    return True


class Writer:
    """Draws the changes of one table, and knows which rows are there."""

    def __init__(self, random: Random, case: Case, layout: Layout) -> None:
        self._random, self._case, self._layout = random, case, layout
        self._there: dict[Key, Row] = {}
        self._written: list[Row] = []
        self._version: dict[Key, int] = defaultdict(int)

    def round(self) -> tuple[Change, ...]:
        return tuple(self._change() for _ in range(self._random.choice((1, 2, 3))))

    def random_key(self) -> Key:
        row = self._row()
        return tuple(row[name] for name in self._layout.key)

    def _change(self) -> Change:
        case, layout, random = self._case, self._layout, self._random
        if case.feed == "merge" and self._there:
            actions = ["insert", "merge"]
            actions += ["update"] * updates(layout) + ["delete"] * deletes(layout)
            action = random.choice(actions)
            if action in ("update", "delete"):
                return self._by_key(action)
            if action == "merge" and (merge := self._merge()).events:
                return merge
        size = random.choice((1, 3, 8))
        if case.feed.startswith("java") and layout.removals == "remove":
            # Java's write buffer merges the rows of a commit: after "-D, +I" the file has the +I
            # alone, which does not remove the rows of earlier commits.
            size = 1
        return Change("insert", tuple(self._event() for _ in range(size)))

    def _event(self) -> Event:
        feed, layout, random = self._case.feed, self._layout, self._random
        java = feed in ("java", "java-write-only") and layout.engine in _JAVA_DELETES
        removing = java and layout.removals != "ignore"
        removing |= feed == "keyed-stream" and takes_removals(layout)
        if removing and self._there and random.random() < 0.25:
            if layout.engine == "aggregation" and java:
                if not self._written:
                    return self._insert()
                return "-D", self._written.pop(random.randrange(len(self._written)))
            key = random.choice(sorted(self._there, key=repr))
            self._version[key] += 1
            return "-D", self._there.pop(key)
        return self._insert()

    def _insert(self) -> Event:
        row = self._row()
        self._note(row)
        return "+I", row

    def _note(self, row: Row) -> None:
        key = self._key(row)
        self._written.append(row)
        if self._case.feed == "keyed-stream":
            self._version[key] += 1
        self._there[key] = row

    def _key(self, row: Row) -> Key:
        return tuple(row[name] for name in self._layout.key)

    def _row(self) -> Row:
        random, layout = self._random, self._layout
        row: Row = {
            "k": random.randrange(KEYS),
            "p": random.choice(PARTITIONS),
            "g": self._maybe(random.choice(GROUPS)),
            "v": self._maybe(random.randrange(-5, 100)),
            "w": random.randrange(10),
            "s": self._maybe(f"t{random.randrange(100)}"),
        }
        row["w"] += 10 * self._version[tuple(row[name] for name in layout.key)]
        # A sequence that is null: what Paimon makes of it depends on what has been merged before.
        if layout.engine in ("partial-update", "aggregation"):
            row["w"] = self._maybe(row["w"])
        return row

    def _maybe(self, value: Any) -> Any:
        return None if self._random.random() < 0.12 else value

    def _merge(self) -> Change:
        """A MERGE: rows of distinct keys, of which those that are there are updated or deleted."""
        rows = {self._key(row): row for row in (self._row() for _ in range(4))}
        layout = self._layout
        for name, value in {"v": 0, "s": "-"}.items():
            # A null cannot be set where the merge passes over nulls.
            passes_over = layout.merged.get(name) in ("sum", "last_non_null_value")
            if layout.engine == "partial-update" or passes_over:
                rows = {key: {**row, name: row[name] or value} for key, row in rows.items()}
        if not updates(self._layout):
            rows = {key: row for key, row in rows.items() if key not in self._there}
        gone = [key for key in rows if key in self._there and self._random.random() < 0.3]
        if not deletes(self._layout):
            gone = []
        for key, row in rows.items():
            if key in gone:
                del self._there[key]
                self._version[key] += 1
            else:
                self._note(row)
        return Change("merge", tuple(("+I", row) for row in rows.values()), tuple(gone))

    def _by_key(self, action: str) -> Change:
        keys = tuple(self._random.sample(sorted(self._there, key=repr), min(2, len(self._there))))
        if action == "delete":
            for key in keys:
                del self._there[key]
                self._version[key] += 1
            return Change("delete", keys=keys)
        row = {**self._row(), "v": 7, "s": "set"}
        return Change("update", (("+U", row),), keys)
