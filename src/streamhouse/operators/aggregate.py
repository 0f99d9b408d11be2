"""Aggregation: GROUP BY with aggregate functions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from streamhouse.operators.operator import (
    INPUT,
    RESULT,
    WEIGHT,
    Change,
    Emits,
    Kept,
    Key,
    Leading,
    Operator,
    Unary,
    column,
    keys,
    plain,
    same_keys,
    touched,
)  # fmt: skip
from streamhouse.operators.project import Item, listed, mapped_keys, never_null
from streamhouse.sql.expressions.binder import quote

HIDDEN = "_n"
"""The prefix of the columns that only `Aggregate.delta` needs."""


@dataclass(frozen=True)
class Step:
    """How an aggregate follows from its old value and the changes of its values.

    `function` is COUNT, SUM, or an extreme; `argument` its value for each row, NULL for none, over
    the rows of the input `source`. `count` is the column that counts the values of a SUM.
    """

    function: str
    argument: str
    source: int = 0
    count: str = ""

    @property
    def extreme(self) -> bool:
        """Whether the value is that of one row, so that it is lost with this row."""
        return self.function not in ("COUNT", "SUM")

    @property
    def least(self) -> bool:
        """Whether it is the least value, not the greatest."""
        return self.function in ("MIN", "BOOL_AND")


@dataclass(frozen=True)
class Aggregate(Unary):
    """A row for each group: the columns `by`, then those of the aggregates.

    Without `by` there is one group, also of no rows. `in_order`: an aggregate depends on the order
    of rows. `steps` are those of the aggregates, if all have one, and `rows` is the column that
    counts the rows of each group. Their sources are the input, 0, and `values`: for each group (the
    columns of `by`) the distinct values of an argument, with a count.
    """

    by: tuple[Item, ...]
    aggregates: tuple[Item, ...]
    in_order: bool = False
    steps: tuple[Step, ...] = ()
    rows: str = ""
    values: tuple[Operator, ...] = ()

    @property
    def inputs(self) -> tuple[Operator, ...]:
        return (self.input, *self.values)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(item.name for item in (*self.by, *self.aggregates))

    @cached_property
    def keys(self) -> frozenset[Key]:
        by = frozenset(item.name for item in self.by)
        return frozenset([by]) | mapped_keys(self.by, self.input.keys)

    @cached_property
    def not_null(self) -> frozenset[str]:
        return never_null((*self.by, *self.aggregates), self.input.not_null)

    @property
    def expressions(self) -> tuple[str, ...]:
        return tuple(item.sql for item in (*self.by, *self.aggregates))

    @property
    def _shown(self) -> list[str]:
        return [item.sql for item in self.aggregates if not item.name.startswith(HIDDEN)]

    @property
    def loses(self) -> str:
        called = dict.fromkeys(sql.partition("(")[0] for sql in self._shown)
        return f"{', '.join(called) or 'GROUP BY'} changes when rows are added"

    @property
    def ordered(self) -> str:
        return "an aggregate depends on the order of rows" if self.in_order else ""

    @property
    def reduced(self) -> bool:
        return bool(self._shown) or super().reduced

    @property
    def partitions(self) -> tuple[tuple[str, ...], ...] | None:
        if self.timed or self.in_order:
            return None
        return (tuple(item.sql for item in self.by), *(self._names for _ in self.values))

    @property
    def _names(self) -> tuple[str, ...]:
        """The columns `by`, of the result and of `values`."""
        return tuple(f"{INPUT}.{quote(item.name)}" for item in self.by)

    @property
    def keeps(self) -> tuple[Kept, ...]:
        if self.partitions is None:
            return super().keeps
        only_lost = bool(self.steps)
        leading = self._leading if only_lost else None
        by = self.partitions[0]
        rows = Kept(0, by, rare=only_lost, weighted=only_lost, leading=leading)
        found = (Kept(RESULT, self._names), rows)
        never_lost = self.input.emits <= Emits.INSERTS or not any(e.extreme for e in self.steps)
        return found[:1] if self.steps and never_lost else found

    def whole(self, inputs: Sequence[str]) -> str:
        items = listed((*self.by, *self.aggregates))
        by = ", ".join(item.sql for item in self.by)
        return f"SELECT {items} FROM {inputs[0]} AS {INPUT}{f' GROUP BY {by}' if by else ''}"

    def lookups(self, number: int, changes: Sequence[Change], found: Sequence[str]) -> str:
        if number and self.steps and self.partitions is not None:
            return self._lost(changes[0].delta, found[0])
        return super().lookups(number, changes, found)

    def delta(self, changes: Sequence[Change], result: str = "") -> str:
        if self.partitions is None:
            return super().delta(changes)
        if self.steps:
            lost = f"WITH _touched AS (SELECT * FROM {changes[0].keys}) "
            touching, new = lost if len(self.keeps) > 1 else "", self._merged(changes, result)
        else:
            touching = f"WITH _touched AS ({self._touched_keys(changes)}) "
            new = self.whole([touched(changes[0].new, INPUT, [item.sql for item in self.by])])
        columns = ", ".join(map(quote, self.columns))
        # The one row of all groups is there, unless nothing has changed.
        some = "" if self.by else f" WHERE EXISTS (SELECT 1 FROM {result})"
        return (
            f"{touching}SELECT {columns}, 1 AS {WEIGHT} FROM ({new}){some} "
            f"UNION ALL SELECT {columns}, -1 AS {WEIGHT} FROM {result}"
        )

    @property
    def _steps(self) -> list[tuple[Item, Step]]:
        return list(zip(self.aggregates, self.steps, strict=True))

    @property
    def _extremes(self) -> list[tuple[Item, Step]]:
        return [(item, step) for item, step in self._steps if step.extreme]

    @property
    def _leading(self) -> Leading | None:
        """The rows of a group by which its extremes are known, if all are of one column."""
        steps = [step for _, step in self._extremes]
        found = {Leading(column(step.argument), step.least) for step in steps}
        if len(found) > 1 or any(step.source or not column(step.argument) for step in steps):
            return None
        return next(iter(found), None)

    def _lost(self, delta: str, result: str) -> str:
        """The keys of the groups of which an extreme leaves and none like it enters."""
        items, tests = [keys([item.sql for item in self.by])], []
        for n, (item, step) in enumerate(self._extremes):
            value = f"{step.function}({step.argument}) FILTER (WHERE {WEIGHT}"
            items += [f"{value} < 0) AS _d{n}", f"{value} > 0) AS _u{n}"]
            old = f"{INPUT}.{quote(item.name)}"
            worse = f"_c._u{n} {'>' if step.least else '<'} {old}"
            tests.append(f"_c._d{n} = {old} AND (_c._u{n} IS NULL OR {worse})")
        found = ", ".join(f"_c._k{n}" for n in range(len(self.by))) or "1 AS _k"
        places = ", ".join(str(n + 1) for n in range(len(self.by)))
        grouped = f" GROUP BY {places}" if places else ""
        return (
            f"SELECT {found} FROM (SELECT {', '.join(items)} FROM {delta} AS {INPUT}"
            f"{grouped}) AS _c JOIN {result} AS {INPUT} "
            f"ON {same_keys(self._names, '_c') or 'true'} WHERE {' OR '.join(tests)}"
        )

    def _merged(self, changes: Sequence[Change], result: str) -> str:
        """The new rows of the groups: from the old ones, the changes, and lost groups again."""
        parts = [self._part(-1, result, self._old)]
        for source, change in enumerate(changes):
            parts.append(self._part(source, change.delta, self._changed))
        if len(self.keeps) > 1:
            parts.append(self._left(changes[0].new))
        names = [f"_u.{quote(item.name)}" for item in self.by]
        items = ", ".join([*names, *(self._final(*each) for each in self._steps)])
        some = f"HAVING sum(_u.{quote(self.rows)}) > 0"
        grouped = f" GROUP BY {', '.join(names)} {some}" if names else ""
        return f"SELECT {items} FROM ({' UNION ALL '.join(parts)}) AS _u{grouped}"

    def _part(self, source: int, relation: str, value: Callable[[Item, Step], str]) -> str:
        """Values of the aggregates for each row of a source; -1: the old result."""
        by = [item.sql for item in self.by] if source == 0 else self._names
        items = [f"{sql} AS {quote(item.name)}" for sql, item in zip(by, self.by, strict=True)]
        for item, step in self._steps:
            found = value(item, step) if source in (step.source, -1) else "NULL"
            items.append(f"{found} AS {quote(item.name)}")
        return f"SELECT {', '.join(items)} FROM {relation} AS {INPUT}"

    def _left(self, rows: str) -> str:
        """As `_part`, the values of extremes of which there are rows, which have a `WEIGHT`."""
        by, items = [str(n + 1) for n in range(len(self.by))], dict[str, str]()
        for n, (item, step) in enumerate(self._steps, len(by) + 1):
            if not step.extreme:
                continue
            # Grouped by their values, 0.0 and -0.0 would be one.
            real = self.types[item.name] in ("DOUBLE", "FLOAT")
            by.append(f"CAST({step.argument} AS VARCHAR)" if real else str(n))
            items[item.name] = f"any_value({step.argument})" if real else step.argument
        values = self._part(0, rows, lambda item, step: items.get(item.name, "NULL"))
        return f"{values} GROUP BY {', '.join(by)} HAVING sum({WEIGHT}) > 0"

    def _old(self, item: Item, step: Step) -> str:
        name = f"{INPUT}.{quote(item.name)}"
        if not step.extreme or len(self.keeps) == 1:
            return name
        same = same_keys(self._names, "_t") or "true"
        return f"CASE WHEN NOT EXISTS (SELECT 1 FROM _touched AS _t WHERE {same}) THEN {name} END"

    def _changed(self, item: Item, step: Step) -> str:
        if step.extreme:
            return f"CASE WHEN {WEIGHT} > 0 THEN {step.argument} END"
        if step.function == "COUNT":
            return f"CASE WHEN ({step.argument}) IS NOT NULL THEN {WEIGHT} END"
        kind = self.types[item.name]
        weight = "HUGEINT" if kind == "HUGEINT" else "DECIMAL(18, 0)"
        return f"CAST({step.argument} AS {kind}) * CAST({WEIGHT} AS {weight})"

    def _final(self, item: Item, step: Step) -> str:
        total = f"sum(_u.{quote(item.name)})"
        match step.function:
            case "COUNT":
                value = f"coalesce({total}, 0)"
            case "SUM":
                value = f"CASE WHEN sum(_u.{quote(step.count)}) > 0 THEN {total} END"
            case function:
                value = f"{function}(_u.{quote(item.name)})"
        return f"CAST({value} AS {self.types[item.name]}) AS {quote(item.name)}"

    def describe(self) -> str:
        by = ", ".join(item.sql for item in self.by)
        if not self._shown:
            return plain(f"distinct {by}")
        return plain(f"aggregate{f' by {by}' if by else ''}: {', '.join(self._shown)}")
