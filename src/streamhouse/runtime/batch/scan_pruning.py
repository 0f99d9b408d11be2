"""Filter pushdown of bounded queries: conditions that let a scan skip partitions and files."""

import datetime
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp

from streamhouse.paimon.read.conditions import Filter, all_of, compared
from streamhouse.sql.plan import BoundedQuery
from streamhouse.sql.select_parts import conjuncts

_METHODS: dict[type[exp.Expr], tuple[str, str]] = {
    exp.EQ: ("equal", "equal"),
    exp.GT: ("greaterThan", "lessThan"),
    exp.GTE: ("greaterOrEqual", "lessOrEqual"),
    exp.LT: ("lessThan", "greaterThan"),
    exp.LTE: ("lessOrEqual", "greaterOrEqual"),
}
_TIMESTAMPS = (exp.DType.TIMESTAMP_MS, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ)


class Pruning:
    """The pushdown conditions for each scan of a query, from its WHERE clauses.

    A condition may pass too many rows but never drops too many: the engine checks all of them
    again. No condition is true for a null, so it may also be pushed to the right side of a LEFT
    JOIN.
    """

    def __init__(self, plan: BoundedQuery) -> None:
        self._terms: dict[str, list[exp.Expr]] = {}
        if not plan.scans:
            return
        tree = sqlglot.parse_one(plan.sql, dialect="duckdb")
        relations = {scan.relation for scan in plan.scans}
        for select in tree.find_all(exp.Select):
            aliases = dict(_tables(select, relations))
            for term in conjuncts(select.args.get("where")):
                columns = {column.table for column in term.find_all(exp.Column)}
                if len(columns) == 1 and (name := aliases.get(columns.pop())) is not None:
                    self._terms.setdefault(name, []).append(term)

    def filter(self, relation: str, schema: pa.Schema) -> Filter | None:
        """The condition for one scan with the columns of `schema`; None for all rows."""
        terms = self._terms.get(relation, ())
        return all_of(each for term in terms for each in _conditions(term.unnest(), schema))

    def partition(self, relation: str, schema: pa.Schema) -> dict[str, str]:
        """The values of columns of `schema` that all rows of a scan have which the query reads.

        Only texts and whole numbers that a WHERE clause compares with a literal.
        """
        found: dict[str, str] = {}
        for term in self._terms.get(relation, ()):
            equal = term.unnest()
            if type(equal) is not exp.EQ:
                continue
            for column, literal in (
                (equal.this, equal.expression),
                (equal.expression, equal.this),
            ):
                if isinstance(column, exp.Column) and column.name in schema.names:
                    kind = schema.field(column.name).type
                    value = _value(literal, kind)
                    is_number = isinstance(value, int) and pa.types.is_integer(kind)
                    if is_number or (isinstance(value, str) and pa.types.is_string(kind)):
                        found[column.name] = str(value)
        return found


def _tables(select: exp.Select, relations: set[str]) -> Iterator[tuple[str, str]]:
    """Pairs of alias and relation of the scans in a SELECT's own FROM and JOIN clauses."""
    sources = [select.args.get("from_"), *(select.args.get("joins") or [])]
    for source in sources:
        table = source.this if source is not None else None
        if isinstance(table, exp.Table) and table.name in relations:
            yield table.alias_or_name, table.name


def _conditions(term: exp.Expr, schema: pa.Schema) -> Iterator[Filter | None]:
    """The reader's conditions for a comparison with literals; none for any other term."""
    if isinstance(term, exp.Between):
        for method, side in (("greaterOrEqual", "low"), ("lessOrEqual", "high")):
            yield from _compared(method, term.this, [term.args[side]], schema)
    elif isinstance(term, exp.In) and term.expressions:
        yield from _compared("in", term.this, term.expressions, schema)
    elif type(term) in _METHODS:
        method, mirrored = _METHODS[type(term)]
        if isinstance(term.this.this if isinstance(term.this, exp.Cast) else term.this, exp.Column):
            yield from _compared(method, term.this, [term.expression], schema)
        else:
            yield from _compared(mirrored, term.expression, [term.this], schema)


def _compared(
    method: str, column: exp.Expr, literals: list[exp.Expr], schema: pa.Schema
) -> Iterator[Filter | None]:
    cast = column.to.this if isinstance(column, exp.Cast) else None
    column = column.this if cast is not None else column
    if not isinstance(column, exp.Column) or schema.get_field_index(column.name) < 0:
        return
    field = schema.field(column.name)
    if cast is not None and not _is_kept(field.type, cast):
        return
    values = [_value(literal, field.type) for literal in literals]
    if cast is not None and field.type.tz is not None:
        values = [value and value.replace(tzinfo=datetime.UTC) for value in values]
    yield compared(method, field, values)


def _is_kept(kind: pa.DataType, cast: exp.DType) -> bool:
    """Whether a cast to a type keeps each value of a column of another one, in the zone UTC."""
    return cast in _TIMESTAMPS[1:] and pa.types.is_timestamp(kind) and kind.unit in ("ms", "us")


def _value(literal: exp.Expr, column_type: pa.DataType) -> Any:
    """A literal's value; None, which matches no column type, for any other expression."""
    if isinstance(literal, exp.Cast) and isinstance(literal.this, exp.Literal):
        text, literal_type = literal.this.name, literal.to.this
        try:
            if literal_type == exp.DType.DATE and pa.types.is_date(column_type):
                return datetime.date.fromisoformat(text)
            if literal_type in _TIMESTAMPS and pa.types.is_timestamp(column_type):
                return datetime.datetime.fromisoformat(text)
        except ValueError:
            return None
        return None
    if not isinstance(literal, exp.Literal):
        return None
    if literal.is_string:
        return literal.name
    return int(literal.name) if literal.name.isdigit() else None
