"""Queries that read a source: the tables they fill, their SQL, and the expected rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tests.integration.differential.case import Case
from tests.integration.differential.history import Round
from tests.integration.differential.layout import COLUMNS, NUMBERS, Layout, with_options
from tests.integration.differential.model import Event, Key, Row

_TOTALS = dict(zip(NUMBERS, ("BIGINT", "DECIMAL(38, 2)", "DOUBLE"), strict=True))
_ALL = ", ".join(COLUMNS)


@dataclass
class Seen:
    """What readers of a source must have been given: its changes from nothing on, its rows now.

    `states` are, of each round, the rows after each change; `certain` says that readers saw the
    last state of each round and no other.
    """

    events: list[Event] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    states: Sequence[Sequence[Mapping[Key, Row]]] = ()
    certain: bool = True


@dataclass
class Given:
    """All that readers of a case have been given so far."""

    source: Seen
    other: Seen
    rounds: Sequence[Round]


class Reader(ABC):
    """One continuous query, or two hops of them, in the database of a case."""

    name: ClassVar[str]

    def __init__(self, case: Case) -> None:
        self.case = case
        self.database = case.database
        self.source = f"{self.database}.s"

    @property
    def target(self) -> str:
        """The table that is compared."""
        return f"{self.database}.{self.name.replace('-', '_')}"

    @property
    def middles(self) -> Sequence[str]:
        """The tables between two hops."""
        return ()

    @abstractmethod
    def ddl(self) -> Iterator[str]:
        """The CREATE TABLEs."""

    @abstractmethod
    def queries(self) -> Iterator[str]:
        """The continuous INSERTs."""

    def fills(self, now: Round) -> Iterator[str]:
        """What is written into tables of the reader's own before a round is read."""
        return iter(())

    @abstractmethod
    def problems(self, given: Given, rows: Sequence[Row]) -> Iterator[str]:
        """What is wrong with the rows of the target."""


class Copy(Reader):
    """INSERT INTO a table with the same key: all rows, as they are."""

    name = "copy"

    def ddl(self) -> Iterator[str]:
        layout = self.case.source
        partition = "key" if layout.partition == "key" else "none"
        engine = "deduplicate" if layout.keyed else "append"
        buckets = "1" if layout.keyed else "-1"
        yield Layout(engine, buckets=buckets, partition=partition, number=layout.number).ddl(
            self.target
        )

    def queries(self) -> Iterator[str]:
        yield f"INSERT INTO {self.target} SELECT {_ALL} FROM {self.source}"

    def problems(self, given: Given, rows: Sequence[Row]) -> Iterator[str]:
        yield from differences(copied(self.case.source, given.source.events), rows)


class Sums(Reader):
    """SUM and COUNT by group, of a part of the rows: with a minus what is taken back."""

    name = "sums"

    def ddl(self) -> Iterator[str]:
        yield sums_ddl(self.target, "grp", self.case.source.number)

    def queries(self) -> Iterator[str]:
        yield (
            f"INSERT INTO {self.target} SELECT COALESCE(g, '-'), COUNT(*), COUNT(v), SUM(v) "
            f"FROM {self.source} WHERE k <> 3 GROUP BY COALESCE(g, '-')"
        )

    def problems(self, given: Given, rows: Sequence[Row]) -> Iterator[str]:
        parts = ((kind, row["g"] or "-", row["v"]) for kind, row in given.source.events
                 if row["k"] != 3)  # fmt: skip
        yield from wrong_sums(summed(parts), rows, "grp")


class Distinct(Reader):
    """COUNT(DISTINCT) by group."""

    name = "distinct"

    def ddl(self) -> Iterator[str]:
        sums = {"merge-engine": "aggregation", "fields.default-aggregate-function": "sum"}
        yield (
            f"CREATE TABLE {self.target} (grp STRING PRIMARY KEY NOT ENFORCED, amounts BIGINT, "
            f"n BIGINT) {with_options({'bucket': '1', **sums})}"
        )

    def queries(self) -> Iterator[str]:
        yield (
            f"INSERT INTO {self.target} SELECT COALESCE(g, '-'), COUNT(DISTINCT v), COUNT(*) "
            f"FROM {self.source} GROUP BY COALESCE(g, '-')"
        )

    def problems(self, given: Given, rows: Sequence[Row]) -> Iterator[str]:
        values: dict[str, Counter[Any]] = defaultdict(Counter)
        counts: Counter[str] = Counter()
        for kind, row in given.source.events:
            sign = -1 if kind in ("-U", "-D") else 1
            counts[row["g"] or "-"] += sign
            values[row["g"] or "-"][row["v"]] += sign
        wanted = [
            {
                "grp": group,
                "amounts": sum(
                    1 for value, n in values[group].items() if value is not None and n > 0
                ),
                "n": counts[group],
            }
            for group in counts
            if counts[group]
        ]
        yield from differences(wanted, [row for row in rows if row["amounts"] or row["n"]])


