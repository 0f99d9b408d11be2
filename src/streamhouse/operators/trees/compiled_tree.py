"""What the incremental execution of a tree needs to know before it has any rows.

Window functions over the same partitions become one operator, which keeps its input once.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

from streamhouse.operators.filter import Filter
from streamhouse.operators.join import Join
from streamhouse.operators.operator import (
    INPUT,
    RESULT,
    WEIGHT,
    Change,
    Linear,
    Operator,
    Unary,
    walk,
)  # fmt: skip
from streamhouse.operators.over import Over, PartitionSteps, WindowFunction
from streamhouse.operators.planning.pruning import with_inputs
from streamhouse.operators.project import Project
from streamhouse.operators.scan import Scan
from streamhouse.operators.sink import Sink
from streamhouse.operators.trees.arrangement import Arrangement, Origins, is_real, kinds_of
from streamhouse.sql.expressions.binder import quote
from streamhouse.sql.plan import Column, Name, TableInfo
from streamhouse.sql.views.stored_view import HIDDEN_KEY, is_view

_SORTED = re.compile(r"(TINY|SMALL|BIG)INT|INTEGER|DECIMAL\(\d+, ?\d+\)|DATE|TIME[\w ]*|VARCHAR")
"""The types whose values DuckDB and Arrow sort alike."""


@dataclass(frozen=True, eq=False)
class Source:
    """An input table: the columns that all scans of it read, and its key, as one scan.

    The rows of a table with a primary key are kept by it, so that those before a change are known.
    """

    scan: Scan
    relations: tuple[str, ...]
    origins: Origins = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the relation of all its rows."""
        return f"{self.scan.relation}__rows"

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the primary key; empty for a table without one."""
        return self.scan.table.primary_key

    @cached_property
    def arrangement(self) -> Arrangement | None:
        """The rows by primary key."""
        if not self.key:
            return None
        types = self.scan.types
        # Paimon's keys tell 0.0 from -0.0.
        real = {name for name in self.key if types[name] in ("DOUBLE", "FLOAT")}
        by = (f"{INPUT}.{quote(name)}" for name in self.key)
        pairs = list(zip(by, self.key, strict=True))
        return Arrangement(
            self.scan,
            tuple(f"CAST({sql} AS VARCHAR)" if name in real else sql for sql, name in pairs),
            INPUT,
            tuple("VARCHAR" if name in real else types[name] for name in self.key),
            origins=self.origins,
        )


class CompiledTree:
    """A tree with numbers for its operators, and the arrangements that each looks up.

    With the `origins` of its tables, the names of arrangements are the same for all views.
    """

    def __init__(self, root: Operator, origins: Origins = MappingProxyType({})) -> None:
        self.root, self._origins = shared(root), origins
        self.operators = tuple(walk(self.root))
        self.numbers = {id(each): n for n, each in enumerate(self.operators)}

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """The input tables, each once."""
        scans = [each for each in self.operators if isinstance(each, Scan)]
        tables: dict[Name, list[Scan]] = {}
        for scan in scans:
            tables.setdefault(scan.table.name, []).append(scan)
        found = []
        for same in tables.values():
            table = _with_stored_key(same[0].table)
            read = [name for scan in same for name in scan.read]
            columns = tuple(dict.fromkeys([*read, *table.primary_key]))
            relations = tuple(dict.fromkeys(scan.relation for scan in same))
            scan = Scan(table, relations[0], columns)
            found.append(Source(scan, relations, self._origins))
        return tuple(found)

    @cached_property
    def kept(self) -> Mapping[int, tuple[Arrangement, ...]]:
        """The arrangements that each operator looks up, by its number."""
        return {n: self._kept(each) for n, each in enumerate(self.operators) if each.keeps}

    @cached_property
    def results(self) -> Mapping[int, Arrangement]:
        """The results of operators that may differ when they are computed again, by number.

        Sums of doubles depend on the order of rows, and 0.0 and -0.0 are one group. So the rows
        that leave are those that were passed on, which are kept by the operator's key.
        """
        inexact = ((n, each) for n, each in enumerate(self.operators) if _is_inexact(each))
        return {n: replace(_result(each), origins=self._origins) for n, each in inexact}

    @cached_property
    def arrangements(self) -> Mapping[str, Arrangement]:
        """All arrangements by name, those of lower operators first."""
        tables = [each.arrangement for each in self.sources]
        found = [each for each in tables if each is not None]
        of_operators = [each for several in self.kept.values() for each in several]
        of_operators += self.results.values()
        of_operators.sort(key=lambda each: self.numbers[id(each.operator)])
        named: dict[str, Arrangement] = {}
        for each in (*found, *of_operators):
            # A join by the primary key of a table finds its rows in those kept by that key.
            named.setdefault(each.name, each)
        return named

    @cached_property
    def keeping(self) -> Mapping[str, tuple[Arrangement, ...]]:
        """The arrangements that keep the rows of a change, by the name of its table."""
        sources = {id(each.arrangement): f"_s{n}" for n, each in enumerate(self.sources)}
        found: dict[str, tuple[Arrangement, ...]] = {}
        for each in self.arrangements.values():
            delta = sources.get(id(each)) or self.delta(each.operator)
            found[delta] = (*found.get(delta, ()), each)
        return found

    @cached_property
    def passed(self) -> frozenset[int]:
        """The numbers of operators whose change is computed where it is read.

        One operator reads it, and it is not kept. It has a row for each row of the change that it
        reads, or its reader computes each row on its own.
        """
        return self._passing[0]

    @cached_property
    def over_gross(self) -> frozenset[int]:
        """The numbers of operators that read changes in which rows may enter and leave at once."""
        return self._passing[1]

    @cached_property
    def _passing(self) -> tuple[frozenset[int], frozenset[int]]:
        readers: dict[int, list[Operator]] = {id(each): [] for each in self.operators}
        for operator in self.operators:
            for each in operator.inputs:
                readers[id(each)].append(operator)
        stored = {id(each.operator) for each in self.arrangements.values()}
        passed, over_gross, gross = set[int](), set[int](), set[int]()
        for n, each in enumerate(self.operators):
            if gross.intersection(map(id, each.inputs)):
                over_gross.add(n)
            if id(each) in stored or len(readers[id(each)]) > 1:
                continue
            if _is_linear(each) and any(map(_is_linear, readers[id(each)])):
                passed.add(n)
                if n in over_gross or not each.is_net:
                    gross.add(id(each))
            elif n not in over_gross and self._passes(each):
                passed.add(n)
        return frozenset(passed), frozenset(over_gross)

    def _passes(self, operator: Operator) -> bool:
        if isinstance(operator, Scan):
            (source,) = (each for each in self.sources if operator.relation in each.relations)
            return len(operator.columns) == len(source.scan.columns)
        if isinstance(operator, Sink):
            return not operator.keeps
        return isinstance(operator, Project) and operator.is_net

    @cached_property
    def read_whole(self) -> tuple[tuple[str, frozenset[str]], ...]:
        """The names of the arrangements of which changes look up all rows, each with the relations
        of the tables whose changes do."""
        return tuple(
            (arrangement.name, _looking(self.operators[number], n))
            for number, several in self.kept.items()
            for n, arrangement in enumerate(several)
            if self.operators[number].keeps[n].whole
        )

    def labels(self, names: Iterable[str]) -> dict[str, str]:
        """What some arrangements keep, in words."""
        return {name: self.arrangements[name].label for name in names}

    def delta(self, operator: Operator) -> str:
        """The name of the table of an operator's change."""
        return f"_d{self.numbers[id(operator)]}"

    def _kept(self, operator: Operator) -> tuple[Arrangement, ...]:
        found: list[Arrangement] = []
        for kept in operator.keeps:
            rows = operator if kept.input == RESULT else operator.inputs[kept.input]
            alias = INPUT if kept.input == RESULT else operator.aliases[kept.input]
            kinds = kinds_of(rows, kept.by, alias)
            leading = kept.leading
            if leading is not None and not _SORTED.fullmatch(rows.types[leading.column]):
                leading = None
            where, origins = kept.where, self._origins
            found.append(Arrangement(rows, kept.by, alias, kinds, where, leading, origins))
        return tuple(found)


