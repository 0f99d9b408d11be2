"""The rows of a part of a query while its tree is built: an operator, and how to name its columns.

Expressions become SQL fragments whose columns are those of the operator's input: `fragment`.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from streamhouse.operators.filter import Filter
from streamhouse.operators.limit import TopN
from streamhouse.operators.operator import INPUT, LEFT, RIGHT, Key, Operator
from streamhouse.operators.over import Over
from streamhouse.operators.project import Item, Project
from streamhouse.operators.scan import Scan
from streamhouse.sql.expressions.binder import BindError, generate
from streamhouse.sql.plan import BoundedScan
from streamhouse.sql.resolution import columns as names
from streamhouse.sql.select_parts import aliases, replaced_columns

_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_TIMES = ("DATE", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP")
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)


class NotExpressedError(Exception):
    """No operator expresses a part of a query; the message says which part."""


@dataclass(frozen=True)
class Rows:
    """The result of an operator; `names` has the column for each alias and column of the query."""

    operator: Operator
    names: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def find(self, column: exp.Column) -> str | None:
        """The operator's column that a column of the query names; None if it has none."""
        if column.args.get("db"):
            return None
        if column.table == INPUT and column.name in self.operator.columns:
            return column.name
        return self.names.get((column.table.lower(), column.name.lower()))


@dataclass(frozen=True)
class Sources:
    """What names in FROM refer to: the query's scans, and the WITH queries in scope.

    `build` makes the tree of a query with these sources.
    """

    scans: Mapping[str, BoundedScan]
    queries: Mapping[str, Operator]
    build: Callable[["Sources", exp.Expr, Rows | None], Operator]
    numbers: Iterator[int] = field(default_factory=itertools.count)
    """Numbers for the columns of subqueries."""

    def operator(self, tree: exp.Expr, domain: Rows | None = None) -> Operator:
        """The tree of a subquery.

        One that reads columns around it has the values of these in `domain`, and they come last in
        its result.
        """
        return self.build(self, tree, domain)

    def find(self, name: str, prefix: str) -> Operator | None:
        """The operator of a relation; the columns of a scan begin with `prefix`."""
        if name.lower() in self.queries:
            return self.queries[name.lower()]
        scan = self.scans.get(name)
        if scan is None:
            return None
        return Scan(scan.table, scan.relation, scan.columns, prefix, bool(scan.as_of))


Sides = Sequence[tuple[Rows, str]]
"""The inputs of an operator, each with its alias."""


def checked(operator: Operator) -> Operator:
    """The operator, if its columns differ in name and DuckDB can bind it."""
    if len({name.lower() for name in operator.columns}) < len(operator.columns):
        raise NotExpressedError("columns of the same name")
    try:
        _ = operator.types
    except (BindError, ValueError) as error:
        raise NotExpressedError(f"it cannot be taken apart ({error})") from None
    return operator


def check_args(node: exp.Expr, known: Iterable[str], where: str = "") -> None:
    """Raise `NotExpressedError` for a clause of a node that is not a known one."""
    extra = names.first_set(node.args, known)
    if extra is not None:
        raise NotExpressedError(f"{extra.strip('_').upper()}{where}")


def reference(name: str, alias: str = INPUT) -> exp.Column:
    """A node that names a column of the operator below."""
    return exp.column(exp.to_identifier(name, quoted=True), exp.to_identifier(alias, quoted=True))


def sides_of(node: exp.Expr, sides: Sides) -> set[str]:
    """The aliases of the sides that an expression's columns come from; '' for any other place."""
    found = set()
    for column in node.find_all(exp.Column):
        if not _is_parameter(column):
            found.add(next((alias for rows, alias in sides if rows.find(column) is not None), ""))
    return found


def fragment(node: exp.Expr, sides: Sides) -> str:
    """The SQL of an expression over the operators of `sides`."""
    if node.find(exp.Query):
        raise NotExpressedError("a subquery within an expression")

    def new(column: exp.Column) -> exp.Expr:
        if _is_parameter(column):
            return column
        both = ((rows.find(column), alias) for rows, alias in sides)
        found = next(((name, alias) for name, alias in both if name is not None), None)
        if found is None:
            raise NotExpressedError(f"column {column.sql()} comes from outside")
        return reference(*found)

    return generate(replaced_columns(node, new))


def free_columns(query: exp.Expr, outer: Rows) -> list[tuple[exp.Column, str]]:
    """The columns of `outer` that a subquery reads: their nodes and names."""
    named = ((each, outer.find(each)) for each in query.find_all(exp.Column) if each.table)
    return [(each, name) for each, name in named if name is not None and not _is_own(each, query)]


def _is_own(column: exp.Column, query: exp.Expr) -> bool:
    """Whether a column is of a relation within a subquery."""
    node: exp.Expr | None = column
    while node is not None:
        if isinstance(node, exp.Select):
            if column.table.lower() in map(str.lower, aliases(node)):
                return True
        node = None if node is query else node.parent
    return False


def over(rows: Rows) -> Sides:
    """The one side of an operator with one input."""
    return ((rows, INPUT),)


def _is_parameter(column: exp.Column) -> bool:
    """Whether a name is the parameter of a lambda."""
    if column.table:
        return False
    function = column.find_ancestor(exp.Lambda)
    while function is not None:
        if any(each.name == column.name for each in function.expressions):
            return True
        function = function.find_ancestor(exp.Lambda)
    return False


def item(name: str, node: exp.Expr, rows: Rows) -> Item:
    """The column `name` with the value of an expression."""
    return Item(name, fragment(node, over(rows)), _source(node, rows), _not_null_if(node, rows))


