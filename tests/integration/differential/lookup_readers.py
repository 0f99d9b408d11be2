"""Lookup joins: a source's rows with a dimension, and an append table's rows with the source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from tests.integration.differential.case import Case
from tests.integration.differential.history import Round
from tests.integration.differential.layout import Layout, with_options
from tests.integration.differential.model import Key, Row
from tests.integration.differential.readers import Given, Reader, Seen, copied

_NAMES = ("k", "p", "g", "v")


class Lookup(Reader):
    """The rows of the source, each with the name of its group from a dimension."""

    strategy: ClassVar[str]

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.dimension = f"{self.database}.names_{self.strategy}"

    def ddl(self) -> Iterator[str]:
        yield _names_ddl(self.dimension, self.case.dimension, self.strategy)
        layout = self.case.source
        key = f", PRIMARY KEY ({', '.join(layout.key)}) NOT ENFORCED" if layout.keyed else ""
        bucket = "1" if layout.keyed else "-1"
        yield (
            f"CREATE TABLE {self.target} (k INT, p STRING, g STRING, v {layout.number}, "
            f"name STRING{key}) {with_options({'bucket': bucket})}"
        )

    @property
    def hint(self) -> str:
        return _hint("d", self.strategy)

    def queries(self) -> Iterator[str]:
        yield (
            f"INSERT INTO {self.target} SELECT {self.hint} "
            f"s.k, s.p, s.g, s.v, d.name FROM {self.source} AS s LEFT JOIN {self.dimension} "
            f"{_SHUFFLED} FOR SYSTEM_TIME AS OF PROCTIME() AS d ON s.g = d.grp"
        )

    def fills(self, now: Round) -> Iterator[str]:
        rows = ", ".join(f"('{group}', '{name}')" for group, name in now.dimension)
        yield f"INSERT INTO {self.dimension} VALUES {rows}"

    def problems(self, given: Given, rows: Sequence[Row]) -> Iterator[str]:
        layout = self.case.source
        wanted = copied(layout, given.source.events)
        there = [tuple(row[name] for name in _NAMES) for row in rows]
        due = [tuple(row[name] for name in _NAMES) for row in wanted]
        if Counter(there) != Counter(due):
            yield f"rows {sorted(there, key=repr)} instead of {sorted(due, key=repr)}"
            return
        for row in rows:
            possible = _names(layout, given, row)
            if row["name"] not in possible:
                yield f"{row} is joined with none of {sorted(possible, key=repr)}"


class Waiting(Lookup):
    """The same; rows without a match wait briefly, and later changes of their keys with them.

    A row without attempts left has no name, as if it had not waited.
    """

    name = "lookup-retry"
    strategy = "retry"

    @property
    def hint(self) -> str:
        return (
            "/*+ LOOKUP('table' = 'd', 'retry-predicate' = 'lookup_miss', 'retry-strategy' = "
            "'fixed_delay', 'fixed-delay' = '100ms', 'max-attempts' = '2') */"
        )


def _names(layout: Layout, given: Given, row: Row) -> set[str | None]:
    """The names that the row may have: of the round when it came to be as it is, or later.

    Where readers need not have seen each state, it may be as it was for the first time.
    """
    since = before = 0
    if layout.keyed:
        key = tuple(row[name] for name in layout.key)
        equal, seen = False, False
        for number, states in enumerate(given.source.states):
            for state in states:
                then = state.get(key)
                was, equal = (
                    equal,
                    then is not None and all(then[name] == row[name] for name in _NAMES),
                )
                if equal and not was and (given.source.certain or not seen):
                    since, seen = before, True
                if not equal:
                    before = number
    if not given.source.certain:
        # A live reader may see the row before the dimension's rows of that round are written.
        since = max(since - 1, 0)
    return {dict(one.dimension).get(row["g"]) for one in given.rounds[since:]}


class AsDimension(Reader):
    """Rows of an append table, each with the row of the source that has its key."""

    strategy: ClassVar[str]

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.probes = f"{self.database}.probes_{self.strategy}"
        self._asked = 0

    def ddl(self) -> Iterator[str]:
        plain = with_options({"bucket": "-1"})
        yield f"CREATE TABLE {self.probes} (n INT, r INT, k INT, p STRING) {plain}"
        yield (
            f"CREATE TABLE {self.target} (n INT, r INT, k INT, p STRING, g STRING, "
            f"v {self.case.source.number}, w INT) {plain}"
        )

    def queries(self) -> Iterator[str]:
        on = " AND ".join(f"q.{name} = s.{name}" for name in self.case.source.key)
        yield (
            f"INSERT INTO {self.target} SELECT {_hint('s', self.strategy)} "
            f"q.n, q.r, q.k, q.p, s.g, s.v, s.w FROM {self.probes} AS q LEFT JOIN {self.source} "
            f"{_SHUFFLED} FOR SYSTEM_TIME AS OF PROCTIME() AS s ON {on}"
        )

    def fills(self, now: Round) -> Iterator[str]:
        rows = list[str]()
        for key in now.probes:
            named = dict(zip(self.case.source.key, key, strict=True))
            place = f"'{named['p']}'" if "p" in named else "NULL"
            rows.append(f"({len(rows)}, {self._asked}, {named['k']}, {place})")
        self._asked += 1
        yield f"INSERT INTO {self.probes} VALUES {', '.join(rows)}"

    def problems(self, given: Given, rows: Sequence[Row]) -> Iterator[str]:
        wanted = Counter(
            (r, n) for r, one in enumerate(given.rounds) for n in range(len(one.probes))
        )
        if self.case.source.keyed:
            there = Counter((row["r"], row["n"]) for row in rows)
            if there != wanted:
                yield f"probes {sorted(there.elements())} instead of {sorted(wanted.elements())}"
        for row in rows:
            possible = _joined(self.case, given.source, row)
            if tuple(row[name] for name in ("g", "v", "w")) not in possible:
                yield f"{row} is none of {sorted(possible, key=repr)}"


def _joined(case: Case, seen: Seen, probe: Row) -> set[tuple[Any, ...]]:
    """What a probe may have found."""
    key: Key = tuple(probe[name] for name in case.source.key)
    round_: int = probe["r"]
    if not seen.certain:
        states = [{}, *(state for one in seen.states[: round_ + 1] for state in one)]
    else:
        states = [next(one[-1] for one in reversed(seen.states[: round_ + 1]) if one)]
    nothing = (None, None, None)
    found = set()
    for state in states:
        if case.source.keyed:
            rows: list[Row] = [state[key]] if key in state else []
        else:
            rows = [row for row in state.values() if row["k"] == probe["k"]]
        found |= {(row["g"], row["v"], row["w"]) for row in rows} or {nothing}
    return found


_SHUFFLED = "/*+ OPTIONS('lookup.bucket.shuffle-min-rows' = '0') */"


def _hint(table: str, strategy: str) -> str:
    return f"/*+ LOOKUP('table' = '{table}', 'strategy' = '{strategy}') */"


def _names_ddl(table: str, layout: Layout, strategy: str) -> str:
    if strategy == "bucket":
        layout = replace(layout, buckets="4")
    return (
        f"CREATE TABLE {table} (grp STRING PRIMARY KEY NOT ENFORCED, name STRING) "
        f"{with_options(layout.options())}"
    )


def strategies() -> Iterator[type[Reader]]:
    """The readers of each strategy."""
    for strategy in ("full", "partial", "bucket"):
        for base, word in ((Lookup, "lookup"), (AsDimension, "dimension")):
            name = f"{word}-{strategy}"
            yield type(f"{base.__name__}{strategy.title()}", (base,), {
                "name": name, "strategy": strategy, "__doc__": base.__doc__,
            })  # fmt: skip