def _is_linear(operator: Operator) -> bool:
    return isinstance(operator, Linear) and not operator.timed


def _looking(operator: Operator, number: int) -> frozenset[str]:
    """The relations of the tables whose changes look rows of `keeps[number]` up."""
    deltas = [f"_delta{n}_" for n in range(len(operator.inputs))]
    sql = operator.lookups(number, list(map(Change, deltas)), ["_found"] * number)
    inputs = zip(deltas, operator.inputs, strict=True)
    below = (
        each for name, child in inputs if name in sql or operator.timed for each in walk(child)
    )
    return frozenset(each.relation for each in below if isinstance(each, Scan))


def _with_stored_key(table: TableInfo) -> TableInfo:
    """A table with the key by which Paimon stores it, also if queries do not see that."""
    if table.primary_key or not is_view(table):
        return table
    column = Column(HIDDEN_KEY, "STRING", nullable=False)
    return replace(table, columns=(*table.columns, column), primary_key=(HIDDEN_KEY,))


def _is_inexact(operator: Operator) -> bool:
    """Whether a result computed again may differ from what was passed on, though equal."""
    if isinstance(operator, Scan | Linear | Join | Sink):
        return False
    known = any(kept.input == RESULT for kept in operator.keeps)
    return not known and any(is_real(kind) for kind in operator.types.values())