class Newest(Reader):
    """ROW_NUMBER() = 1: the newest row of each key of an append table."""

    name = "newest"

    def ddl(self) -> Iterator[str]:
        # The rows of a table with a key are the newest of it, whatever their version.
        engine = "deduplicate" if self.case.source.keyed else "sequenced"
        partition = "key" if self.case.source.partition == "key" and engine[0] == "d" else "none"
        yield Layout(engine, partition=partition, number=self.case.source.number).ddl(self.target)

    def queries(self) -> Iterator[str]:
        yield (
            f"INSERT INTO {self.target} SELECT {_ALL} FROM (SELECT *, ROW_NUMBER() OVER "
            f"(PARTITION BY {', '.join(self.case.source.key)} ORDER BY w DESC) AS rn "
            f"FROM {self.source}) AS r WHERE rn = 1"
        )

    def problems(self, given: Given, rows: Sequence[Row]) -> Iterator[str]:
        if self.case.source.keyed:
            yield from differences(copied(self.case.source, given.source.events), rows)
            return
        newest: dict[Any, int] = {}
        for _, row in given.source.events:
            newest[row["k"]] = max(row["w"], newest.get(row["k"], row["w"]))
        if sorted(newest) != sorted(row["k"] for row in rows):
            yield f"keys {sorted(row['k'] for row in rows)} instead of {sorted(newest)}"
        possible = [row for _, row in given.source.events if row["w"] == newest[row["k"]]]
        for row in rows:
            if row not in possible:
                yield f"{row} is no newest row"


class Union(Reader):
    """UNION ALL of the source and another table, into one with the key of both."""

    name = "union"

    def ddl(self) -> Iterator[str]:
        key = ("src", "p", "k") if self._parted else ("src", "k")
        keyed = f", PRIMARY KEY ({', '.join(key)}) NOT ENFORCED" if self._keyed else ""
        bucket = "1" if self._keyed else "-1"
        yield (
            f"CREATE TABLE {self.target} (src STRING, k INT, p STRING, g STRING, "
            f"v {self.case.source.number}{keyed}) {with_options({'bucket': bucket})}"
        )

    @property
    def _keyed(self) -> bool:
        return self.case.source.keyed and self.case.other.keyed

    @property
    def _parted(self) -> bool:
        return "p" in (*self.case.source.key, *self.case.other.key)

    def queries(self) -> Iterator[str]:
        yield (
            f"INSERT INTO {self.target} SELECT 'one', k, p, g, v FROM {self.source} "
            f"UNION ALL SELECT 'two', k, p, g, v FROM {self.database}.o"
        )

    def problems(self, given: Given, rows: Sequence[Row]) -> Iterator[str]:
        wanted: list[Row] = []
        for src, layout, seen in (
            ("one", self.case.source, given.source),
            ("two", self.case.other, given.other),
        ):
            made = copied(layout, seen.events) if self._keyed else [r for _, r in seen.events]
            names = ("k", "p", "g", "v")
            wanted += [{"src": src, **{name: row[name] for name in names}} for row in made]
        yield from differences(wanted, rows)


class UnionSums(Reader):
    """SUM and COUNT over UNION ALL of the source and another table."""

    name = "union-sums"

    def ddl(self) -> Iterator[str]:
        yield sums_ddl(self.target, "grp", self.case.source.number)

    def queries(self) -> Iterator[str]:
        yield (
            f"INSERT INTO {self.target} SELECT grp, COUNT(*), COUNT(v), SUM(v) FROM ("
            f"SELECT COALESCE(g, '-') AS grp, v FROM {self.source} UNION ALL "
            f"SELECT COALESCE(g, '-') AS grp, v FROM {self.database}.o) AS u GROUP BY grp"
        )

    def problems(self, given: Given, rows: Sequence[Row]) -> Iterator[str]:
        events = [*given.source.events, *given.other.events]
        parts = ((kind, row["g"] or "-", row["v"]) for kind, row in events)
        yield from wrong_sums(summed(parts), rows, "grp")


