"""WHERE and HAVING: filters, and the filters of ranks that are Top-N."""

from dataclasses import replace

from sqlglot import exp

from streamhouse.operators.filter import Filter
from streamhouse.operators.operator import Operator
from streamhouse.operators.over import Over
from streamhouse.operators.planning.rows import Rows, checked, fragment, over, rejected_nulls
from streamhouse.operators.project import Project
from streamhouse.operators.top_n import TopN


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