def _result(operator: Operator) -> Arrangement:
    """The result by its key, or by partition: a change has all rows of each partition."""
    unique = operator.shortest_key
    by = tuple(f"{INPUT}.{quote(name)}" for name in unique or ())
    if unique is None and isinstance(operator, WindowFunction):
        (by,) = operator.partitions or ((),)
    return Arrangement(operator, by, INPUT, kinds_of(operator, by, INPUT))


def obstacle(operator: Operator) -> str:
    """Why the change of an operator's result cannot be computed; empty if it can."""
    if WEIGHT in map(str.lower, operator.columns):
        return f"changes have a column {WEIGHT} of their own"
    if operator.ordered:
        return operator.recomputed or "it depends on the order of rows"
    if isinstance(operator, Scan):
        system = "$" in operator.table.name[-1]
        return "a system table, or a fixed snapshot" if operator.fixed or system else ""
    by_partition = operator.keys or isinstance(operator, WindowFunction)
    if _is_inexact(operator) and not by_partition and any(operator.partitions or ()):
        return "it has no key, and numbers that are not exact"
    return ""


def shared(root: Operator) -> Operator:
    """The tree with the same result in which such window functions are `PartitionSteps`."""
    operators = list(walk(root))
    readers = Counter(id(each) for operator in operators for each in operator.inputs)
    several = {id(each) for each in operators if readers[id(each)] > 1}
    made: dict[int, Operator] = {}
    for each in operators:
        found = with_inputs(each, [made[id(below)] for below in each.inputs])
        if isinstance(found, Over):
            found = _joined(found, {id(made[number]) for number in several if number in made})
        made[id(each)] = found
    return made[id(root)]


def _joined(over: Over, several: set[int]) -> Operator:
    """A window function together with those below it that it can be computed with."""
    steps, below = [over], over.input
    between: list[Unary] = []
    while isinstance(below, Project | Filter) and id(below) not in several:
        between.insert(0, below)
        below = below.input
    if not isinstance(below, Over | PartitionSteps) or id(below) in several:
        return over
    lower = below.steps if isinstance(below, PartitionSteps) else (below,)
    found = PartitionSteps(below.input, (*lower, *between, *steps))
    return found if _are_within(lower[0], found.steps) and _is_safe(found) else over


def _are_within(first: Unary, steps: Sequence[Unary]) -> bool:
    """Whether the partitions of the last step are within those of the first one."""
    last = steps[-1]
    assert isinstance(first, Over) and isinstance(last, Over)
    own = {item.column for item in last.by}
    for step in reversed(steps[:-1]):
        if isinstance(step, Project):
            sources = {item.name: item.column for item in step.items}
            own = {sources.get(name, "") for name in own}
    whole = {item.column for item in first.by}
    return "" not in whole and whole <= own and bool(whole or not own)


def _is_safe(found: PartitionSteps) -> bool:
    """Whether the steps depend on rows only, and rows that are passed on can be found again."""
    if any(step.timed or step.ordered for step in found.steps):
        return False
    return bool(found.keys) or not any(map(is_real, found.types.values()))