def plain_column(node: exp.Expr, rows: Rows) -> str:
    """The operator's column that an expression is; empty for any other expression."""
    inner = node.unnest()
    return (rows.find(inner) or "") if isinstance(inner, exp.Column) else ""


def _source(node: exp.Expr, rows: Rows) -> str:
    inner = node.unnest()
    if type(inner) is exp.Cast:
        name = _source(inner.this, rows)
        target = inner.to.sql(dialect="duckdb").upper()
        return name if name and keeps_values_apart(rows.operator.types[name], target) else ""
    return plain_column(inner, rows)


def _not_null_if(node: exp.Expr, rows: Rows) -> Key | None:
    inner = node.unnest()
    if type(inner) is exp.Cast:
        return _not_null_if(inner.this, rows)
    if isinstance(inner, exp.Literal | exp.Boolean | exp.Count | exp.RowNumber):
        return Key()
    if isinstance(inner, exp.Filter) and isinstance(inner.this, exp.Count):
        return Key()
    if isinstance(inner, exp.Window):
        return Key() if isinstance(inner.this, exp.RowNumber | exp.Count) else None
    if isinstance(inner, exp.Coalesce):
        found = (_not_null_if(each, rows) for each in (inner.this, *inner.expressions))
        return next((each for each in found if each is not None and not each), None)
    if isinstance(inner, exp.Add | exp.Sub) or inner.name in _NULL_FOR_NULLS:
        parts = inner.expressions or (inner.this, inner.expression)
        needed = [_not_null_if(each, rows) for each in parts]
        known = [each for each in needed if each is not None]
        return Key().union(*known) if len(known) == len(needed) else None
    name = plain_column(inner, rows)
    return Key([name]) if name else None


_NULL_FOR_NULLS = ("TIME_BUCKET", "TO_MILLISECONDS", "DATE_TRUNC")
"""Functions of DuckDB that return null only for a null."""


def keeps_values_apart(source: str, target: str) -> bool:
    """Whether a cast gives different values of a type different values of another one."""
    source, target = _type_name(source), _type_name(target)
    if source == target:
        return True
    if source in _INTEGERS:
        return target in _INTEGERS
    return source in _TIMES and target in _TIMES and _TIMES.index(source) <= _TIMES.index(target)


def _type_name(kind: str) -> str:
    name = kind.upper().replace(" ", "").replace("TIMESTAMPWITHTIMEZONE", "TIMESTAMPTZ")
    return {"INT": "INTEGER", "TEXT": "VARCHAR"}.get(name, name)


def comparable(left: str, right: str) -> bool:
    """Whether a value of one type equals one value of the other at most, and comparing is exact."""
    return keeps_values_apart(left, right) or keeps_values_apart(right, left)


def rejected_nulls(condition: exp.Expr, rows: Rows) -> set[str]:
    """The columns that are not null in the rows for which a condition is true."""
    if isinstance(condition, exp.Not):
        test = condition.this.unnest()
        null = isinstance(test, exp.Is) and isinstance(test.expression, exp.Null)
        return {plain_column(test.this, rows)} - {""} if null else set()
    if isinstance(condition, _COMPARISONS):
        return {plain_column(each, rows) for each in (condition.this, condition.expression)} - {""}
    return set()


RESERVED = (INPUT, LEFT, RIGHT)
"""Aliases that a query must not use."""


def passing(rows: Rows, terms: list[exp.Expr]) -> Rows:
    """The rows that pass all terms."""
    operator, rest = rows.operator, []
    for term in terms:
        top = _top_n(operator, *_most(term, rows))
        operator = top or operator
        if top is None or isinstance(term, exp.Between):
            rest.append(term)
    if rest:
        condition = " AND ".join(f"({fragment(term, over(rows))})" for term in rest)
        rejects = frozenset(name for term in rest for name in rejected_nulls(term, rows))
        operator = checked(Filter(operator, condition, rejects))
    return Rows(operator, rows.names)


def _most(term: exp.Expr, rows: Rows) -> tuple[str, int]:
    """The column that a condition limits from above, and the greatest value that passes."""
    if isinstance(term, exp.Between) and not term.args.get("symmetric"):
        term = exp.LTE(this=term.this, expression=term.args["high"])
    left, right = term.args.get("this"), term.args.get("expression")
    if isinstance(left, exp.Column) and isinstance(right, exp.Literal) and right.is_int:
        value, name = int(right.name), rows.find(left) or ""
        if isinstance(term, exp.LTE) or (isinstance(term, exp.EQ) and value == 1):
            return name, value
        if isinstance(term, exp.LT):
            return name, value - 1
    return "", 0


def _top_n(operator: Operator, name: str, most: int) -> Operator | None:
    """The rows of an operator whose rank `name` is at most `most`; None if it is no rank."""
    match operator:
        case Project():
            column = next((e.column for e in operator.items if e.name == name), "")
            inner = _top_n(operator.input, column, most) if column else None
            return None if inner is None else Project(inner, operator.items)
        case Over() if operator.item.name == name and operator.rank:
            return TopN(
                operator.input, operator.item, operator.by, operator.rank, operator.in_order, most
            )
        case Over() if isinstance(operator.input, Over):
            # Columns of OVER do not depend on each other: the rank may come last.
            lower = operator.input
            swapped = replace(lower, input=replace(operator, input=lower.input))
            return _top_n(swapped, name, most) if lower.item.name == name else None
    return None