class TwoHops(Reader):
    """A table with the source's rows, and sums over that."""

    name = "two-hops"

    @property
    def _middle(self) -> str:
        return f"{self.database}.middle"

    @property
    def middles(self) -> Sequence[str]:
        return (self._middle,)

    def ddl(self) -> Iterator[str]:
        yield self.case.middle.ddl(self._middle)
        yield sums_ddl(self.target, "txt", self.case.source.number)

    def queries(self) -> Iterator[str]:
        yield f"INSERT INTO {self._middle} SELECT {_ALL} FROM {self.source}"
        yield (
            f"INSERT INTO {self.target} SELECT COALESCE(s, '-'), COUNT(*), COUNT(v), SUM(v) "
            f"FROM {self._middle} GROUP BY COALESCE(s, '-')"
        )

    def problems(self, given: Given, rows: Sequence[Row]) -> Iterator[str]:
        made = copied(self.case.middle, given.source.events)
        parts = (("+I", row["s"] or "-", row["v"]) for row in made)
        yield from wrong_sums(summed(parts), rows, "txt")


def copied(layout: Layout, events: Iterable[Event]) -> list[Row]:
    """The rows of a table with the key of `layout` after these changes."""
    if not layout.keyed:
        return [row for _, row in events]
    rows: dict[Key, Row] = {}
    for kind, row in events:
        key = tuple(row[name] for name in layout.key)
        if kind in ("+I", "+U"):
            rows[key] = row
        else:
            rows.pop(key, None)
    return list(rows.values())


def sums_ddl(table: str, key: str, number: str) -> str:
    sums = {"merge-engine": "aggregation", "fields.default-aggregate-function": "sum"}
    return (
        f"CREATE TABLE {table} ({key} STRING PRIMARY KEY NOT ENFORCED, n BIGINT, amounts BIGINT, "
        f"total {_TOTALS[number]}) {with_options({'bucket': '1', **sums})}"
    )


def summed(parts: Iterable[tuple[str, str, Any]]) -> dict[str, tuple[int, int, Any]]:
    """Of each group: how many rows, how many amounts, their sum."""
    sums: dict[str, tuple[int, int, Any]] = {}
    for kind, group, value in parts:
        sign = -1 if kind in ("-U", "-D") else 1
        n, amounts, total = sums.get(group, (0, 0, 0))
        there = value is not None
        sums[group] = (n + sign, amounts + sign * there, total + sign * (value if there else 0))
    return sums


def wrong_sums(
    wanted: Mapping[str, tuple[int, int, Any]], rows: Sequence[Row], key: str
) -> Iterator[str]:
    """Groups whose sums are not as wanted; that of no amounts is 0 or null.

    A group without rows may be there with zeros.
    """
    there = {row[key]: row for row in rows}
    if len(there) != len(rows):
        yield f"a group is there twice: {rows}"
    for group in sorted(wanted.keys() | there.keys()):
        n, amounts, total = wanted.get(group, (0, 0, 0))
        row = there.get(group)
        found = (0, 0, 0) if row is None else (row["n"], row["amounts"], row["total"] or 0)
        if found != (n, amounts, total):
            yield f"group {group}: {found} instead of {(n, amounts, total)}"


def differences(wanted: Collection[Row], rows: Sequence[Row]) -> Iterator[str]:
    """Rows that are missing, and rows that should not be there."""
    missing, extra = Counter(map(frozen, wanted)), Counter(map(frozen, rows))
    both = missing & extra
    for row in sorted((missing - both).elements(), key=repr):
        yield f"missing {dict(row)}"
    for row in sorted((extra - both).elements(), key=repr):
        yield f"wrong {dict(row)}"


def frozen(row: Row) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(row.items()))


PLAIN: tuple[type[Reader], ...] = (Copy, Sums, Distinct, Newest, Union, UnionSums, TwoHops)
