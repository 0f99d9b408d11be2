"""A continuous SELECT over one source, with the expressions of its subqueries in place of names."""

from dataclasses import dataclass, field
from typing import Self

from sqlglot import exp

from streamhouse.sql.functions.expression_builders import current_time_name
from streamhouse.sql.options.merge_functions import (
    group_sequence_fields,
    ignores_retractions,
    merge_function,
    sequence_fields,
)
from streamhouse.sql.plan import Column, LookupJoin, TableInfo
from streamhouse.sql.select_parts import conjuncts
from streamhouse.sql.text import Script


@dataclass
class Lookup:
    """One lookup join of the query, with resolved names.

    `join` is its plan, as yet without SQL. `before` are the conditions of the subqueries that the
    join reads.
    """

    join: LookupJoin
    alias: str
    on: exp.Expr
    before: list[exp.Expr]


@dataclass
class Ranked:
    """PARTITION BY and ORDER BY of the ROW_NUMBER of which a query selects the first.

    `newest`: the order is descending. `nulls_first`: for each expression of `order`, whether NULL
    sorts first. `drops`: what is around the ranking may drop the newest row of a key.
    """

    partition: tuple[exp.Expr, ...]
    order: tuple[exp.Expr, ...]
    newest: bool
    nulls_first: tuple[bool, ...]
    drops: bool = False


@dataclass(frozen=True)
class OutputColumn:
    """A column that a query writes, and what its target does with it.

    `item` is its projection; None: the query gives none. `in_key`: it is part of the target's
    primary key. `orders`: it is a sequence field. `function` merges its values, or `ignores` those
    of retractions; empty if the target merges none.
    """

    column: Column
    item: exp.Expr | None
    in_key: bool = False
    orders: bool = False
    function: str = ""
    ignores: bool = False

    @classmethod
    def of(cls, column: Column, item: exp.Expr | None, target: TableInfo) -> Self:
        """A column of a target."""
        name, options = column.name, target.options
        orders = name in {*sequence_fields(options), *group_sequence_fields(options)}
        function = merge_function(options, name)
        ignores = ignores_retractions(options, name)
        return cls(column, item, name in target.primary_key, orders, function, ignores)

    @property
    def name(self) -> str:
        return self.column.name


@dataclass
class StreamSelect:
    """What a continuous query does with the rows of its source.

    All expressions read columns of `alias`, which is the source, and of the lookups. `where` are
    AND-ed. `script` and `select`, the outermost SELECT, are for positions; `visible` has the
    columns of each alias in its FROM. `lets_pass`: retractions pass the lookups; see
    `changing_rows`. `outputs` are the columns of the `target`, or those of a bare SELECT.
    """

    script: Script
    zone: str
    select: exp.Select
    source: TableInfo
    options: dict[str, str]
    alias: str
    lookups: list[Lookup] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    items: list[exp.Expr] = field(default_factory=list)
    where: list[exp.Expr] = field(default_factory=list)
    group: list[exp.Expr] = field(default_factory=list)
    ranked: Ranked | None = None
    visible: dict[str, dict[str, exp.Expr]] = field(default_factory=dict)
    lets_pass: bool = False
    target: TableInfo | None = None
    outputs: tuple[OutputColumn, ...] = ()

    @property
    def given(self) -> list[tuple[OutputColumn, exp.Expr]]:
        """The columns that have a projection."""
        return [(each, each.item) for each in self.outputs if each.item is not None]

    @property
    def aggregates(self) -> bool:
        """Whether the query has a GROUP BY or an aggregate function."""
        return bool(self.group) or any(item.find(exp.AggFunc) for item in self.items)

    def reads_lookup(self, item: exp.Expr) -> bool:
        """Whether an expression has a column of a lookup."""
        return any(column.table != self.alias for column in item.find_all(exp.Column))

    def reads_source_only(self, item: exp.Expr) -> bool:
        """Whether an expression has the same value whenever it is computed for a source row."""
        return not (self.reads_lookup(item) or reads_time(item))

    def source_column(self, item: exp.Expr) -> str | None:
        """The source's column that an expression copies; None for anything else."""
        inner = item.unalias().unnest()
        is_source = isinstance(inner, exp.Column) and inner.table == self.alias
        return inner.name if is_source else None


def equalities(condition: exp.Expr, alias: str) -> dict[str, exp.Expr]:
    """Columns of `alias` that are compared by `=`, each with the other side (first one only)."""
    sides: dict[str, exp.Expr] = {}
    for part in conjuncts(condition):
        inner = part.unnest()
        if not isinstance(inner, exp.EQ):
            continue
        for one, other in ((inner.left, inner.right), (inner.right, inner.left)):
            one = one.unnest()
            others = {column.table for column in other.find_all(exp.Column)}
            if isinstance(one, exp.Column) and one.table == alias and alias not in others:
                sides.setdefault(one.name, other)
                break
    return sides


def reads_time(item: exp.Expr) -> bool:
    """Whether an expression depends on the time of the batch."""
    return any(current_time_name(node) is not None for node in item.walk())


def plain_text(item: exp.Expr) -> str:
    """The text of an expression, by which two are the same."""
    return item.unnest().sql()


def is_constant(item: exp.Expr) -> bool:
    """Whether an expression has one value for all rows of all batches; NULL does not count."""
    return item.find(exp.Column, exp.AggFunc, exp.Anonymous, exp.Null) is None
