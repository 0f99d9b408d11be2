"""Plans aggregates whose new value follows from the old one and the changes of their rows."""

from collections.abc import Sequence

from sqlglot import exp

from streamhouse.operators.aggregate import HIDDEN, Aggregate, Step
from streamhouse.operators.distinct import Distinct
from streamhouse.operators.filter import Filter
from streamhouse.operators.operator import INPUT, Emits, Operator
from streamhouse.operators.planning.rows import Rows, checked, fragment, over
from streamhouse.operators.project import Item, Project

_FUNCTIONS: dict[type[exp.Expr], str] = {
    exp.Count: "COUNT", exp.CountIf: "COUNT", exp.Sum: "SUM", exp.Min: "MIN", exp.Max: "MAX",
    exp.LogicalAnd: "BOOL_AND", exp.LogicalOr: "BOOL_OR",
}  # fmt: skip
Call = tuple[Item, exp.Expr]
"""An aggregate of a query: its column, and its node."""


def distinct(operator: Operator) -> Operator:
    """The rows of an operator, each once."""
    if operator.emits <= Emits.INSERTS:
        return checked(Distinct(operator))
    by = tuple(map(Item.of, operator.columns))
    count = Item(f"{HIDDEN}0", "COUNT(*)", "", frozenset())
    steps = (Step("COUNT", "1"),)
    counted = Aggregate(operator, by, (count,), False, steps, count.name)
    return checked(Project(checked(counted), by))


def aggregated(rows: Rows, by: tuple[Item, ...], calls: Sequence[Call], in_order: bool) -> Operator:
    """The aggregates of each group."""
    if not (by or calls):
        # The one group has a row, which needs a column.
        calls = [(Item(f"{HIDDEN}0", "COUNT(*)", "", frozenset()), exp.Count(this=exp.Star()))]
    items = tuple(item for item, _ in calls)
    if by and not items:
        return distinct(checked(Project(rows.operator, by)))
    plain = Aggregate(rows.operator, by, items, in_order)
    if in_order or plain.timed:
        return checked(plain)
    plan = _Accumulation(rows, by, checked(plain).types)
    if not all(plan.add(item, node) for item, node in calls):
        return checked(plain)
    operator = checked(plan.operator())
    if len(operator.columns) == len(by) + len(items):
        return operator
    shown = (*(item.name for item in by), *(item.name for item in items))
    return checked(Project(operator, tuple(map(Item.of, shown))))


class _Accumulation:
    """Collects the steps of the aggregates of a query, and the columns and inputs that these need.

    `types` are those of the aggregates.
    """

    def __init__(self, rows: Rows, by: tuple[Item, ...], types: dict[str, str]) -> None:
        self._rows, self._by, self._types = rows, by, types
        self._items: list[Item] = []
        self._steps: list[Step] = []
        self._hidden: list[tuple[Item, Step]] = []
        self._values: dict[str, Operator] = {}

    def add(self, item: Item, node: exp.Expr) -> bool:
        """Whether an aggregate has a step, which is added."""
        step = self._step(node, self._types[item.name])
        if step is not None:
            self._items.append(item)
            self._steps.append(step)
        return step is not None

    def operator(self) -> Aggregate:
        """The aggregate, after all calls of `add`."""
        rows = self._count(Step("COUNT", "1"), "COUNT(*)") if self._by or not self._items else ""
        items = (*self._items, *(item for item, _ in self._hidden))
        steps = (*self._steps, *(step for _, step in self._hidden))
        values = tuple(self._values.values())
        return Aggregate(self._rows.operator, self._by, items, False, steps, rows, values)

    def _step(self, node: exp.Expr, kind: str) -> Step | None:
        condition = ""
        if isinstance(node, exp.Filter):
            condition, node = fragment(node.expression.this, over(self._rows)), node.this
        function, value = _FUNCTIONS.get(type(node)), node.this
        if function is None or node.args.get("expressions"):
            return None
        only = isinstance(value, exp.Distinct)
        if only:
            if value.args.get("on"):
                return None
            value = value.expressions[0] if len(value.expressions) == 1 else value
        if function == "SUM" and not kind.startswith(("HUGEINT", "DECIMAL")):
            return None  # A sum of doubles is not what remains after taking one away.
        argument = self._argument(node, value)
        if condition:
            argument = f"CASE WHEN {condition} THEN {argument} END"
        step = Step(function, argument)
        if only and not step.extreme:
            step = Step(function, f'{INPUT}."_v"', self._source(argument))
        if function == "SUM":
            called = f"COUNT({'DISTINCT ' if only else ''}{argument})"
            counted = self._count(Step("COUNT", step.argument, step.source), called)
            return Step(function, step.argument, step.source, counted)
        return step

    def _argument(self, node: exp.Expr, value: exp.Expr) -> str:
        if isinstance(value, exp.Star):
            return "1"
        # DuckDB's SQL of several DISTINCT values is that of one row of them.
        sql = fragment(value, over(self._rows)).removeprefix("DISTINCT ")
        return f"CASE WHEN {sql} THEN 1 END" if isinstance(node, exp.CountIf) else sql

    def _count(self, step: Step, sql: str) -> str:
        """The column of a count, which is added if there is none."""
        known = [*zip(self._items, self._steps, strict=True), *self._hidden]
        for item, each in known:
            if each == step:
                return item.name
        item = Item(f"{HIDDEN}{len(self._hidden)}", sql, "", frozenset())
        self._hidden.append((item, step))
        return item.name

    def _source(self, argument: str) -> int:
        """The number of the input that has the distinct values of an argument for each group."""
        if argument not in self._values:
            value = Item("_v", argument)
            some = Filter(self._rows.operator, f"({argument}) IS NOT NULL")
            pairs = checked(Project(checked(some), (*self._by, value)))
            self._values[argument] = distinct(pairs)
        return list(self._values).index(argument) + 1
